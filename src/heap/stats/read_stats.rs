//! Reads the statistics of a pool and of its depot.

use crate::heap::core::{DepotGuard, PoolCore};
use crate::heap::ledger::accounts::positive;
use crate::heap::magazine;
use crate::heap::stats::counts::{BytesNow, InMagazines};
use crate::heap::stats::table::{BucketStats, PoolStats};
use crate::heap::store::buckets::Requests;
use crate::heap::store::depot::Depot;
use std::collections::BTreeMap;
use std::mem;
use vrampool_backend::{Backend, fork};

impl Depot {
    /// Returns the pool's statistics, consistent except for concurrent changes in threads' magazines.
    fn stats(&mut self) -> PoolStats {
        let mut buckets: BTreeMap<u64, BucketStats> = BTreeMap::new();
        let mut add = |class: u64, requests: Requests, idle: u64| {
            let reported = self.buckets.classes.reported(class);
            let bucket = buckets
                .entry(reported)
                .or_insert_with(|| BucketStats { class: reported, ..BucketStats::default() });
            bucket.hits += requests.hits;
            bucket.misses += requests.misses;
            bucket.idle_buffers += idle;
            bucket.idle_bytes += idle * class;
        };
        for (class, requests, idle) in self.buckets.counts() {
            add(class, requests, idle);
        }
        let in_magazines =
            self.in_magazines(|class, hits, idle| add(class, Requests { hits, misses: 0 }, idle));
        let buckets = buckets.into_values().collect();
        PoolStats::new(self, &in_magazines, buckets)
    }

    /// The pool's bytes, without the cost of its statistics.
    pub(crate) fn bytes_now(&self) -> BytesNow {
        self.in_magazines(|_, _, _| {}).bytes_now(&self.accounts)
    }

    /// Totals of threads' magazines. Calls `visit` with the class, hits and idle buffers of each used bin.
    fn in_magazines(&self, mut visit: impl FnMut(u64, u64, u64)) -> InMagazines {
        let mut all = InMagazines { requested: self.accounts.requested, ..InMagazines::default() };
        for counters in &self.threads.counters {
            for (_, bin) in counters.used_bins() {
                // A block that moves between two threads may be counted in both.
                let unseen = (self.accounts.now.out - all.bytes) / bin.class();
                let idle = bin.idle().min(unseen).min(self.counters.live_buffers - all.buffers);
                visit(bin.class(), bin.hits(), idle);
                all.buffers += idle;
                all.bytes += idle * bin.class();
            }
            all.requested = all.requested.wrapping_add(counters.requested().sum());
        }
        all.requested = positive(all.requested);
        all
    }
}

impl PoolCore {
    /// Returns the pool's statistics, with the counts of its dropped children. Peaks include all requests of this
    /// thread, and those that other threads have reported.
    pub(crate) fn stats(&self) -> PoolStats {
        let mut depot = self.depot();
        magazine::apply_delta(self, &mut depot);
        self.complete(depot)
    }

    fn complete(&self, mut depot: DepotGuard) -> PoolStats {
        depot.accounts.note_needed();
        let (stats, peak_end) = (depot.stats(), depot.accounts.peak_end);
        drop(depot);
        self.supply.complete(stats, peak_end).after(&self.dropped_children.lock())
    }

    /// Restarts the peaks; `end` is the end of the highest block in an arena of fixed size.
    pub(crate) fn reset_peaks(&self, end: u64) {
        let mut depot = self.depot();
        magazine::apply_delta(self, &mut depot);
        depot.accounts.reset_peaks(end);
    }

    /// Returns the idle bytes of the depot, without magazines, as of all requests of this thread and those that other
    /// threads have reported.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.depot().accounts.now.cached
    }

    /// Returns the statistics of the pool and those below it.
    pub(crate) fn stats_below<B: Backend>(&self) -> PoolStats {
        let below = self.descendants();
        below.iter().fold(self.own_stats::<B>(), |sum, child| sum.and(&child.own_stats::<B>()))
    }

    /// The statistics of the pool and its dropped children.
    pub(crate) fn own_stats<B: Backend>(&self) -> PoolStats {
        self.poll_in_flight::<B>();
        self.stats()
    }
}

impl Drop for PoolCore {
    /// Adds the counts to those of the pool above.
    fn drop(&mut self) {
        if let Some(parent) = self.parent.as_ref().filter(|_| !fork::is_forked()) {
            let stats = self.complete(self.depot());
            let mut dropped = parent.dropped_children.lock();
            *dropped = mem::take(&mut *dropped).after(&stats);
        }
    }
}
