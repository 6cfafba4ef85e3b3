//! Counters of a depot, and the statistics made of them.

use crate::cache::accounts::positive;
use crate::cache::buckets::Requests;
use crate::cache::depot::Depot;
use crate::cache::oom_rung::Rung;
use crate::cache::stats::{BucketStats, PoolStats};
use std::collections::BTreeMap;

/// Counts since the pool was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Out of the depot: lent, or idle in a magazine. What one way counts up and another down is not next to
    /// what else these count, for the reason that
    /// [`Accounts::requested`](crate::cache::accounts::Accounts::requested) is not.
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

/// What is idle in threads' magazines, and what was asked for by all that is not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InMagazines {
    pub(crate) buffers: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
}

impl Depot {
    /// What a pool can tell of itself, all of one moment but for what threads' magazines do meanwhile.
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
                // A block on its way between two threads may be seen in both.
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
