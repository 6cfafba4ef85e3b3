//! Statistics of a pool as serialized: one flat record.

use super::table::PoolStats;
use crate::figures::{Figure, FigureValue, Group};
use serde::ser::{Serialize, SerializeStruct, Serializer};

impl Serialize for PoolStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
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
