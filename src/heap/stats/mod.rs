//! Statistics of a pool: the `table` of its figures, and their `text`. Counts are kept in a table under the lock;
//! `of_pool` adds to them and reads them, with the bytes of magazines.

mod of_pool;
mod outcomes;
mod table;
mod text;
pub(crate) mod times;

pub(crate) use outcomes::{DeviceCall, Reason};
pub use outcomes::{DeviceErrors, Failures, LastFailures};
pub use table::{
    BucketStats, Caps, Peaks, PoolStats, Releases, Rungs, Served, SourceStats, VirtualMemoryStats,
};

use crate::environment::as_limit;
use crate::figures::Group;
use crate::heap::Depot;
use crate::heap::arena::DeviceArena;
use crate::source::Source;
use vrampool_backend::Backend;

impl PoolStats {
    /// Completes the counts of a pool whose source is direct.
    fn of(depot: &Depot, now: MemoryNow, counts: Self) -> Self {
        let Depot { accounts, queue, .. } = depot;
        let MemoryNow { buffers, live, requested, idle } = now;
        let held = accounts.now.held();
        let in_flight = accounts.in_flight();
        let needed = live.saturating_add(in_flight);
        Self {
            live_buffers: buffers,
            requested_bytes: requested,
            live_bytes: live,
            idle_bytes: idle,
            held_bytes: held,
            in_flight_bytes: in_flight,
            needed_bytes: needed,
            reserved_bytes: held,
            in_transit_bytes: accounts.now.charged - held,
            waiting_requests: queue.deadlines,
            waiting_bytes: queue.waiting_bytes(),
            oldest_wait: queue.oldest_wait(),
            memory_calls: counts.source.allocations + counts.source.frees,
            source: SourceStats { allocated_bytes: accounts.allocated, ..counts.source },
            served: Served {
                by_bucket: counts.buckets.iter().map(|bucket| bucket.hits).sum(),
                by_arena: counts.source.allocations - counts.served.by_driver,
                ..counts.served
            },
            peak: Peaks {
                requested_bytes: accounts.peak.requested_bytes.max(requested),
                live_bytes: accounts.peak.live_bytes.max(live),
                needed_bytes: accounts.peak.needed_bytes.max(accounts.peak.live_bytes).max(needed),
                reserved_bytes: accounts.peak.held_bytes,
                limit_bytes: accounts.peak.held_bytes,
                ..accounts.peak
            },
            caps: Caps {
                max_cached_bytes: as_limit(accounts.caps.max_cached_bytes),
                max_buffers_per_bucket: as_limit(accounts.caps.max_buffers_per_bucket),
                limit_bytes: as_limit(accounts.caps.limit),
                budget_bytes: as_limit(accounts.caps.budget),
                overlap: accounts.caps.overlap,
            },
            ..counts
        }
    }

    /// Adds the figures of a pool below.
    fn and(mut self, child: &Self) -> Self {
        self.merge(child);
        child.buckets.iter().for_each(|more| self.bucket(more.class).merge(more));
        self
    }

    /// Adds the counts of a pool that was dropped.
    fn after(mut self, dropped: &Self) -> Self {
        self.count_on(dropped);
        dropped.buckets.iter().for_each(|more| self.bucket(more.class).count_on(more));
        self
    }

    fn bucket(&mut self, class: u64) -> &mut BucketStats {
        let at = self.buckets.binary_search_by_key(&class, |bucket| bucket.class).unwrap_or_else(|at| {
            self.buckets.insert(at, BucketStats { class, ..BucketStats::default() });
            at
        });
        &mut self.buckets[at]
    }

    /// Sets the fields that differ for an arena. `peak_end` is the highest end of a block if its size is fixed.
    pub(crate) fn with_arena<B: Backend>(mut self, arena: &DeviceArena<B>, peak_end: u64) -> Self {
        self.reserved_bytes = arena.reserved_bytes();
        self.peak.reserved_bytes = arena.reserved_peak().max(self.reserved_bytes);
        self.peak.limit_bytes = if arena.is_growing() { self.peak.reserved_bytes } else { peak_end };
        self.stream_waits += arena.stream_waits();
        // Another thread may have counted a wait of the arena in between.
        self.reuse_waits = (self.reuse_waits + arena.reuse_waits()).min(self.stream_waits);
        self.mapping = arena.mapping();
        self.memory_calls = if arena.is_growing() { self.mapping.calls } else { self.served.by_driver };
        let (arena_free_bytes, arena_largest_free_bytes) = arena.free_memory();
        self.virtual_memory = VirtualMemoryStats {
            mappings: arena.mappings(),
            stitched_ranges: arena.stitched_ranges(),
            arena_free_bytes,
            arena_largest_free_bytes,
            address_bytes: arena.address_bytes(),
        };
        self
    }

    /// Returns the share of served requests that made no driver call, 0 to 1; 0.0 if none was served.
    ///
    /// They were served from memory that the pool held: from a bucket, or by an arena.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        self.served.hit_rate()
    }

    /// Returns the share of served requests that buckets served, 0 to 1; 0.0 if none was served.
    ///
    /// Without an arena it is the [hit rate](Self::hit_rate). An arena serves the misses of the buckets, mostly
    /// without a driver call; over one, this rate shows whether the caps fit. A virtual source keeps only classes up
    /// to 512 KiB in buckets.
    #[must_use]
    pub fn bucket_hit_rate(&self) -> f64 {
        self.served.bucket_hit_rate()
    }

    /// Returns the share of live bytes that rounding added, 0 to 1; 0.0 without live bytes.
    #[must_use]
    pub fn internal_fragmentation(&self) -> f64 {
        ratio(self.live_bytes.saturating_sub(self.requested_bytes), self.live_bytes)
    }

    /// Returns the number of driver calls so far: `memory_calls`, plus an event and a wait for each wait between
    /// streams.
    ///
    /// Not included are calls that query the progress of streams when memory of an arena is freed. Waits are
    /// not counted for a virtual source: they are a cost of sharing memory between streams, not of mapping.
    #[must_use]
    pub fn driver_calls(&self) -> u64 {
        match self.source.kind {
            Source::Virtual => self.memory_calls,
            _ => self.memory_calls + 2 * self.stream_waits,
        }
    }
}

impl Served {
    /// Returns the number of requests served after `earlier`, taken from the same pool.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            by_bucket: self.by_bucket.saturating_sub(earlier.by_bucket),
            by_arena: self.by_arena.saturating_sub(earlier.by_arena),
            by_driver: self.by_driver.saturating_sub(earlier.by_driver),
        }
    }

    /// Returns the share of requests that made no driver call, as [`PoolStats::hit_rate`].
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        ratio(self.by_bucket.saturating_add(self.by_arena), self.total())
    }

    /// Returns the share of requests that buckets served, as [`PoolStats::bucket_hit_rate`].
    #[must_use]
    pub fn bucket_hit_rate(&self) -> f64 {
        ratio(self.by_bucket, self.total())
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Live and idle memory of a pool at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemoryNow {
    buffers: u64,
    pub(crate) live: u64,
    pub(crate) requested: u64,
    pub(crate) idle: u64,
}
