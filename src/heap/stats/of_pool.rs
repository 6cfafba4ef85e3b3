//! The figures of one pool: reads its statistics, and counts what happens beside the paths of requests and frees, such
//! as failures, errors of the device, waits and times.

use crate::error::Error;
use crate::heap::ledger::positive;
use crate::heap::pool_order::poll_in_flight;
use crate::heap::stats::MemoryNow;
use crate::heap::stats::outcomes::{DeviceCall, Reason};
use crate::heap::stats::table::PoolStats;
use crate::heap::{Accounts, Depot, DepotGuard, PoolCore, Requests, magazine};
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
        let now = self.visit_magazines(|class, hits, idle| add(class, Requests { hits, misses: 0 }, idle));
        PoolStats::of(self, now, counts)
    }

    /// The pool's memory, without the cost of its statistics.
    pub(crate) fn memory_now(&self) -> MemoryNow {
        self.visit_magazines(|_, _, _| {})
    }

    /// As [`memory_now`](Self::memory_now). Calls `visit` with the class, hits and idle buffers of each used bin of
    /// threads' magazines.
    fn visit_magazines(&self, mut visit: impl FnMut(u64, u64, u64)) -> MemoryNow {
        let Accounts { now, mut requested, .. } = self.accounts;
        let (mut buffers, mut live) = (self.counters.live_buffers, now.out);
        for counters in &self.threads.counters {
            for (_, bin) in counters.used_bins() {
                // A block that moves between two threads may be counted in both.
                let idle = bin.idle().min(live / bin.class()).min(buffers);
                visit(bin.class(), bin.hits(), idle);
                buffers -= idle;
                live -= idle * bin.class();
            }
            requested = requested.wrapping_add(counters.requested().sum());
        }
        MemoryNow { buffers, live, requested: positive(requested).min(live), idle: now.held() - live }
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
        poll_in_flight::<B>(self);
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
    /// Adds the counts to those of the pool above, and leaves the lock.
    fn drop(&mut self) {
        if let Some(parent) = self.parent.as_ref().filter(|_| !fork::is_forked()) {
            let stats = self.complete(self.depot());
            let mut dropped = parent.dropped_children.lock();
            *dropped = mem::take(&mut *dropped).after(&stats);
        }
        self.lock.end_pool();
    }
}

/// Whether the device reported it, rather than a check of arguments.
fn is_failure(error: &BackendError) -> bool {
    error.is_stream_failed() || matches!(error, BackendError::Driver { .. })
}
