//! Statistics of a pool, its tags, children and brokers together.

use crate::boundary::versioned;
use crate::options::UNLIMITED;
use crate::pool::CPool;
use crate::private::Unordered;
use crate::tags::Tagged;
use serde_json::{Value, json};
use std::sync::Arc;
use vrampool::PoolStats;
use vrampool::figures::{Figure, FigureKind, FigureValue, Group};
use vrampool_sleep::{SleepArena, SleepReport};

macro_rules! stats {
    ($($field:ident)+) => {
        versioned! {
            /// `vrampool_stats`; its fields are the header's.
            #[allow(missing_docs, reason = "the header has them")]
            Stats until backup_bytes { $($field)+ }
        }

        impl Stats {
            fn fields(&mut self) -> Vec<(&'static str, &mut u64)> {
                vec![$((stringify!($field), &mut self.$field)),+]
            }
        }
    };
}

// Generated from the table of figures by bindings/c/tests/figures.rs; do not edit.
stats! {
    live_buffers requested_bytes live_bytes idle_bytes held_bytes in_flight_bytes needed_bytes reserved_bytes
    in_transit_bytes waiting_requests waiting_bytes oldest_wait_nanoseconds stream_waits reuse_waits memory_calls
    source_allocations source_frees source_allocated_bytes served_by_bucket served_by_arena served_by_driver
    mapping_calls mapping_nanoseconds mappings stitched_ranges arena_free_bytes arena_largest_free_bytes address_bytes
    peak_requested_bytes peak_live_bytes peak_idle_bytes peak_held_bytes peak_reserved_bytes peak_needed_bytes
    peak_limit_bytes max_cached_bytes max_buffers_per_bucket limit_bytes budget_bytes released_by_byte_cap
    released_by_bucket_cap released_evicted failed_by_limit failed_by_device failed_by_arena failed_by_fragmentation
    failed_by_request failed_by_timeout failed_by_backend failed_closed failed_invalid last_failure_by_limit
    last_failure_by_device last_failure_by_arena last_failure_by_fragmentation last_failure_by_request
    last_failure_by_timeout last_failure_by_backend last_failure_closed last_failure_invalid device_errors_allocate
    device_errors_order device_errors_copy device_errors_memory_info rung_evict rung_wait rung_trim rung_compact
    rung_fail wait_within_10us wait_within_100us wait_within_1ms wait_within_10ms wait_within_100ms wait_within_1s
    wait_within_10s wait_within_100s wait_longer wait_nanoseconds driver_within_10us driver_within_100us
    driver_within_1ms driver_within_10ms driver_within_100ms driver_within_1s driver_within_10s driver_within_100s
    driver_longer driver_nanoseconds allocation_within_10us allocation_within_100us allocation_within_1ms
    allocation_within_10ms allocation_within_100ms allocation_within_1s allocation_within_10s allocation_within_100s
    allocation_longer allocation_nanoseconds private_bytes asleep_bytes backup_bytes
}
// End of the generated lines.

/// The figures that a pool of this library has besides, with their help: the last fields.
const OWN: [(&str, &str); 3] = [
    (
        "private_bytes",
        "Bytes in private pools of CUDA graphs, live or kept for their graphs, of virtual memory whole pages, and \
         bytes of released private pools that wait for the device.",
    ),
    ("asleep_bytes", "Bytes of live blocks that are asleep."),
    ("backup_bytes", "Bytes of host memory that keep contents of sleeping blocks."),
];

/// Names and help of the numbers of a pool, this library's own included.
#[must_use]
pub fn of_pools() -> Vec<(&'static str, String)> {
    let described = |(figure, _): (&'static Figure, u64)| {
        let unset = if figure.kind == FigureKind::Cap { " `UNLIMITED` if unset." } else { "" };
        (figure.name, format!("{}{unset}", figure.help))
    };
    let own = OWN.map(|(name, help)| (name, help.to_owned()));
    numbers(&PoolStats::default()).map(described).chain(own).collect()
}

