//! Configuration of a pool.

mod below;
mod build;

use crate::environment;
use crate::environment::Lookup;
use crate::environment::as_cap;
use crate::error::Error;
use crate::heap::arena::DeviceArena;
use crate::heap::size_class::SizeClasses;
use crate::initial::Initial;
use crate::overlap::Overlap;
use crate::pool::Pool;
use crate::pool::settings::PoolSettings;
use crate::source::Source;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::{Backend, Hook, MemoryKind, Placement};

/// The share of a discrete device that a pool's budget is by default (netcl's).
const BUDGET_FRACTION: f64 = 0.85;

/// From how many larger classes an empty geometric one borrows by default (netcl's).
const BORROW_CLASSES: u32 = 2;

/// The cap on idle bytes of a pool whose source is virtual: it keeps small classes only, bytes.
const VIRTUAL_CACHED: u64 = 64 << 20;

/// The largest of these classes, bytes: a quarter of a GPU's page. Of larger ones so few fit in a page that much of it
/// stays free.
const VIRTUAL_CLASS: u64 = 512 << 10;

/// How many threads' magazines the cap on idle bytes, and the limit, have room for by default.
const MAGAZINES_TO_A_CAP: u64 = 64;

/// The smallest class of [`PoolBuilder::pinned`], bytes.
const SMALLEST_PINNED: u64 = 512;

/// The settings of a [`Pool`]. Each has a default. Only [`from_environment`](Self::from_environment) reads
/// environment variables; an argument overrides a variable, and a variable overrides the default.
///
/// | setting | argument | environment, if it is read | default |
/// |---|---|---|---|
/// | cap on idle bytes | [`max_cached_bytes`](Self::max_cached_bytes) | `VRAMPOOL_MAX_CACHED_GB`, then `NETCL_MAX_CACHED_GB` (GiB, decimal) | 4 GiB; 64 MiB where the source is virtual |
/// | cap on idle buffers in a bucket | [`max_buffers_per_bucket`](Self::max_buffers_per_bucket) | `VRAMPOOL_MAX_BUFFERS_PER_BUCKET` | 16; none where the source is virtual |
/// | largest class kept idle | [`cached_class`](Self::cached_class) | | all; 512 KiB where the source is virtual |
/// | hard cap on bytes taken | [`limit`](Self::limit) | `VRAMPOOL_LIMIT_GB` (GiB, decimal) | none |
/// | what serves misses | [`source`](Self::source) | `VRAMPOOL_SOURCE` (`direct`, `driver`, `arena`, `virtual`) | [`Source::Direct`] |
/// | soft cap on bytes taken | [`budget`](Self::budget) | `VRAMPOOL_POOL_BUDGET_FRAC`, then `NETCL_POOL_BUDGET_FRAC` (of a discrete device's memory) | 0.85 of a discrete device, none elsewhere |
/// | size classes | [`size_classes`](Self::size_classes) | `VRAMPOOL_SIZE_CLASSES` (as [`SizeClasses`] parses it), then `VRAMPOOL_POOL_LARGE_BUCKET_MB`, then `NETCL_POOL_LARGE_BUCKET_MB` (MiB; 0 = fixed) | [`SizeClasses::Fixed`]; [`Tight`](SizeClasses::Tight) where the source is virtual |
/// | classes to borrow from | [`borrow_classes`](Self::borrow_classes) | | 2 (geometric classes only) |
/// | idle bytes a thread keeps to itself | [`magazine_bytes`](Self::magazine_bytes) | | 8 MiB, at most a 64th of `max_cached_bytes` and of `limit` (an 8th where the source is virtual) |
/// | largest class kept so | [`magazine_class`](Self::magazine_class) | | 1 MiB |
/// | memory that spares waits between streams | [`overlap`](Self::overlap) | `VRAMPOOL_OVERLAP` (as [`Overlap`] parses it) | [`Overlap::Unlimited`] |
/// | memory mapped when the pool is made | [`initial`](Self::initial) | `VRAMPOOL_INITIAL` (as [`Initial`] parses it) | none |
/// | largest piece that is mapped | [`piece_bytes`](Self::piece_bytes) | | a 16th of the mapped bytes, up to 16 MiB |
/// | blocks of an arena stay where they are | [`addresses_stay`](Self::addresses_stay) | | no |
/// | hooks | [`hook`](Self::hook), once for each | | none |
/// | bytes of the limits above | [`share`](Self::share), of a child | | 0 |
/// | idle memory is its own | [`private`](Self::private), of a child | | no |
/// | placement | [`memory`](Self::memory) | | host-visible on a device that shares the host's memory, else the device's own |
///
/// ```
/// # use vrampool::{Pool, SizeClasses, host::HostDevice};
/// let pool = Pool::builder(&HostDevice::new())
///     .name("activations")
///     .max_cached_bytes(2 << 30)
///     .max_buffers_per_bucket(32)
///     .limit(8 << 30)
///     .size_classes(SizeClasses::GEOMETRIC)
///     .build()?;
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct PoolBuilder<B: Backend> {
    device: B,
    name: String,
    arena: Option<DeviceArena<B>>,
    addresses_stay: bool,
    borrow_classes: u32,
    kind: Option<MemoryKind>,
    budget: Option<u64>,
    parent: Option<Pool<B>>,
    share: u64,
    is_private: bool,
    cached_class: Option<u64>,
    magazine_bytes: Option<u64>,
    magazine_class: Option<u64>,
    piece_bytes: Option<u64>,
    hooks: Vec<Arc<dyn Hook>>,
    /// Arguments for settings that the environment has, too.
    given: PoolSettings,
    /// For those without an argument.
    environment: PoolSettings,
}

