//! Reads the statistics of a pool and of its depot.

use crate::cache::accounts::positive;
use crate::cache::buckets::Requests;
use crate::cache::core::PoolCore;
use crate::cache::counts::{Counters, InMagazines};
use crate::cache::depot::Depot;
use crate::cache::magazine;
use crate::cache::stats::PoolStats;
use crate::cache::stats::groups::BucketStats;
use std::collections::BTreeMap;

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

impl PoolCore {
    /// Returns statistics, and the highest end of a block in an arena of fixed size. Peaks include all
    /// requests of this thread, and those that other threads have settled.
    pub(crate) fn stats(&self) -> (PoolStats, u64) {
        magazine::inspect(self, |rack| {
            let mut depot = self.depot();
            rack.into_iter().for_each(|rack| depot.settle(rack));
            (depot.stats(), depot.accounts.peak_end)
        })
    }

    /// Restarts the peaks; `end` is the end of the highest block in an arena of fixed size.
    pub(crate) fn reset_peaks(&self, end: u64) {
        magazine::inspect(self, |rack| {
            let mut depot = self.depot();
            rack.into_iter().for_each(|rack| depot.settle(rack));
            depot.accounts.reset_peaks(end);
        });
    }

    /// Returns idle bytes, as of all requests of this thread and those that other threads have settled.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.depot().accounts.now.cached
    }

    pub(crate) fn count_failure(&self, counter: impl FnOnce(&mut Counters) -> &mut u64) {
        let mut depot = self.depot();
        *counter(&mut depot.counters) += 1;
    }

    #[inline]
    pub(crate) fn count_waits(&self, waits: u64) {
        if waits > 0 {
            self.depot().counters.stream_waits += waits;
        }
    }
}
