//! What a pool tells of itself, all tags together.

use crate::boundary::Versioned;
use crate::options::UNLIMITED;
use crate::pool::CPool;
use crate::unsettled::Unordered;
use serde_json::{Value, json};
use std::mem::offset_of;
use vrampool::{PoolStats, Rung};

macro_rules! stats {
    ($($field:ident),+ $(,)?) => {
        /// `vrampool_stats`; its fields are the header's.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[repr(C)]
        #[allow(missing_docs, reason = "the header has them")]
        pub struct Stats {
            pub struct_size: usize,
            $(pub $field: u64,)+
        }

        impl Stats {
            fn named(&self) -> Value {
                let named = [$((stringify!($field), self.$field)),+];
                named.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
            }
        }
    };
}

stats! {
    hits, misses, bytes_requested, bytes_live, bytes_cached, bytes_held, bytes_reserved, bytes_allocated, peak_requested,
    peak_live, peak_cached, peak_held, peak_reserved, max_cached_bytes, max_buffers_per_bucket, limit, budget, live_buffers,
    source_allocations, source_frees, driver_calls, mapping_calls, mapping_nanoseconds, drops_over_bytes, drops_over_count,
    evictions, stream_waits, failed_by_limit, failed_by_device, failed_by_backend, failed_invalid, rung_evict, rung_wait,
    rung_trim, rung_compact, rung_fail, bytes_private, bytes_asleep, bytes_backup,
}

impl Versioned for Stats {
    const LEAST: usize = offset_of!(Self, bytes_backup) + size_of::<u64>();

    fn with_size(self, struct_size: usize) -> Self {
        Self { struct_size, ..self }
    }
}

impl Stats {
    fn of(stats: &PoolStats) -> Self {
        Self {
            struct_size: 0,
            hits: stats.hits,
            misses: stats.misses,
            bytes_requested: stats.requested_bytes,
            bytes_live: stats.live_bytes,
            bytes_cached: stats.idle_bytes,
            bytes_held: stats.held_bytes,
            bytes_reserved: stats.source.reserved_bytes,
            bytes_allocated: stats.source.allocated_bytes,
            peak_requested: stats.peak.requested_bytes,
            peak_live: stats.peak.live_bytes,
            peak_cached: stats.peak.idle_bytes,
            peak_held: stats.peak.held_bytes,
            peak_reserved: stats.peak.reserved_bytes,
            max_cached_bytes: stats.caps.max_cached_bytes.unwrap_or(UNLIMITED),
            max_buffers_per_bucket: stats.caps.max_buffers_per_bucket.unwrap_or(UNLIMITED),
            limit: stats.caps.limit.unwrap_or(UNLIMITED),
            budget: stats.caps.budget.unwrap_or(UNLIMITED),
            live_buffers: stats.live_buffers,
            source_allocations: stats.source.allocations,
            source_frees: stats.source.frees,
            driver_calls: stats.driver_calls(),
            mapping_calls: stats.virtual_memory.calls,
            mapping_nanoseconds: u64::try_from(stats.virtual_memory.time.as_nanos()).unwrap_or(u64::MAX),
            drops_over_bytes: stats.released.by_byte_cap,
            drops_over_count: stats.released.by_bucket_cap,
            evictions: stats.released.evicted,
            stream_waits: stats.stream_waits,
            failed_by_limit: stats.failed.by_limit,
            failed_by_device: stats.failed.by_device,
            failed_by_backend: stats.failed.by_backend,
            failed_invalid: stats.failed.invalid,
            rung_evict: stats.rung(Rung::Evict),
            rung_wait: stats.rung(Rung::Wait),
            rung_trim: stats.rung(Rung::Trim),
            rung_compact: stats.rung(Rung::Compact),
            rung_fail: stats.rung(Rung::Fail),
            ..Self::default()
        }
    }

    /// Those that are free, though a buffer of the pool's keeps them, are idle.
    fn without_live(mut self, free: &Unordered) -> Self {
        // Other threads go on between the two.
        let bytes = free.bytes.min(self.bytes_live);
        self.bytes_live -= bytes;
        self.bytes_cached += bytes;
        self.bytes_requested = self.bytes_requested.saturating_sub(free.requested);
        self.live_buffers = self.live_buffers.saturating_sub(free.buffers);
        self
    }

