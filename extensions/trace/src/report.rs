//! Measurements of a replay.

use std::time::Duration;

/// One replay of a whole trace. Bytes are the pool's.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[must_use]
pub struct Pass {
    /// Number of the pass, from 0.
    pub index: u32,
    /// Allocations and frees.
    pub ops: u64,
    /// The time that they took.
    pub elapsed: Duration,
    /// The most bytes asked for that were live at once, before rounding.
    pub peak_requested_bytes: u64,
    /// The same after rounding to size classes.
    pub peak_live_bytes: u64,
    /// The most bytes taken from the source, live and idle.
    pub peak_held_bytes: u64,
    /// The smallest limit that the source would have needed
    /// ([`Peaks::limit_bytes`](vrampool::stats::Peaks::limit_bytes)).
    pub peak_reserved_bytes: u64,
    /// The highest needed bytes, live and in flight
    /// ([`Peaks::needed_bytes`](vrampool::stats::Peaks::needed_bytes)).
    pub peak_needed_bytes: u64,
    /// The share of allocations that made no driver call, 0 to 1
    /// ([`PoolStats::hit_rate`](vrampool::PoolStats::hit_rate)).
    pub hit_rate: f64,
    /// The share of allocations that buckets served, 0 to 1
    /// ([`PoolStats::bucket_hit_rate`](vrampool::PoolStats::bucket_hit_rate)).
    pub bucket_hit_rate: f64,
    /// Calls of the driver, as [`PoolStats::driver_calls`](vrampool::PoolStats::driver_calls) counts them.
    pub driver_calls: u64,
    /// Time in driver calls of a virtual source.
    pub mapping_time: Duration,
    /// Waits that the pool inserted between streams.
    pub stream_waits: u64,
    /// The part of them for memory that another stream used before
    /// ([`PoolStats::reuse_waits`](vrampool::PoolStats::reuse_waits)).
    pub reuse_waits: u64,
    /// Bytes that were not as they had been written when they were freed. `None` when none were written.
    pub corrupt_bytes: Option<u64>,
}

impl Pass {
    /// Whether it is the run's first, which finds in the pool what was there before the run; later ones find
    /// what the pool kept of the pass before them.
    #[must_use]
    pub fn is_cold(&self) -> bool {
        self.index == 0
    }

    /// The mean time of an operation, nanoseconds. 0.0 without ops.
    #[must_use]
    pub fn ns_per_op(&self) -> f64 {
        if self.ops == 0 {
            return 0.0;
        }
        self.elapsed.as_nanos() as f64 / self.ops as f64
    }
}
