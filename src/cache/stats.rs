//! Statistics of a pool.

use crate::arena::DeviceArena;
use crate::cache::accounts::Accounts;
use crate::cache::counts::{Counters, InMagazines};
use crate::cache::oom_rung::Rung;
use crate::cache::served_by::ServedBy;
use crate::environment::UNLIMITED;
use crate::source::Source;
use vrampool_backend::Backend;

/// A pool's counts and bytes. Counts are since the pool was made; sizes in bytes.
///
/// All of one moment but for those of an arena below the pool, and for what other threads take from and put
/// in their magazines while they are read: a buffer then counts as idle or as live, never as more than the
/// caps allow. The peaks of what is live and requested are exact for what this thread did; what other
/// threads' magazines lent in between shows when these threads next come by the shared buckets.
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
/// assert_eq!((stats.bytes_cached, stats.bytes_live), (1024, 0));
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
    /// Requests not served from a bucket, failed ones included but for those that were wrong
    /// (`failed_invalid`).
    pub misses: u64,
    /// Misses served by an arena from memory that it had reserved before, without a call of the driver.
    pub served_by_arena: u64,
    /// Misses served by calling the driver. Failed requests count neither here nor in `served_by_arena`.
    pub served_by_driver: u64,
    /// Bytes asked for by the buffers that are live, before rounding.
    pub bytes_requested: u64,
    /// Bytes of the live buffers' classes.
    pub bytes_live: u64,
    /// Bytes idle in buckets.
    pub bytes_cached: u64,
    /// Bytes live and idle.
    pub bytes_held: u64,
    /// Bytes reserved for requests that the source has not served yet, and bytes that are being given back to
    /// it. They count against `limit` and `budget`, with `bytes_held`.
    pub bytes_in_transit: u64,
    /// What serves misses.
    pub source: Source,
    /// Bytes that the source took from the device: `bytes_held` when it is direct or the driver's pool; the
    /// whole region of an arena; the physical bytes of a virtual source. Never above `limit` where the arena
    /// is the pool's own. Not included are buffers of another kind of memory than the arena's. Each pool over
    /// a shared arena reports all of that arena.
    pub bytes_reserved: u64,
    /// Bytes taken from the source in all, never reduced.
    pub bytes_allocated: u64,
    /// The most `bytes_requested` ever was, or since the peaks were reset; the others alike.
    pub peak_requested: u64,
    /// The most `bytes_live` was.
    pub peak_live: u64,
    /// The most `bytes_cached` can have been: blocks for which a thread's magazines had a slot count as idle.
    pub peak_cached: u64,
    /// The most `bytes_held` was.
    pub peak_held: u64,
    /// The most `bytes_reserved` was, whatever made it grow: requests of this pool, others of a shared arena,
    /// a wake.
    pub peak_reserved: u64,
    /// The most bytes that the source needed: the highest end of a live block in an arena of fixed size,
    /// which is the size that would have sufficed; the same as `peak_reserved` for other sources.
    pub peak_needed: u64,
    /// The cap on `bytes_cached`; [`UNLIMITED`] when there is none.
    pub max_cached_bytes: u64,
    /// The cap on buffers in one bucket; [`UNLIMITED`] when there is none.
    pub max_buffers_per_bucket: u64,
    /// The hard cap on `bytes_held` and `bytes_in_transit` together; [`UNLIMITED`] when there is none.
    pub limit: u64,
    /// The soft cap on the same; [`UNLIMITED`] when there is none.
    pub budget: u64,
    /// Buffers handed out.
    pub live_buffers: u64,
    /// Allocations that the source made.
    pub source_allocations: u64,
    /// Allocations that the source gave back.
    pub source_frees: u64,
    /// Buffers not kept because `max_cached_bytes` was reached.
    pub drops_over_bytes: u64,
    /// Buffers not kept because `max_buffers_per_bucket` was reached.
    pub drops_over_count: u64,
    /// Idle buffers given back to make room, or by trimming.
    pub evictions: u64,
    /// Waits that the pool put between streams.
    pub stream_waits: u64,
    /// Calls of the device by which a virtual source created, mapped, unmapped and gave back memory.
    pub mapping_calls: u64,
    /// Their time, nanoseconds.
    pub mapping_nanoseconds: u64,
    /// Mappings of a virtual source's physical memory: its pieces, each as often as it is mapped.
    pub mappings: u64,
    /// Stitched ranges of a virtual source.
    pub stitched_ranges: u64,
    /// Bytes of addresses that an arena or a virtual source reserved.
    pub address_bytes: u64,
    /// Requests that failed by the pool's limit.
    pub failed_by_limit: u64,
    /// Requests that failed because the device was out of memory.
    pub failed_by_device: u64,
    /// Requests that failed because the device failed otherwise.
    pub failed_by_backend: u64,
    /// Requests that were wrong: no such size class, another device's stream.
    pub failed_invalid: u64,
    #[cfg_attr(feature = "serde", serde(serialize_with = "by_name"))]
    rungs: [u64; Rung::ALL.len()],
    /// Each size class that was ever asked for, by size. Multiples and exact classes are summed up by powers
    /// of two.
    pub buckets: Vec<BucketStats>,
}

