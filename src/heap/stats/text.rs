//! Statistics of a pool as text, and as they are serialized.

use super::table::{BucketStats, PoolStats, Served};
#[cfg(feature = "serde")]
use crate::figures::{Figure, FigureValue, Group};
use bytesize::ByteSize;
use std::fmt;

/// One line; with `{:#}` a further line for each size class.
impl fmt::Display for PoolStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, ", self.served)?;
        let (live, requested) = (ByteSize(self.live_bytes), ByteSize(self.requested_bytes));
        write!(f, "live {live} in {} buffers (requested {requested}), ", self.live_buffers)?;
        write!(f, "idle {}, held {}, ", ByteSize(self.idle_bytes), ByteSize(self.held_bytes))?;
        write!(f, "reserved {} (source {}), ", ByteSize(self.reserved_bytes), self.source.kind)?;
        match self.caps.limit_bytes {
            Some(limit) => write!(f, "limit {}, ", ByteSize(limit))?,
            None => f.write_str("no limit, ")?,
        }
        let invalid = self.failed.invalid;
        write!(f, "failed {}, invalid {invalid}", self.failed.total() - invalid)?;
        if f.alternate() {
            self.buckets.iter().try_for_each(|bucket| write!(f, "\n    {bucket}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Served {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by_bucket, by_arena, by_driver } = self;
        write!(f, "hit rate {:.2}, bucket hit rate {:.2} ", self.hit_rate(), self.bucket_hit_rate())?;
        write!(f, "(served by buckets {by_bucket}, arena {by_arena}, driver {by_driver})")
    }
}

impl fmt::Display for BucketStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (class, idle) = (ByteSize(self.class), ByteSize(self.idle_bytes));
        let Self { hits, misses, idle_buffers, .. } = self;
        write!(f, "class {class}: hits {hits}, misses {misses}, idle {idle} in {idle_buffers} buffers")
    }
}

/// One flat record.
#[cfg(feature = "serde")]
impl serde::Serialize for PoolStats {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let figures = self.figures();
        let mut record = serializer.serialize_struct("PoolStats", figures.len() + 1)?;
        for (Figure { name, .. }, value) in figures {
            match value {
                FigureValue::Number(number) => record.serialize_field(name, &number)?,
                FigureValue::Cap(cap) => record.serialize_field(name, &cap)?,
                FigureValue::Text(text) => record.serialize_field(name, &text)?,
            }
        }
        record.serialize_field("buckets", &self.buckets)?;
        record.end()
    }
}
