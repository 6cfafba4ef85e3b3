//! Groups of a pool's statistics.

use crate::cache::accounts::Accounts;
use crate::environment::as_limit;
use crate::source::Source;
use std::ops::AddAssign;
use std::time::Duration;

/// The source of a pool's misses, and the memory that it took from the device.
///
/// ```
/// # use vrampool::{Backend, Pool, Source, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::new(&device)?;
/// drop(pool.allocate(1000, &stream)?);
/// let source = pool.stats().source;
/// assert_eq!((source.kind, source.allocations, source.frees), (Source::Direct, 1, 0));
/// assert_eq!(source.reserved_bytes, 1024); // idle in a bucket
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SourceStats {
    /// The source.
    pub kind: Source,
    /// Misses served by an arena from reserved memory, without a driver call.
    pub served_by_arena: u64,
    /// Misses served with a driver call. Failed requests count neither here nor in `served_by_arena`.
    pub served_by_driver: u64,
    /// Allocations by the source.
    pub allocations: u64,
    /// Allocations released by the source.
    pub frees: u64,
    /// Total bytes taken from the source, never reduced.
    pub allocated_bytes: u64,
    /// Bytes reserved for pending requests to the source, and bytes being released to it. They count against
    /// the limit and the budget, together with [`held_bytes`](crate::PoolStats::held_bytes).
    pub in_transit_bytes: u64,
    /// Bytes that the source took from the device.
    ///
    /// * Direct or the driver's pool: the pool's `held_bytes`.
    /// * An arena: its whole region. A virtual source: its physical bytes.
    ///
    /// Never above the limit if the arena is the pool's own. Buffers of another kind of memory than the
    /// arena's are not included. Each pool over a shared arena reports all bytes of that arena.
    pub reserved_bytes: u64,
}

/// Virtual memory of a pool's source; zero for sources without it.
///
/// ```
/// # use vrampool::{Backend, Pool, Source, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # if device.virtual_memory().is_some() {
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).source(Source::Virtual).limit(1 << 30).build()?;
/// let _weights = pool.allocate(100 << 20, &stream)?;
/// let memory = pool.stats().virtual_memory;
/// assert!(memory.calls > 0 && memory.address_bytes >= 100 << 20);
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VirtualMemoryStats {
    /// Device calls to create, map, unmap and release memory.
    pub calls: u64,
    /// Time of these calls.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "nanoseconds", serialize_with = "crate::serialize::nanoseconds")
    )]
    pub time: Duration,
    /// Present mappings of physical memory: each piece counts as often as it is mapped.
    pub mappings: u64,
    /// Present stitched ranges.
    pub stitched_ranges: u64,
    /// Bytes of reserved addresses; also those of an arena of fixed size.
    pub address_bytes: u64,
}

/// The highest values since a pool was created, or since its peaks were reset, in bytes.
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::new(&device)?;
/// drop(pool.allocate(1000, &stream)?);
/// assert_eq!((pool.stats().live_bytes, pool.stats().peak.live_bytes), (0, 1024));
/// pool.reset_peaks();
/// assert_eq!(pool.stats().peak.live_bytes, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Peaks {
    /// The highest requested bytes of live buffers.
    pub requested_bytes: u64,
    /// The highest live bytes.
    pub live_bytes: u64,
    /// An upper bound of idle bytes: a block counts as idle if a magazine has a slot for it.
    pub idle_bytes: u64,
    /// The highest held bytes.
    pub held_bytes: u64,
    /// The highest reserved bytes, whatever made them grow: requests of this pool, other pools of a shared
    /// arena, or a wake.
    pub reserved_bytes: u64,
    /// The most bytes that the source needed. For an arena of fixed size: the highest end of a live block,
    /// which is the size that would have sufficed. For other sources: `reserved_bytes`.
    pub needed_bytes: u64,
}

