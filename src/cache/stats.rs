//! Statistics of a pool.

use crate::arena::DeviceArena;
use crate::cache::accounts::Accounts;
use crate::cache::counts::{Counters, InMagazines};
use crate::cache::oom_rung::Rung;
use crate::cache::served_by::ServedBy;
use crate::environment::as_limit;
use crate::source::Source;
use std::time::Duration;
use vrampool_backend::Backend;

/// Counts and bytes of a pool. Counts start when the pool is created; sizes are in bytes.
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
#[must_use]
pub struct PoolStats {
    /// Requests served from a bucket.
    pub hits: u64,
    /// Requests not served from a bucket, including failed ones except invalid requests (`failed_invalid`).
    pub misses: u64,
    /// Misses served by an arena from reserved memory, without a driver call.
    pub served_by_arena: u64,
    /// Misses served with a driver call. Failed requests count neither here nor in `served_by_arena`.
    pub served_by_driver: u64,
    /// Requested bytes of live buffers, before rounding.
    pub requested_bytes: u64,
    /// Bytes of live buffers, rounded to their classes.
    pub live_bytes: u64,
    /// Bytes idle in buckets.
    pub idle_bytes: u64,
    /// Live and idle bytes.
    pub held_bytes: u64,
    /// Bytes reserved for pending requests to the source, and bytes being released to it. They count against
    /// `limit` and `budget`, together with `held_bytes`.
    pub in_transit_bytes: u64,
    /// The source that serves misses.
    pub source: Source,
    /// Bytes that the source took from the device.
    ///
    /// * Direct or the driver's pool: `held_bytes`.
    /// * An arena: its whole region. A virtual source: its physical bytes.
    ///
    /// Never above `limit` if the arena is the pool's own. Buffers of another kind of memory than the arena's
    /// are not included. Each pool over a shared arena reports all bytes of that arena.
    pub reserved_bytes: u64,
    /// Total bytes taken from the source, never reduced.
    pub allocated_bytes: u64,
    /// The highest `requested_bytes` since creation or since the peaks were reset. The same applies to the
    /// other peaks.
    pub peak_requested_bytes: u64,
    /// The highest `live_bytes`.
    pub peak_live_bytes: u64,
    /// An upper bound of `idle_bytes`: a block counts as idle if a magazine has a slot for it.
    pub peak_idle_bytes: u64,
    /// The highest `held_bytes`.
    pub peak_held_bytes: u64,
    /// The highest `reserved_bytes`, whatever made it grow: requests of this pool, other pools of a shared
    /// arena, or a wake.
    pub peak_reserved_bytes: u64,
    /// The most bytes that the source needed. For an arena of fixed size: the highest end of a live block,
    /// which is the size that would have sufficed. For other sources: `peak_reserved_bytes`.
    pub peak_needed_bytes: u64,
    /// The cap on `idle_bytes`; `None` if there is none.
    pub max_cached_bytes: Option<u64>,
    /// The cap on buffers in one bucket; `None` if there is none.
    pub max_buffers_per_bucket: Option<u64>,
    /// The hard cap on the sum of `held_bytes` and `in_transit_bytes`; `None` if there is none.
    pub limit: Option<u64>,
    /// The soft cap on the same sum; `None` if there is none.
    pub budget: Option<u64>,
    /// Live buffers.
    pub live_buffers: u64,
    /// Allocations by the source.
    pub source_allocations: u64,
    /// Allocations released by the source.
    pub source_frees: u64,
    /// Buffers not kept because `max_cached_bytes` was reached.
    pub drops_over_bytes: u64,
    /// Buffers not kept because `max_buffers_per_bucket` was reached.
    pub drops_over_count: u64,
    /// Idle buffers released to make room, or by trimming.
    pub evictions: u64,
    /// Waits that the pool inserted between streams.
    pub stream_waits: u64,
    /// Device calls of a virtual source to create, map, unmap and release memory.
    pub mapping_calls: u64,
    /// Time of these calls.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "mapping_nanoseconds", serialize_with = "crate::serialize::nanoseconds")
    )]
    pub mapping_time: Duration,
    /// Mappings of a virtual source's physical memory: each piece counts as often as it is mapped.
    pub mappings: u64,
    /// Stitched ranges of a virtual source.
    pub stitched_ranges: u64,
    /// Bytes of addresses reserved by an arena or a virtual source.
    pub address_bytes: u64,
    /// Requests that failed because of the pool's limit.
    pub failed_by_limit: u64,
    /// Requests that failed because the device was out of memory.
    pub failed_by_device: u64,
    /// Requests that failed because of another error of the device.
    pub failed_by_backend: u64,
    /// Invalid requests: no matching size class, or a stream of another device.
    pub failed_invalid: u64,
    #[cfg_attr(feature = "serde", serde(serialize_with = "by_name"))]
    rungs: [u64; Rung::ALL.len()],
    /// Each size class that was ever requested, by size. Multiples and exact classes are grouped by powers of
    /// two.
    pub buckets: Vec<BucketStats>,
}

