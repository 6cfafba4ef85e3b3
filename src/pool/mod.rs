//! The public pool type.

mod allocate_timeout;
mod buffer;
mod builder;
mod child;
mod elements;
mod global;
mod report;
mod settings;
mod trim;

pub use buffer::Buffer;
pub use builder::PoolBuilder;
pub use elements::Element;
pub use report::PoolReport;
pub use settings::{Effective, Origin, Scope, Setting, Settings};

use crate::environment::as_limit;
use crate::error::Error;
use crate::heap::arena::DeviceArena;
use crate::heap::size_class::SizeClasses;
use crate::heap::stats::{DeviceCall, PoolStats, Reason, times};
use crate::heap::{PoolCore, Position, allocate_observed, device_pools, magazine};
use crate::source::Source;
use crate::sync::Instant;
use std::marker::PhantomData;
use std::mem;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Backend, BackendError, Hook, MemoryKind, Stream, fork};

/// A bounded caching pool of device memory. A clone is another handle to the same pool.
///
/// Promises, each at every instant and under any number of threads:
///
/// * idle bytes never exceed `max_cached_bytes`, no bucket keeps more than `max_buffers_per_bucket` buffers,
///   bytes taken from the device never exceed `limit` ([`PoolBuilder`](crate::PoolBuilder));
/// * memory is never reused while earlier work on the device may still touch it, and the host is not
///   blocked for that: on the same stream reuse is immediate, on another one the pool inserts a wait on the
///   device;
/// * a failed call leaves every byte accounted for.
///
/// **Threads.** Each thread keeps some idle buffers of small classes to itself, in *magazines*
/// ([`PoolBuilder::magazine_bytes`](crate::PoolBuilder::magazine_bytes)): it takes and returns them without a lock,
/// an atomic read-modify-write, a
/// clock or the heap. For them it leases slots from the caps, and a leased slot counts as an idle buffer,
/// filled or not: so the caps are exact, and a cap that is reached may be reached with slots that are empty.
/// Buffers that a thread keeps are not available to others until it releases them: when it ends, or at its next request
/// of a small class or free after they are needed ([`trim`](Self::trim), a limit that is reached, a device
/// without memory, a bucket without slots for others). At most 255 pools at a time have magazines.
///
/// The caps do not bound memory that the pool released while work still uses it: the driver may keep it until that work
/// is complete. On a device without free memory an allocation may wait for that work. The pool itself makes the host
/// wait only where memory runs out: for another thread that is releasing the missing memory or has it in a magazine,
/// and over [`Source::Virtual`] for the work that used free memory ([`allocate`](Self::allocate)).
///
/// **Forks.** In a child of a process that opened a device every call that can fail returns
/// [`BackendError::Forked`], a dropped buffer or pool releases nothing, and
/// [`stats`](Self::stats) are zeros ([`fork`]).
///
/// Dropping the last handle releases idle memory; buffers that are still live release theirs when they are
/// dropped. An arena of the pool's own goes with the last of them.
///
/// ```
/// use vrampool::{Backend, Pool, host::HostDevice};
///
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).max_cached_bytes(256 << 20).build()?;
///
/// let first = pool.allocate(40_000, &stream)?; // a miss: 64 KiB from the device
/// drop(first);
/// let second = pool.allocate(50_000, &stream)?; // a hit: the same 64 KiB
/// assert_eq!((second.len(), second.capacity()), (50_000, 65_536));
/// assert_eq!(pool.stats().hit_rate(), 0.5);
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug)]
pub struct Pool<B: Backend> {
    pub(crate) handle: Arc<Handle<B>>,
}

impl<B: Backend> Clone for Pool<B> {
    fn clone(&self) -> Self {
        Self { handle: Arc::clone(&self.handle) }
    }
}

/// The state that all clones of a pool share and buffers do not. Its drop ends the pool.
#[derive(Debug)]
pub(crate) struct Handle<B: Backend> {
    pub(crate) core: Arc<PoolCore>,
    /// Its figures when it ended, for exporters and publishers.
    pub(crate) last: Arc<OnceLock<PoolStats>>,
    /// As it was built.
    settings: Settings,
    listed: Vec<Effective>,
    backend: PhantomData<B>,
}

impl<B: Backend> Drop for Handle<B> {
    fn drop(&mut self) {
        if fork::is_forked() {
            // It is never dropped then.
            return mem::forget(Arc::clone(&self.core));
        }
        if Arc::strong_count(&self.last) > 1 {
            // Only this call sets it.
            let _ = self.last.set(self.core.stats_below::<B>());
        }
        self.core.end();
        // A logger of the program's may panic: by then nothing is left open.
        report::warn_of_leaks(&self.core, &self.listed);
    }
}

