//! Statistics of a pool: `groups`, `text`, serialized names, and counts that continue over pools of one name.

pub(crate) mod groups;
#[cfg(feature = "serde")]
mod serialize;
#[cfg(feature = "metrics")]
mod sum;
mod text;

use crate::arena::{ArenaCounts, DeviceArena};
use crate::cache::accounts::Accounts;
use crate::cache::counts::{Counters, InMagazines};
use crate::cache::oom_rung::Rung;
use crate::cache::served_by::ServedBy;
use crate::source::Source;
use groups::{BucketStats, Caps, Failures, Peaks, Releases, SourceStats, VirtualMemoryStats};
use vrampool_backend::Backend;

/// Counts and bytes of a pool, in [groups](crate::stats). Counts start when the pool is created; sizes are in
/// bytes.
///
/// With the feature `serde` they are one flat record, without groups.
///
/// The values are one consistent snapshot, with these exceptions:
///
/// * Values of an arena below the pool are read separately.
/// * A buffer that another thread concurrently takes from or puts in its magazines counts as idle or as live.
///   The counts never exceed the caps.
/// * Peaks of live and requested bytes are exact for this thread. Loans from other threads' magazines are
///   included when those threads next use the shared buckets.
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// # let pool = Pool::builder(&device).build()?;
/// drop(pool.allocate(1000, &stream)?);
/// drop(pool.allocate(1000, &stream)?);
/// let stats = pool.stats();
/// assert_eq!((stats.hits, stats.misses, stats.hit_rate()), (1, 1, 0.5));
/// assert_eq!((stats.idle_bytes, stats.live_bytes), (1024, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub struct PoolStats {
    /// Requests served from a bucket.
    pub hits: u64,
    /// Requests not served from a bucket, including failed ones except invalid requests (`failed.invalid`).
    pub misses: u64,
    /// Live buffers.
    pub live_buffers: u64,
    /// Requested bytes of live buffers, before rounding.
    pub requested_bytes: u64,
    /// Bytes of live buffers, rounded to their classes.
    pub live_bytes: u64,
    /// Bytes idle in buckets.
    pub idle_bytes: u64,
    /// Live and idle bytes.
    pub held_bytes: u64,
    /// Waits that the pool inserted between streams.
    pub stream_waits: u64,
    /// The source, which serves misses.
    pub source: SourceStats,
    /// Virtual memory of the source.
    pub virtual_memory: VirtualMemoryStats,
    /// The highest values of bytes.
    pub peak: Peaks,
    /// The caps.
    pub caps: Caps,
    /// Buffers released to the source.
    pub released: Releases,
    /// Requests that failed.
    pub failed: Failures,
    rungs: [u64; Rung::ALL.len()],
    /// Each size class that was ever requested, by size. Multiples and exact classes are grouped by powers of
    /// two.
    pub buckets: Vec<BucketStats>,
}

impl PoolStats {
    /// Creates the statistics of a pool whose source is direct.
    pub(crate) fn new(
        accounts: &Accounts,
        counters: &Counters,
        in_magazines: &InMagazines,
        buckets: Vec<BucketStats>,
    ) -> Self {
        let live = accounts.now.out - in_magazines.bytes;
        let requested = in_magazines.requested.min(live);
        let held = accounts.now.held();
        let Counters {
            live_buffers,
            drops_over_count: by_bucket_cap,
            source_allocations: allocations,
            served_by_driver,
            drops_over_bytes: by_byte_cap,
            source_frees: frees,
            evictions: evicted,
            stream_waits,
            rungs,
            failed,
        } = *counters;
        Self {
            hits: buckets.iter().map(|bucket| bucket.hits).sum(),
            misses: buckets.iter().map(|bucket| bucket.misses).sum(),
            live_buffers: live_buffers - in_magazines.buffers,
            requested_bytes: requested,
            live_bytes: live,
            idle_bytes: accounts.now.cached + in_magazines.bytes,
            held_bytes: held,
            stream_waits,
            source: SourceStats {
                kind: Source::Direct,
                served_by_arena: allocations - served_by_driver,
                served_by_driver,
                allocations,
                frees,
                allocated_bytes: accounts.allocated,
                in_transit_bytes: accounts.now.charged - held,
                reserved_bytes: held,
            },
            virtual_memory: VirtualMemoryStats::default(),
            peak: Peaks {
                requested_bytes: accounts.peak.requested.max(requested),
                live_bytes: accounts.peak.live.max(live),
                idle_bytes: accounts.peak.cached,
                held_bytes: accounts.peak.held,
                reserved_bytes: accounts.peak.held,
                needed_bytes: accounts.peak.held,
            },
            caps: Caps::of(accounts),
            released: Releases { by_byte_cap, by_bucket_cap, evicted },
            failed,
            rungs,
            buckets,
        }
    }

