//! Counters of a depot, and the statistics derived from them.

use crate::cache::accounts::positive;
use crate::cache::buckets::Requests;
use crate::cache::depot::Depot;
use crate::cache::oom_rung::Rung;
use crate::cache::stats::{BucketStats, PoolStats};
use std::collections::BTreeMap;

/// Counts since the pool was created.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Out of the depot: live, or idle in a magazine. Counters that opposite paths change are apart, for the
    /// same reason as [`Accounts::requested`](crate::cache::accounts::Accounts::requested).
    pub(crate) live_buffers: u64,
    pub(crate) drops_over_count: u64,
    pub(crate) source_allocations: u64,
    /// Requests for which the driver was called.
    pub(crate) served_by_driver: u64,
    pub(crate) drops_over_bytes: u64,
    pub(crate) source_frees: u64,
    pub(crate) evictions: u64,
    pub(crate) stream_waits: u64,
    pub(crate) rungs: [u64; Rung::ALL.len()],
    pub(crate) failed_by_limit: u64,
    pub(crate) failed_by_device: u64,
    pub(crate) failed_by_backend: u64,
    pub(crate) failed_invalid: u64,
}

/// Totals of idle buffers in threads' magazines, and the bytes requested by live buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InMagazines {
    pub(crate) buffers: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
}

impl Depot {
    /// Returns the pool's statistics, consistent except for concurrent changes in threads' magazines.
    pub(crate) fn stats(&mut self) -> PoolStats {
        let mut buckets: BTreeMap<u64, BucketStats> = BTreeMap::new();
        let mut add = |class: u64, requests: Requests, idle: u64| {
            let reported = self.classes.reported(class);
            let bucket = buckets.entry(reported).or_insert_with(|| BucketStats::new(reported));
            bucket.hits += requests.hits;
            bucket.misses += requests.misses;
            bucket.idle_buffers += idle;
            bucket.idle_bytes += idle * class;
        };
        for (class, requests, idle) in self.buckets.counts() {
            add(class, requests, idle);
        }
        let mut in_magazines = InMagazines { requested: self.accounts.requested, ..InMagazines::default() };
        for tally in &self.tallies {
            let last = tally.hot_lent();
            for (number, list) in tally.used_lists() {
                // A block that moves between two threads may be counted in both.
                let unseen = (self.accounts.now.out - in_magazines.bytes) / list.class();
                let out = u64::from(last.is_some_and(|(list, _)| list == number));
                let idle = list
                    .idle()
                    .saturating_sub(out)
                    .min(unseen)
                    .min(self.counters.live_buffers - in_magazines.buffers);
                add(list.class(), Requests { hits: list.hits(), misses: 0 }, idle);
                in_magazines.buffers += idle;
                in_magazines.bytes += idle * list.class();
            }
            in_magazines.requested = in_magazines.requested.wrapping_add(tally.requested().sum());
            in_magazines.requested =
                in_magazines.requested.wrapping_add(last.map_or(0, |(_, requested)| requested));
        }
        in_magazines.requested = positive(in_magazines.requested);
        PoolStats::new(&self.accounts, &self.counters, &in_magazines, buckets.into_values().collect())
    }
}