impl<B: Backend> Pool<B> {
    fn of_core(core: Arc<PoolCore>, settings: Settings, listed: Vec<Effective>) -> Self {
        device_pools::add(&core);
        let last = Arc::default();
        Self { handle: Arc::new(Handle { core, last, settings, listed, backend: PhantomData }) }
    }

    /// All settings, as the pool was built with them, and where it has each from. A debug log has them, too.
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// let pool = Pool::builder(&HostDevice::new()).limit(2 << 30).build()?;
    /// let lines: Vec<_> = pool.settings().iter().map(ToString::to_string).collect();
    /// assert!(lines.contains(&"limit = 2GiB (argument)".into()));
    /// assert!(lines.contains(&"source = direct (default)".into()));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[must_use]
    pub fn settings(&self) -> &[Effective] {
        &self.handle.listed
    }

    #[inline]
    fn core(&self) -> &Arc<PoolCore> {
        &self.handle.core
    }

    /// A buffer of `bytes` bytes for work on `stream`, of the pool's own kind of memory. 0 bytes are allowed.
    ///
    /// Does not wait for the device, except where memory runs out: over [`Source::Virtual`] the arena
    /// may wait on the host for the work that used free memory, and for that of other
    /// devices of the process that can access it. It holds no lock meanwhile, so other threads go on. Where
    /// memory may run out, no such work may wait for the thread that calls this.
    ///
    /// If the missing memory is idle in magazines of other threads, waits up to 100 ms until they return it, each at
    /// its next call.
    ///
    /// **Captures.** While `stream` is captured into a graph, a request is served by what was idle on it. Its
    /// earlier work on such a buffer, queued before the capture began, is ordered before the graph only on
    /// `stream`. So launch the graph on that stream, or call [`Buffer::used_on`] with the stream of the launch
    /// before it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when neither idle memory nor the device has enough, [`Error::TooLarge`] when
    /// the device never does, [`Error::WrongDevice`] for another device's stream, [`Error::Backend`] when the
    /// device fails otherwise. [`Error::Capture`] when the stream is captured into a graph and nothing serves
    /// that was idle on it: then the pool makes no call that the capture forbids
    /// ([`PoolBuilder::private`](crate::PoolBuilder::private)). [`Error::Asleep`] while the pool's arena is
    /// [detached](crate::arena::DeviceArena::detach), [`Error::Closed`] once the pool is [closed](Self::close).
    #[inline(always)]
    #[track_caller]
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let core = self.core();
        if fork::is_forked() {
            return refuse_after_fork();
        }
        // A block's stream is one of the pool's device, so a hit need not check the device.
        match magazine::take(core, bytes, stream.id()) {
            Some(block) => Ok(Buffer::new(block)),
            None => self.allocate_past_magazines(bytes, stream),
        }
    }

    /// As [`allocate`](Self::allocate), for a given kind of memory. Kinds share the caps and nothing else.
    ///
    /// ```
    /// # use vrampool::{Backend, Placement, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// # let pool = Pool::builder(&device).build()?;
    /// let pinned = pool.allocate_kind(4096, Placement::HostVisible, &stream)?;
    /// assert_eq!(pinned.kind().placement, Placement::HostVisible);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    #[track_caller]
    pub fn allocate_kind(
        &self,
        bytes: u64,
        kind: impl Into<MemoryKind>,
        stream: &B::Stream,
    ) -> Result<Buffer<B>, Error> {
        fork::check()?;
        match kind.into() {
            kind if kind == self.kind() => self.allocate(bytes, stream),
            kind => {
                let (core, began) = (self.core(), times::begin());
                let served = self.allocate_by_depot(bytes, kind, stream, &Position::new(core));
                began.into_iter().for_each(|began| core.count_time(began));
                served
            }
        }
    }

    /// Times a sample of the requests. It is compiled as cold code, the path that it takes is not.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn allocate_past_magazines(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        match times::is_sampled() {
            true => self.allocate_timed(bytes, stream),
            false => self.allocate_from_heap(bytes, stream),
        }
    }

    #[inline(never)]
    #[track_caller]
    fn allocate_from_heap(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let core = self.core();
        if !core.is_observed()
            && let Some(served) = core.allocate_large::<B>(bytes, stream, None)
        {
            return served.map(Buffer::new);
        }
        self.allocate_by_depot(bytes, core.kind, stream, &Position::new(core))
    }

    /// As [`allocate_from_heap`](Self::allocate_from_heap), and counts the time of the call.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn allocate_timed(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let began = Instant::now();
        let served = self.allocate_from_heap(bytes, stream);
        self.core().count_time(began);
        served
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn allocate_by_depot(
        &self,
        bytes: u64,
        kind: MemoryKind,
        stream: &B::Stream,
        position: &Position<'_>,
    ) -> Result<Buffer<B>, Error> {
        let core = self.core();
        let block = match core.is_observed() {
            true => allocate_observed::<B>(core, bytes, kind, stream, Location::caller(), position),
            false => core.allocate::<B>(bytes, kind, stream, (None, position)),
        };
        block.map(Buffer::new)
    }

    /// As [`allocate`](Self::allocate), and sets every byte to 0 on `stream`. Other buffers contain the bytes
    /// that their memory had before.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and [`Error::Backend`] when filling fails.
    #[track_caller]
    pub fn allocate_zeroed(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let mut buffer = self.allocate(bytes, stream)?;
        let filled = buffer.whole_class(stream).and_then(|bytes| Ok(self.device().fill(stream, bytes, 0)?));
        filled.inspect_err(|error| {
            self.core().note_device_error(DeviceCall::Copy, error);
            self.core().count_failure(Reason::Backend);
        })?;
        Ok(buffer)
    }

    /// Returns the arena that serves misses, if the source is an arena.
    #[must_use]
    pub fn arena(&self) -> Option<&DeviceArena<B>> {
        self.core().supply::<B>().arena.as_ref()
    }

    /// The counts and bytes of the pool and its [children](Self::child). Those of each pool are of one moment; an
    /// arena's own (reserved bytes, its waits) are read right after. Caps are the pool's, and peaks are sums of the
    /// pools' peaks.
    pub fn stats(&self) -> PoolStats {
        if fork::is_forked() {
            return PoolStats::default();
        }
        self.core().stats_below::<B>()
    }

    /// As [`stats`](Self::stats), without those of its children.
    pub fn own_stats(&self) -> PoolStats {
        if fork::is_forked() { PoolStats::default() } else { self.core().own_stats::<B>() }
    }

    /// Reports the bytes that the pool holds, and their holders; at a program's end these are leaks. If a hook
    /// [counts holders](vrampool_backend::Hook::holders), dropping the last handle before the buffers logs a warning
    /// that lists them.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).name("activations").build()?;
    /// let leaked = pool.allocate(1000, &stream)?;
    /// let report = pool.report();
    /// assert_eq!(report.to_string(), "pool activations: 1 live buffers (1.0 KiB), 0 B idle");
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn report(&self) -> PoolReport {
        // In a forked child a hook's lock may be held for ever.
        let holders = if fork::is_forked() { Vec::new() } else { self.handle.core.hooks.holders() };
        PoolReport {
            pool: self.name().into(),
            stats: self.stats(),
            settings: self.settings().into(),
            holders,
        }
    }

    /// The hard cap on bytes taken from the device; `None` if there is none. A child has that of the pools above it,
    /// too.
    #[must_use]
    pub fn limit(&self) -> Option<u64> {
        as_limit(match fork::is_forked() {
            true => self.core().caps.limit,
            false => self.core().depot().accounts.caps.limit,
        })
    }

    /// The pool's name in metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core().name
    }

    /// The device it serves.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.core().supply::<B>().device
    }

    /// The kind of memory that [`allocate`](Self::allocate) gives.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.core().kind
    }

    /// How it rounds sizes.
    #[must_use]
    pub fn size_classes(&self) -> SizeClasses {
        self.core().classes.clone()
    }

    /// Returns the size class of a request, bytes, within what the device and the limit allow; `None` if the device
    /// never allocates as much.
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// let pool = Pool::new(&HostDevice::new())?;
    /// assert_eq!(pool.class_of(5000), Some(16 << 10));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[must_use]
    pub fn class_of(&self, bytes: u64) -> Option<u64> {
        self.core().class_of(bytes)
    }

    /// The source that serves its misses.
    #[must_use]
    pub fn source(&self) -> Source {
        self.core().supply::<B>().source
    }
}

/// Except for a hit, which makes no error.
#[cold]
#[inline(never)]
fn refuse_after_fork<T>() -> Result<T, Error> {
    Err(BackendError::Forked.into())
}