    /// With those of one more tag; caps are each tag's the same, and the first one's here.
    fn and(mut self, other: &Self) -> Self {
        for (sum, more) in [
            (&mut self.hits, other.hits),
            (&mut self.misses, other.misses),
            (&mut self.bytes_requested, other.bytes_requested),
            (&mut self.bytes_live, other.bytes_live),
            (&mut self.bytes_cached, other.bytes_cached),
            (&mut self.bytes_held, other.bytes_held),
            (&mut self.bytes_reserved, other.bytes_reserved),
            (&mut self.bytes_allocated, other.bytes_allocated),
            (&mut self.peak_requested, other.peak_requested),
            (&mut self.peak_live, other.peak_live),
            (&mut self.peak_cached, other.peak_cached),
            (&mut self.peak_held, other.peak_held),
            (&mut self.peak_reserved, other.peak_reserved),
            (&mut self.live_buffers, other.live_buffers),
            (&mut self.source_allocations, other.source_allocations),
            (&mut self.source_frees, other.source_frees),
            (&mut self.driver_calls, other.driver_calls),
            (&mut self.mapping_calls, other.mapping_calls),
            (&mut self.mapping_nanoseconds, other.mapping_nanoseconds),
            (&mut self.drops_over_bytes, other.drops_over_bytes),
            (&mut self.drops_over_count, other.drops_over_count),
            (&mut self.evictions, other.evictions),
            (&mut self.stream_waits, other.stream_waits),
            (&mut self.failed_by_limit, other.failed_by_limit),
            (&mut self.failed_by_device, other.failed_by_device),
            (&mut self.failed_by_backend, other.failed_by_backend),
            (&mut self.failed_invalid, other.failed_invalid),
            (&mut self.rung_evict, other.rung_evict),
            (&mut self.rung_wait, other.rung_wait),
            (&mut self.rung_trim, other.rung_trim),
            (&mut self.rung_compact, other.rung_compact),
            (&mut self.rung_fail, other.rung_fail),
            (&mut self.bytes_asleep, other.bytes_asleep),
            (&mut self.bytes_backup, other.bytes_backup),
        ] {
            *sum = sum.saturating_add(more);
        }
        self
    }
}

impl CPool {
    /// Of each tag, by name.
    fn stats_by_tag(&self) -> Vec<(Box<str>, PoolStats, Stats)> {
        let of = |tagged: &crate::pool::Tagged| {
            let full = tagged.pool.stats();
            let mut stats = Stats::of(&full).without_live(&self.captures.unordered(tagged.pool.name()));
            if tagged.is_asleep() {
                stats.bytes_asleep = stats.bytes_live;
            }
            stats.bytes_backup = tagged.pool.arena().map_or(0, vrampool::arena::DeviceArena::backup_bytes);
            (tagged.tag.clone(), full, stats)
        };
        self.tags().iter().map(|tagged| of(tagged)).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.sum(&self.stats_by_tag())
    }

    fn sum(&self, tags: &[(Box<str>, PoolStats, Stats)]) -> Stats {
        let of = tags.iter().map(|(_, _, stats)| *stats);
        let sum = of.reduce(|sum, more| sum.and(&more)).unwrap_or_default();
        Stats { limit: self.limit(), bytes_private: self.captures.bytes(), ..sum }
    }

    pub(crate) fn stats_json(&self) -> Value {
        let tags = self.stats_by_tag();
        let mut all = self.sum(&tags).named();
        let buckets = |stats: &PoolStats| -> Value {
            let bucket = |bucket: &vrampool::stats::BucketStats| {
                json!({
                    "class": bucket.class, "hits": bucket.hits, "misses": bucket.misses,
                    "idle_buffers": bucket.idle_buffers, "idle_bytes": bucket.idle_bytes,
                })
            };
            stats.buckets.iter().map(bucket).collect()
        };
        let by_tag = tags.iter().map(|(tag, full, stats)| {
            let mut of = stats.named();
            of["buckets"] = buckets(full);
            (tag.to_string(), of)
        });
        all["tags"] = Value::Object(by_tag.collect());
        all["pool"] = json!(self.main.pool.name());
        all["source"] = json!(self.main.pool.source().name());
        all["unlimited"] = json!(UNLIMITED);
        all
    }
}