/// Statistics of one size class, all kinds of memory together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct BucketStats {
    /// The class, bytes.
    pub class: u64,
    /// Requests served from it (or from the next two, in geometric classes).
    pub hits: u64,
    /// Requests of this class not served from a bucket.
    pub misses: u64,
    /// Idle buffers.
    pub idle_buffers: u64,
    /// Bytes of idle buffers.
    pub idle_bytes: u64,
}

impl BucketStats {
    pub(crate) fn new(class: u64) -> Self {
        Self { class, hits: 0, misses: 0, idle_buffers: 0, idle_bytes: 0 }
    }
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
        Self {
            hits: buckets.iter().map(|bucket| bucket.hits).sum(),
            misses: buckets.iter().map(|bucket| bucket.misses).sum(),
            served_by_arena: counters.source_allocations - counters.served_by_driver,
            served_by_driver: counters.served_by_driver,
            requested_bytes: requested,
            live_bytes: live,
            idle_bytes: accounts.now.cached + in_magazines.bytes,
            held_bytes: held,
            in_transit_bytes: accounts.now.charged - held,
            source: Source::Direct,
            reserved_bytes: held,
            allocated_bytes: accounts.allocated,
            peak_requested_bytes: accounts.peak.requested.max(requested),
            peak_live_bytes: accounts.peak.live.max(live),
            peak_idle_bytes: accounts.peak.cached,
            peak_held_bytes: accounts.peak.held,
            peak_reserved_bytes: accounts.peak.held,
            peak_needed_bytes: accounts.peak.held,
            max_cached_bytes: as_limit(accounts.caps.max_cached_bytes),
            max_buffers_per_bucket: as_limit(accounts.caps.max_buffers_per_bucket),
            limit: as_limit(accounts.caps.limit),
            budget: as_limit(accounts.caps.budget),
            live_buffers: counters.live_buffers - in_magazines.buffers,
            source_allocations: counters.source_allocations,
            source_frees: counters.source_frees,
            drops_over_bytes: counters.drops_over_bytes,
            drops_over_count: counters.drops_over_count,
            evictions: counters.evictions,
            stream_waits: counters.stream_waits,
            mapping_calls: 0,
            mapping_time: Duration::ZERO,
            mappings: 0,
            stitched_ranges: 0,
            address_bytes: 0,
            failed_by_limit: counters.failed_by_limit,
            failed_by_device: counters.failed_by_device,
            failed_by_backend: counters.failed_by_backend,
            failed_invalid: counters.failed_invalid,
            rungs: counters.rungs,
            buckets,
        }
    }

    /// Sets the fields that differ for a driver's pool.
    pub(crate) fn with_driver_pool(self) -> Self {
        Self { source: Source::Driver, ..self }
    }

    /// Sets the fields that differ for an arena; the peaks are its reserved bytes, and the highest end of a
    /// block if its size is fixed.
    pub(crate) fn with_arena<B: Backend>(
        mut self,
        source: Source,
        arena: &DeviceArena<B>,
        (peak_reserved, peak_end): (u64, u64),
    ) -> Self {
        self.source = source;
        self.reserved_bytes = arena.reserved_bytes();
        self.peak_reserved_bytes = peak_reserved.max(self.reserved_bytes);
        self.peak_needed_bytes = if arena.is_growing() { self.peak_reserved_bytes } else { peak_end };
        self.stream_waits += arena.stream_waits();
        let of_mapping = arena.mapping_calls();
        self.mapping_calls = of_mapping.calls;
        (self.mappings, self.stitched_ranges) = (arena.mappings(), arena.stitched_ranges());
        self.address_bytes = arena.address_bytes();
        self.mapping_time = of_mapping.time;
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
            ServedBy::Arena => self.served_by_arena,
            ServedBy::Driver => self.served_by_driver,
        }
    }

    /// Returns the share of served requests without a driver call, 0 to 1; 0.0 if none was served.
    ///
    /// The alerts use this rate, because a virtual source serves large classes without a bucket and without
    /// the driver.
    #[must_use]
    pub fn driverless_rate(&self) -> f64 {
        ratio(self.hits + self.served_by_arena, self.hits + self.served_by_arena + self.served_by_driver)
    }

    /// Returns the number of driver calls for memory.
    ///
    /// * A direct source, or the driver's pool: allocations and frees.
    /// * An arena of fixed size: requests for another kind of memory than the arena's.
    /// * A virtual source: mapping calls.
    #[must_use]
    pub fn memory_calls(&self) -> u64 {
        match self.source {
            Source::Direct | Source::Driver => self.source_allocations + self.source_frees,
            Source::Arena => self.served_by_driver,
            Source::Virtual => self.mapping_calls,
        }
    }

    /// Returns the number of driver calls so far: [`memory_calls`](Self::memory_calls), plus an event and a
    /// wait for each wait between streams.
    ///
    /// Not included are calls that query the progress of streams when memory of an arena is freed. Waits are
    /// not counted for a virtual source: they are a cost of sharing memory between streams, not of mapping.
    #[must_use]
    pub fn driver_calls(&self) -> u64 {
        match self.source {
            Source::Virtual => self.memory_calls(),
            _ => self.memory_calls() + 2 * self.stream_waits,
        }
    }

    /// Returns these statistics with counts that continue those of an earlier pool.
    #[cfg(feature = "metrics")]
    pub(crate) fn counting_on(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        for (count, more) in [
            (&mut sum.hits, before.hits),
            (&mut sum.misses, before.misses),
            (&mut sum.served_by_arena, before.served_by_arena),
            (&mut sum.served_by_driver, before.served_by_driver),
            (&mut sum.allocated_bytes, before.allocated_bytes),
            (&mut sum.source_allocations, before.source_allocations),
            (&mut sum.source_frees, before.source_frees),
            (&mut sum.drops_over_bytes, before.drops_over_bytes),
            (&mut sum.drops_over_count, before.drops_over_count),
            (&mut sum.evictions, before.evictions),
            (&mut sum.stream_waits, before.stream_waits),
            (&mut sum.mapping_calls, before.mapping_calls),
            (&mut sum.failed_by_limit, before.failed_by_limit),
            (&mut sum.failed_by_device, before.failed_by_device),
            (&mut sum.failed_by_backend, before.failed_by_backend),
            (&mut sum.failed_invalid, before.failed_invalid),
        ] {
            *count = count.saturating_add(more);
        }
        sum.mapping_time = sum.mapping_time.saturating_add(before.mapping_time);
        for (count, more) in sum.rungs.iter_mut().zip(before.rungs) {
            *count = count.saturating_add(more);
        }
        for earlier in &before.buckets {
            match sum.buckets.iter_mut().find(|bucket| bucket.class == earlier.class) {
                Some(bucket) => {
                    bucket.hits += earlier.hits;
                    bucket.misses += earlier.misses;
                }
                None => {
                    sum.buckets.push(BucketStats {
                        hits: earlier.hits,
                        misses: earlier.misses,
                        ..BucketStats::new(earlier.class)
                    });
                }
            }
        }
        sum
    }
}

#[cfg(feature = "serde")]
fn by_name<S: serde::Serializer>(rungs: &[u64; Rung::ALL.len()], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(Rung::ALL.iter().zip(rungs).map(|(rung, count)| (rung.name(), count)))
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
        assert_eq!(later.in_transit_bytes, 0);
    }
}