    /// Sets the fields that differ for a driver's pool.
    pub(crate) fn with_driver_pool(mut self) -> Self {
        self.source.kind = Source::Driver;
        self
    }

    /// Sets the fields that differ for an arena. `counts` are the arena's since the pool was created; the
    /// peaks are its reserved bytes, and the highest end of a block if its size is fixed.
    pub(crate) fn with_arena<B: Backend>(
        mut self,
        source: Source,
        arena: &DeviceArena<B>,
        counts: ArenaCounts,
        (peak_reserved, peak_end): (u64, u64),
    ) -> Self {
        let reserved = arena.reserved_bytes();
        (self.source.kind, self.source.reserved_bytes) = (source, reserved);
        self.peak.reserved_bytes = peak_reserved.max(reserved);
        self.peak.needed_bytes = if arena.is_growing() { self.peak.reserved_bytes } else { peak_end };
        self.stream_waits += counts.stream_waits;
        self.virtual_memory = VirtualMemoryStats {
            calls: counts.mapping_calls,
            time: counts.mapping_time,
            mappings: arena.mappings(),
            stitched_ranges: arena.stitched_ranges(),
            address_bytes: arena.address_bytes(),
        };
        self
    }

    /// Returns hits over requests, 0 to 1; 0.0 without requests.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        ratio(self.hits, self.hits + self.misses)
    }

    /// Returns the share of live bytes that rounding added, 0 to 1; 0.0 without live bytes.
    #[must_use]
    pub fn internal_fragmentation(&self) -> f64 {
        ratio(self.live_bytes.saturating_sub(self.requested_bytes), self.live_bytes)
    }

    /// Returns the number of times that one rung of the ladder was reached.
    #[must_use]
    pub fn rung(&self, rung: Rung) -> u64 {
        self.rungs[rung as usize]
    }

    /// Returns the hit rate of requests after `earlier`, taken from the same pool; 0.0 without requests.
    #[must_use]
    pub fn hit_rate_since(&self, earlier: &Self) -> f64 {
        let (hits, misses) =
            (self.hits.saturating_sub(earlier.hits), self.misses.saturating_sub(earlier.misses));
        ratio(hits, hits + misses)
    }

    /// Returns the number of requests that one layer served.
    #[must_use]
    pub fn served_by(&self, layer: ServedBy) -> u64 {
        match layer {
            ServedBy::Cache => self.hits,
            ServedBy::Arena => self.source.served_by_arena,
            ServedBy::Driver => self.source.served_by_driver,
        }
    }

    /// Returns the share of served requests without a driver call, 0 to 1; 0.0 if none was served.
    ///
    /// The alerts use this rate, because a virtual source serves large classes without a bucket and without
    /// the driver.
    #[must_use]
    pub fn driverless_rate(&self) -> f64 {
        ratio(
            self.hits + self.source.served_by_arena,
            self.hits + self.source.served_by_arena + self.source.served_by_driver,
        )
    }

    /// Returns the number of driver calls for memory.
    ///
    /// * A direct source, or the driver's pool: allocations and frees.
    /// * An arena of fixed size: requests for another kind of memory than the arena's.
    /// * A virtual source: mapping calls.
    #[must_use]
    pub fn memory_calls(&self) -> u64 {
        match self.source.kind {
            Source::Direct | Source::Driver => self.source.allocations + self.source.frees,
            Source::Arena => self.source.served_by_driver,
            Source::Virtual => self.virtual_memory.calls,
        }
    }

    /// Returns the number of driver calls so far: [`memory_calls`](Self::memory_calls), plus an event and a
    /// wait for each wait between streams.
    ///
    /// Not included are calls that query the progress of streams when memory of an arena is freed. Waits are
    /// not counted for a virtual source: they are a cost of sharing memory between streams, not of mapping.
    #[must_use]
    pub fn driver_calls(&self) -> u64 {
        match self.source.kind {
            Source::Virtual => self.memory_calls(),
            _ => self.memory_calls() + 2 * self.stream_waits,
        }
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_in_the_wrong_order_are_no_panic() {
        let later = PoolStats { hits: 3, misses: 1, live_bytes: 7, ..PoolStats::default() };
        assert_eq!(PoolStats::default().hit_rate_since(&later), 0.0);
        assert_eq!(later.hit_rate_since(&PoolStats::default()), 0.75);
        assert_eq!(later.source.in_transit_bytes, 0);
    }
}