/// One size class of a pool, all kinds of memory together.
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
    /// Buffers idle in it.
    pub idle_buffers: u64,
    /// Their bytes.
    pub idle_bytes: u64,
}

impl BucketStats {
    pub(crate) fn new(class: u64) -> Self {
        Self { class, hits: 0, misses: 0, idle_buffers: 0, idle_bytes: 0 }
    }
}

impl PoolStats {
    /// Of a pool whose source is direct.
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
            bytes_requested: requested,
            bytes_live: live,
            bytes_cached: accounts.now.cached + in_magazines.bytes,
            bytes_held: held,
            bytes_in_transit: accounts.now.charged - held,
            source: Source::Direct,
            bytes_reserved: held,
            bytes_allocated: accounts.allocated,
            peak_requested: accounts.peak.requested.max(requested),
            peak_live: accounts.peak.live.max(live),
            peak_cached: accounts.peak.cached,
            peak_held: accounts.peak.held,
            peak_reserved: accounts.peak.held,
            peak_needed: accounts.peak.held,
            max_cached_bytes: accounts.caps.max_cached_bytes,
            max_buffers_per_bucket: accounts.caps.max_buffers_per_bucket,
            limit: accounts.caps.limit,
            budget: accounts.caps.budget,
            live_buffers: counters.live_buffers - in_magazines.buffers,
            source_allocations: counters.source_allocations,
            source_frees: counters.source_frees,
            drops_over_bytes: counters.drops_over_bytes,
            drops_over_count: counters.drops_over_count,
            evictions: counters.evictions,
            stream_waits: counters.stream_waits,
            mapping_calls: 0,
            mapping_nanoseconds: 0,
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

    /// What is different with a driver's pool.
    pub(crate) fn with_driver_pool(self) -> Self {
        Self { source: Source::Driver, ..self }
    }

    /// The same with an arena, of the most that it reserved, and the highest end of a block if its size is
    /// fixed.
    pub(crate) fn with_arena<B: Backend>(
        mut self,
        source: Source,
        arena: &DeviceArena<B>,
        (peak_reserved, peak_end): (u64, u64),
    ) -> Self {
        self.source = source;
        self.bytes_reserved = arena.reserved_bytes();
        self.peak_reserved = peak_reserved.max(self.bytes_reserved);
        self.peak_needed = if arena.is_growing() { self.peak_reserved } else { peak_end };
        self.stream_waits += arena.stream_waits();
        let (calls, time) = arena.mapping_calls();
        self.mapping_calls = calls;
        (self.mappings, self.stitched_ranges) = (arena.mappings(), arena.stitched_ranges());
        self.address_bytes = arena.address_bytes();
        self.mapping_nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Hits over requests, 0 to 1; 0.0 when nothing was asked for.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        ratio(self.hits, self.hits + self.misses)
    }

    /// The share of live bytes that rounding added, 0 to 1; 0.0 when nothing is live.
    #[must_use]
    pub fn internal_fragmentation(&self) -> f64 {
        ratio(self.bytes_live.saturating_sub(self.bytes_requested), self.bytes_live)
    }