impl<B: Backend> Pool<B> {
    /// A pool on `device` with the defaults of a [builder](Self::builder).
    ///
    /// # Errors
    /// As [`PoolBuilder::build`].
    pub fn new(device: &B) -> Result<Self, Error> {
        Self::builder(device).build()
    }

    /// How to make a pool on `device`.
    pub fn builder(device: &B) -> PoolBuilder<B> {
        PoolBuilder::new(device)
    }
}

impl<B: Backend> PoolBuilder<B> {
    pub(crate) fn new(device: &B) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            device: device.clone(),
            name: format!("pool-{}", NEXT.fetch_add(1, Ordering::Relaxed)),
            arena: None,
            addresses_stay: false,
            borrow_classes: BORROW_CLASSES,
            kind: None,
            budget: None,
            parent: None,
            share: 0,
            is_private: false,
            cached_class: None,
            magazine_bytes: None,
            magazine_class: None,
            piece_bytes: None,
            hooks: Vec::new(),
            given: PoolSettings::default(),
            environment: PoolSettings::default(),
        }
    }

    /// Reads environment variables, by the table above, for settings that have no argument, before or after
    /// this call. All variables of vrampool are checked, whether they are needed or not: a number is decimal,
    /// finite and not negative. A `NETCL_…` variable is read where the `VRAMPOOL_…` one is not set.
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// let pool = Pool::builder(&HostDevice::new()).from_environment()?.limit(1 << 30).build()?;
    /// assert_eq!(pool.limit(), Some(1 << 30));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Environment`] for a variable whose value is not valid.
    #[allow(clippy::wrong_self_convention, reason = "it is a builder's setting")]
    pub fn from_environment(self) -> Result<Self, Error> {
        self.with_lookup(&environment::process)
    }

    pub(crate) fn with_lookup(self, lookup: Lookup<'_>) -> Result<Self, Error> {
        Ok(Self { environment: PoolSettings::read(lookup)?, ..self })
    }

    /// The pool's name in metrics. Default: `pool-0`, `pool-1` and so on.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// The cap on idle bytes. 0 caches nothing; `None` has no cap. Default: 4 GiB; 64 MiB where the source is
    /// [virtual](Source::Virtual).
    pub fn max_cached_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.given.max_cached_bytes = Some(as_cap(bytes));
        self
    }

    /// The cap on idle buffers in one bucket (one size class of one kind). 0 caches nothing; `None` has
    /// no cap. Default: 16; none where the source is [virtual](Source::Virtual), which keeps small
    /// classes only.
    pub fn max_buffers_per_bucket(mut self, buffers: impl Into<Option<u64>>) -> Self {
        self.given.max_buffers_per_bucket = Some(as_cap(buffers));
        self
    }

    /// The largest class that is kept idle, bytes: larger ones go back to the source at once, which an arena
    /// makes whole again. Default: `None`, all; 512 KiB where the source is [virtual](Source::Virtual).
    pub fn cached_class(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.cached_class = Some(as_cap(bytes));
        self
    }

    /// The hard cap on bytes taken from the device, live and idle. A request that would exceed it gets
    /// [`Error::OutOfMemory`] once releasing idle memory does not help. It bounds what the pool has; a
    /// driver may keep memory that the pool released until work that uses it is done; wgpu keeps at most 32
    /// MiB so. Default: `None`, no cap.
    ///
    /// A program that repeats itself is served again at a limit at which it was served once. Not always where the place
    /// of a block decides, over [`Source::Virtual`] or an arena whose blocks [stay](Self::addresses_stay): a later pass
    /// may find other blocks, so leave it a little more than the first one needs. Over virtual memory, 42 recorded programs
    /// and variants of them were all served ten times at 1.035 of their peak of requested bytes; at 1.025 two of the 38
    /// that were served once were refused in a later pass.
    pub fn limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.given.limit = Some(as_cap(bytes));
        self
    }

    /// The soft cap on bytes taken from the device: a miss releases idle memory to stay within it, and
    /// exceeds it when that is not enough. Default: 0.85 of a discrete device's memory, `None` (no cap)
    /// elsewhere.
    pub fn budget(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.budget = Some(as_cap(bytes));
        self
    }

    /// The bytes of idle buffers that each thread may keep to itself, in *magazines*, from which it allocates
    /// without a lock. They count against the caps, and those of all threads together are at most an eighth
    /// of `limit`. 0 turns magazines off. Default: 8 MiB, at most a 64th of `max_cached_bytes` and of `limit`
    /// (an 8th where the source is virtual).
    ///
    /// A thread releases them when it ends (by the time it is joined; the end of a [`std::thread::scope`]
    /// alone does not wait for that). When they are needed before, by [`Pool::trim`], a limit that is
    /// reached, a device that is out of memory, or the pool's end, it does so at its next call to the pool
    /// (after the pool's end, at its next call to any pool that gets to the shared buckets). So a thread that
    /// stays away keeps at most this much; of [`Source::Arena`] on OpenCL, wgpu, and hosts other than Linux, the arena.
    pub fn magazine_bytes(mut self, bytes: u64) -> Self {
        self.magazine_bytes = Some(bytes);
        self
    }

    /// The largest class that magazines keep, bytes; larger ones are shared by all threads at once. 0 turns
    /// magazines off. Default: 1 MiB.
    pub fn magazine_class(mut self, bytes: u64) -> Self {
        self.magazine_class = Some(bytes);
        self
    }

    /// Bounds the memory that is allocated so that streams do not wait for each other: bytes held beyond the
    /// peak of live bytes. It is trimmed like other idle memory. Default: [`Overlap::Unlimited`], so that only
    /// the limit, the budget and the device bound it.
    ///
    /// An arena that is passed to [`arena`](Self::arena) has its own
    /// [bound](crate::arena::ArenaBuilder::overlap).
    ///
    /// ```
    /// # use vrampool::{Overlap, Pool, host::HostDevice};
    /// let pool = Pool::builder(&HostDevice::new()).overlap(Overlap::Percent(25)).build()?;
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.given.overlap = Some(overlap);
        self
    }

    /// Sets the memory that the pool maps when it is made, so that the first pass of a program makes few driver calls.
    /// With 0.95 of the peak of `reserved_bytes` of an earlier run it makes almost none. The memory is released like
    /// other free memory. The source must be [virtual](Source::Virtual), and the arena the pool's own; for another
    /// arena use [`initial_bytes`](crate::arena::ArenaBuilder::initial_bytes). Default: none.
    ///
    /// ```
    /// # use vrampool::{Backend, Initial, Pool, Source, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).source(Source::Virtual).initial(Initial::Bytes(64 << 20)).build()?;
    /// let _buffer = pool.allocate(48 << 20, &stream)?;
    /// assert_eq!(pool.stats().reserved_bytes, 64 << 20);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn initial(mut self, initial: Initial) -> Self {
        self.given.initial = Some(initial);
        self
    }

    /// The largest piece of physical memory that the pool maps where the source is [virtual](Source::Virtual), bytes.
    /// Each piece costs driver calls; with smaller pieces a pool holds less. Default: a 16th of the mapped bytes, up
    /// to 16 MiB ([details](crate::arena::ArenaBuilder::piece_bytes)).
    pub fn piece_bytes(mut self, bytes: u64) -> Self {
        self.piece_bytes = Some(bytes);
        self
    }

    /// How requests round up. Default: [`SizeClasses::Fixed`], which needs to know nothing. With a
    /// [`Table`](SizeClasses::Table) of sizes that is fitted to a trace a pool holds least.
    pub fn size_classes(mut self, classes: SizeClasses) -> Self {
        self.given.size_classes = Some(classes);
        self
    }

    /// From how many of the next larger classes an empty geometric class takes an idle buffer, rather than
    /// miss: with 2, at 8 classes to a doubling, a buffer is at most 28 % larger than its own class. Other
    /// classes never borrow: their next one is far away. Near the `limit` none does: beside the larger buffers that are
    /// in use there is room for as much as was live before. Default: 2.
    pub fn borrow_classes(mut self, classes: u32) -> Self {
        self.borrow_classes = classes;
        self
    }

    /// The kind of memory that [`Pool::allocate`] gives. Default: what the device prefers
    /// ([`Properties::preferred_placement`](vrampool_backend::Properties::preferred_placement)).
    pub fn memory(mut self, kind: impl Into<MemoryKind>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// What serves misses. Default: [`Source::Direct`]. For [`Source::Arena`] an arena of `limit` bytes is
    /// reserved; without a limit, of what is free less a margin
    /// ([`ArenaBuilder::limit`](crate::arena::ArenaBuilder::limit)). For [`Source::Virtual`] addresses alone are
    /// reserved, and `limit` bounds physical bytes.
    pub fn source(mut self, source: Source) -> Self {
        self.given.source = Some(source);
        self
    }

    /// Serves misses from this arena. The [source](Self::source) is [`Source::Virtual`] for a growing arena, else
    /// [`Source::Arena`]; any other setting is an error. An arena serves one pool in its lifetime: another
    /// [`build`](Self::build) with it fails with [`Error::Configuration`](crate::Error::Configuration).
    /// The program may allocate from it beside the pool; what the arena counts is in the pool's statistics.
    pub fn arena(mut self, arena: &DeviceArena<B>) -> Self {
        self.arena = Some(arena.clone());
        self
    }

    /// No buffer of this pool is moved: its arena is not compacted for it, neither to make room for
    /// a request, which is then out of memory though the holes together would serve it, nor by
    /// [`Pool::compact`]. For who keeps addresses ([`Buffer::address`](crate::Buffer::address)), as other
    /// languages and graphs do. The program must not compact its own [`arena`](Self::arena) either. Default: false; blocks of other sources than [`Source::Arena`] never move.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, Source, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).source(Source::Arena).limit(16 << 20).addresses_stay(true).build()?;
    /// let (first, second) = (pool.allocate(4 << 20, &stream)?, pool.allocate(4 << 20, &stream)?);
    /// let address = second.address();
    /// drop(first);
    /// assert_eq!(pool.compact(None, &stream, |_| {})?.moved_bytes, 0);
    /// assert_eq!(second.address(), address);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn addresses_stay(mut self, stay: bool) -> Self {
        self.addresses_stay = stay;
        self
    }

    /// Has the pool call `hook` around each request, each allocation of the driver's, and each free; after
    /// those given before. An `Arc` of one is one. A pool without hooks does not know of them; with any, a
    /// hit costs some tens of nanoseconds more. Default: none.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// netcl's `BufferPool`: powers of two, no memory released by itself. For short programs and tests.
    #[doc(alias = "BufferPool")]
    pub fn unbounded(self) -> Self {
        self.size_classes(SizeClasses::PowerOfTwo)
            .max_cached_bytes(None)
            .max_buffers_per_bucket(None)
            .limit(None)
            .budget(None)
    }

    /// netcl's `PinnedBufferPool`, bounded: host-visible memory, with 8 classes per power of two above 512 bytes.
    #[doc(alias = "PinnedBufferPool")]
    pub fn pinned(self) -> Self {
        let classes = SizeClasses::Geometric { per_doubling: 8, from: SMALLEST_PINNED };
        self.size_classes(classes).memory(Placement::HostVisible).budget(None)
    }
}