/// The caps of a pool; `None` if a cap is unset.
///
/// ```
/// # use vrampool::{Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// let caps = pool.stats().caps;
/// assert_eq!((caps.limit, caps.budget), (Some(1 << 20), None));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Caps {
    /// The cap on idle bytes.
    pub max_cached_bytes: Option<u64>,
    /// The cap on idle buffers in one bucket.
    pub max_buffers_per_bucket: Option<u64>,
    /// The hard cap, in bytes, on the sum of held bytes and bytes in transit.
    pub limit: Option<u64>,
    /// The soft cap on the same sum, in bytes.
    pub budget: Option<u64>,
}

impl Caps {
    pub(super) fn of(accounts: &Accounts) -> Self {
        let caps = &accounts.caps;
        Self {
            max_cached_bytes: as_limit(caps.max_cached_bytes),
            max_buffers_per_bucket: as_limit(caps.max_buffers_per_bucket),
            limit: as_limit(caps.limit),
            budget: as_limit(caps.budget),
        }
    }
}

/// Buffers that a pool released to its source, counted by reason. Groups of several pools can be added.
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).max_cached_bytes(4096).build()?;
/// drop(pool.allocate(1 << 20, &stream)?); // more than may be idle
/// drop(pool.allocate(1000, &stream)?);
/// pool.trim()?;
/// let released = pool.stats().released;
/// assert_eq!((released.by_byte_cap, released.by_bucket_cap, released.evicted), (1, 0, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Releases {
    /// Freed buffers that were not kept because `max_cached_bytes` was reached.
    pub by_byte_cap: u64,
    /// Freed buffers that were not kept because `max_buffers_per_bucket` was reached.
    pub by_bucket_cap: u64,
    /// Idle buffers released to make room, or by trimming.
    pub evicted: u64,
}

/// Requests that failed, counted by reason. Groups of several pools can be added.
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// assert!(pool.allocate(2 << 20, &stream).is_err());
/// let failed = pool.stats().failed;
/// assert_eq!((failed.by_limit, failed.by_device, failed.total()), (1, 0, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Failures {
    /// Requests that failed because of the pool's limit.
    pub by_limit: u64,
    /// Requests that failed because the device was out of memory.
    pub by_device: u64,
    /// Requests that failed because of another error of the device.
    pub by_backend: u64,
    /// Invalid requests: no matching size class, a stream of another device, or a closed pool. They count
    /// neither as hits nor as misses, but for those that looked for memory while the pool was closed: these
    /// are misses, too.
    pub invalid: u64,
}

/// Statistics of one size class, all kinds of memory together.
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::new(&device)?;
/// drop(pool.allocate(1000, &stream)?);
/// let stats = pool.stats();
/// let bucket = &stats.buckets[0];
/// assert_eq!((bucket.class, bucket.misses, bucket.idle_buffers), (1024, 1, 1));
/// # Ok(())
/// # }
/// ```
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

impl Releases {
    /// Returns the number of released buffers.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { by_byte_cap, by_bucket_cap, evicted } = *self;
        [by_byte_cap, by_bucket_cap, evicted].into_iter().fold(0, u64::saturating_add)
    }
}

impl Failures {
    /// Returns the number of failed requests, invalid ones included.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self { by_limit, by_device, by_backend, invalid } = *self;
        [by_limit, by_device, by_backend, invalid].into_iter().fold(0, u64::saturating_add)
    }
}

impl AddAssign for Releases {
    fn add_assign(&mut self, more: Self) {
        // Without `..`: a new field does not compile until it is added here.
        let Self { by_byte_cap, by_bucket_cap, evicted } = more;
        add(&mut self.by_byte_cap, by_byte_cap);
        add(&mut self.by_bucket_cap, by_bucket_cap);
        add(&mut self.evicted, evicted);
    }
}

impl AddAssign for Failures {
    fn add_assign(&mut self, more: Self) {
        let Self { by_limit, by_device, by_backend, invalid } = more;
        add(&mut self.by_limit, by_limit);
        add(&mut self.by_device, by_device);
        add(&mut self.by_backend, by_backend);
        add(&mut self.invalid, invalid);
    }
}

pub(super) fn add(count: &mut u64, more: u64) {
    *count = count.saturating_add(more);
}