    /// How often one rung of the ladder was climbed.
    #[must_use]
    pub fn rung(&self, rung: Rung) -> u64 {
        self.rungs[rung as usize]
    }

    /// The hit rate of the requests made after `earlier` was taken from the same pool; 0.0 when there were
    /// none.
    #[must_use]
    pub fn hit_rate_since(&self, earlier: &Self) -> f64 {
        let (hits, misses) =
            (self.hits.saturating_sub(earlier.hits), self.misses.saturating_sub(earlier.misses));
        ratio(hits, hits + misses)
    }

    /// The number of requests that one layer served.
    #[must_use]
    pub fn served_by(&self, layer: ServedBy) -> u64 {
        match layer {
            ServedBy::Cache => self.hits,
            ServedBy::Arena => self.served_by_arena,
            ServedBy::Driver => self.served_by_driver,
        }
    }

    /// The share of served requests that made no call of the driver, 0 to 1; 0.0 when none was served. The
    /// hit rate that the alerts use: a virtual source serves large classes without a bucket and without the
    /// driver.
    #[must_use]
    pub fn driverless_rate(&self) -> f64 {
        ratio(self.hits + self.served_by_arena, self.hits + self.served_by_arena + self.served_by_driver)
    }

    /// Calls of the driver for memory: allocations and frees of a direct source and of the driver's pool,
    /// mapping calls of a virtual source, and requests for another kind of memory than that of an arena of
    /// fixed size.
    #[must_use]
    pub fn memory_calls(&self) -> u64 {
        match self.source {
            Source::Direct | Source::Driver => self.source_allocations + self.source_frees,
            Source::Arena => self.served_by_driver,
            Source::Virtual => self.mapping_calls,
        }
    }

    /// Calls of the driver that the pool made so far: [`memory_calls`](Self::memory_calls), and an event and
    /// a wait for each wait between streams; not the calls that find how far streams were when memory of an
    /// arena was freed. Waits are not counted where the source is virtual: they are the cost of sharing
    /// memory between streams, not of mapping it.
    #[must_use]
    pub fn driver_calls(&self) -> u64 {
        match self.source {
            Source::Virtual => self.memory_calls(),
            _ => self.memory_calls() + 2 * self.stream_waits,
        }
    }

    /// These statistics, with counts that go on where those of an earlier pool ended.
    #[cfg(feature = "metrics")]
    pub(crate) fn counting_on(&self, before: &Self) -> Self {
        let mut sum = self.clone();
        for (count, more) in [
            (&mut sum.hits, before.hits),
            (&mut sum.misses, before.misses),
            (&mut sum.served_by_arena, before.served_by_arena),
            (&mut sum.served_by_driver, before.served_by_driver),
            (&mut sum.bytes_allocated, before.bytes_allocated),
            (&mut sum.source_allocations, before.source_allocations),
            (&mut sum.source_frees, before.source_frees),
            (&mut sum.drops_over_bytes, before.drops_over_bytes),
            (&mut sum.drops_over_count, before.drops_over_count),
            (&mut sum.evictions, before.evictions),
            (&mut sum.stream_waits, before.stream_waits),
            (&mut sum.mapping_calls, before.mapping_calls),
            (&mut sum.mapping_nanoseconds, before.mapping_nanoseconds),
            (&mut sum.failed_by_limit, before.failed_by_limit),
            (&mut sum.failed_by_device, before.failed_by_device),
            (&mut sum.failed_by_backend, before.failed_by_backend),
            (&mut sum.failed_invalid, before.failed_invalid),
        ] {
            *count = count.saturating_add(more);
        }
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

    /// Whether a cap is one, rather than [`UNLIMITED`].
    #[must_use]
    pub fn capped(cap: u64) -> Option<u64> {
        (cap != UNLIMITED).then_some(cap)
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
        let later = PoolStats { hits: 3, misses: 1, bytes_live: 7, ..PoolStats::default() };
        assert_eq!(PoolStats::default().hit_rate_since(&later), 0.0);
        assert_eq!(later.hit_rate_since(&PoolStats::default()), 0.75);
        assert_eq!(later.bytes_in_transit, 0);
    }
}