/// The same of a sleep or a wake.
#[must_use]
pub fn of_sleep() -> Vec<(&'static str, String)> {
    SleepReport::table().into_iter().map(|figure| (figure.name, figure.help.to_owned())).collect()
}

/// The figures of statistics that are numbers.
fn numbers<G: Group>(stats: &G) -> impl Iterator<Item = (&'static Figure, u64)> + use<G> {
    stats.figures().into_iter().filter_map(|(figure, value)| match value {
        FigureValue::Number(number) => Some((figure, number)),
        FigureValue::Cap(cap) => Some((figure, cap.unwrap_or(UNLIMITED))),
        _ => None,
    })
}

/// The same by name.
pub(crate) fn named(stats: &impl Group) -> Value {
    numbers(stats).map(|(figure, number)| (figure.name.to_owned(), Value::from(number))).collect()
}

impl Stats {
    fn of(stats: &PoolStats) -> Self {
        let mut all = Self::default();
        all.fields().into_iter().zip(numbers(stats)).for_each(|((_, field), (_, number))| *field = number);
        all
    }

    fn named(mut self) -> Value {
        self.fields().into_iter().map(|(name, value)| (name.to_owned(), Value::from(*value))).collect()
    }
}

/// Counts free blocks that wait for the device, which the pool has as live buffers, as idle and in flight.
fn without_live(stats: &mut PoolStats, free: &Unordered) {
    // Other threads go on between the two.
    let bytes = free.bytes.min(stats.live_bytes);
    stats.live_bytes -= bytes;
    stats.idle_bytes += bytes;
    stats.in_flight_bytes = stats.in_flight_bytes.saturating_add(bytes);
    stats.requested_bytes = stats.requested_bytes.saturating_sub(free.requested);
    stats.live_buffers = stats.live_buffers.saturating_sub(free.buffers);
}

impl CPool {
    /// Of each tag with its private pools, by name.
    fn stats_by_tag(&self) -> Vec<(Box<str>, PoolStats, Stats)> {
        let graphs = self.captures.all();
        // With the bytes that are asleep, and those of their backup.
        let of_pool = |tagged: &Tagged| {
            let mut stats = tagged.pool.own_stats();
            without_live(&mut stats, &self.captures.unordered(tagged.pool.name()));
            let asleep_bytes = if tagged.is_asleep() { stats.live_bytes } else { 0 };
            (stats, asleep_bytes, tagged.arena.as_ref().map_or(0, SleepArena::backup_bytes))
        };
        let of = |tagged: &Arc<Tagged>| {
            let (mut full, mut asleep_bytes, mut backup_bytes) = of_pool(tagged);
            full.caps.limit_bytes = self.main.pool.limit();
            for private in graphs.iter().filter(|private| Arc::ptr_eq(&private.above, tagged)) {
                let (more, asleep, backup) = of_pool(&private.own);
                full.merge(&more);
                asleep_bytes += asleep;
                backup_bytes += backup;
            }
            let stats = Stats { asleep_bytes, backup_bytes, ..Stats::of(&full) };
            (tagged.tag.clone(), full, stats)
        };
        self.tags().iter().map(of).collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.sum(&self.stats_by_tag())
    }

    fn sum(&self, tags: &[(Box<str>, PoolStats, Stats)]) -> Stats {
        let mut full = self.main.pool.stats();
        self.tags().iter().for_each(|of| without_live(&mut full, &self.captures.unordered(of.pool.name())));
        let sum = |of: fn(&Stats) -> u64| tags.iter().map(|(_, _, stats)| of(stats)).sum();
        Stats {
            limit_bytes: self.limit(),
            private_bytes: self.captures.bytes(),
            asleep_bytes: sum(|of| of.asleep_bytes),
            backup_bytes: sum(|of| of.backup_bytes),
            ..Stats::of(&full)
        }
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
