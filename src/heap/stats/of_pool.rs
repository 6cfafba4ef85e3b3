//! The figures of one pool: reads its statistics, and counts what happens beside the paths of requests and frees, such
//! as failures, errors of the device, waits and times.

use crate::error::Error;
use crate::heap::ledger::positive;
use crate::heap::pool_order::PoolOrder;
use crate::heap::stats::outcomes::{DeviceCall, Reason};
use crate::heap::stats::table::PoolStats;
use crate::heap::stats::{BytesNow, InMagazines};
use crate::heap::{Depot, DepotGuard, PoolCore, Requests, magazine};
use crate::sync::{Instant, unix_seconds};
use std::sync::atomic::Ordering::Relaxed;
use std::{fmt, mem};
use vrampool_backend::{Backend, BackendError, fork};

impl Depot {
    /// Returns the pool's statistics, consistent except for concurrent changes in threads' magazines.
    fn stats(&self) -> PoolStats {
        let mut counts = self.counters.clone();
        let mut add = |class: u64, requests: Requests, idle: u64| {
            let bucket = counts.bucket(self.buckets.classes.reported(class));
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
        PoolStats::of(self, &in_magazines, counts)
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

impl fmt::Debug for Depot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Depot")
            .field("life", &self.life)
            .field("stats", &self.stats())
            .finish_non_exhaustive()
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
        PoolOrder::<B>::of(self).poll_in_flight();
        self.stats()
    }

    pub(crate) fn count_failure(&self, reason: Reason) {
        let now = unix_seconds();
        let counters = &mut self.depot().counters;
        counters.failed.add(&mut counters.last_failure, reason, now);
    }

    /// Counts a request that failed because of the device, of a capture or of the pool's state.
    pub(crate) fn count_refusal(&self, error: &Error) {
        match error {
            // Requests of a pool that is asleep have no count: nothing failed.
            Error::Asleep { .. } => {}
            Error::Closed => self.count_failure(Reason::Closed),
            _ => {
                self.note_device_error(DeviceCall::Allocate, error);
                self.count_failure(Reason::Backend);
            }
        }
    }

    /// Counts an error if the device reported it.
    #[cold]
    pub(crate) fn note_device_error(&self, call: DeviceCall, error: &Error) {
        if let Some(error) = error.backend().filter(|error| is_failure(error)) {
            self.is_device_lost.fetch_or(error.is_device_lost(), Relaxed);
            self.depot().counters.device_errors.add(call);
        }
    }

    /// Counts the time of a request that began at `began`.
    pub(crate) fn count_time(&self, began: Instant) {
        let time = began.elapsed();
        self.depot().counters.allocation.add(time);
    }

    #[inline]
    pub(crate) fn count_waits(&self, waits: u64) {
        if waits > 0 {
            self.depot().counters.stream_waits += waits;
        }
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

/// Whether the device reported it, rather than a check of arguments.
fn is_failure(error: &BackendError) -> bool {
    error.is_stream_failed() || matches!(error, BackendError::Driver { .. })
}
