//! The pool as its users have it.

pub(crate) mod allocate;
pub(crate) mod buffer;
pub(crate) mod builder;
pub(crate) mod global;
pub(crate) mod private_pool;

use crate::arena::{Compaction, DeviceArena, Moved};
use crate::cache::block::Block;
use crate::cache::core::Shared;
use crate::cache::magazine;
use crate::cache::recorded::{RecordedBy, Records, Taken};
use crate::cache::size_class::SizeClasses;
use crate::cache::stats::PoolStats;
use crate::error::Error;
use crate::pool::buffer::Buffer;
use crate::pool::builder::Builder;
use crate::source::Source;
use std::marker::PhantomData;
use std::mem;
use std::panic::Location;
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Backend, BackendError, MemoryKind, Stream, fork};

/// A bounded caching pool of device memory. A clone is another handle to the same pool.
///
/// Promises, each at every instant and under any number of threads:
///
/// * idle bytes never exceed `max_cached_bytes`, no bucket keeps more than `max_buffers_per_bucket` buffers, bytes taken
///   from the device never exceed `limit` ([`Builder`]);
/// * memory is never handed out while earlier work on the device may still touch it, and the host is not blocked for
///   that: on the same stream reuse is immediate, on another one the pool inserts a wait on the device;
/// * a failed call leaves every byte accounted for.
///
/// **Threads.** Each thread keeps some idle buffers of small classes to itself, in *magazines*
/// ([`Builder::magazine_bytes`]): it gets and gives those without a lock, an atomic read-modify-write, a clock or the heap.
/// For them it leases slots from the caps, and a leased slot counts as an idle buffer, filled or not: so the caps are exact,
/// and a cap that is reached may be reached with slots that are empty. What a thread keeps others do not get until it gives
/// it back: when it ends, or at its next request of a small class or free after somebody wanted it ([`trim`](Self::trim), a limit that is reached, a
/// device without memory, a bucket without slots for others). At most 255 pools at a time have magazines.
///
/// What the caps do not bound: memory that the pool gave back while work still uses it is the driver's, which may keep it
/// until that work is done. And a device without memory may make an allocation wait for that; the pool itself makes the
/// host wait only for another thread that is giving back what is missing.
///
/// **Forks.** In a child of a process that opened a device every call that can fail returns [`BackendError::Forked`], a buffer or a pool
/// that is dropped gives nothing back, and [`stats`](Self::stats) are zeros ([`fork`]).
///
/// Dropping the last handle gives idle memory back; buffers that are still live give theirs back when they drop. An arena of
/// the pool's own goes with the last of them.
///
/// ```
/// use vrampool::{Backend, Pool, host::HostDevice};
///
/// # fn main() -> Result<(), vrampool::Error> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).max_cached_bytes(256 << 20).build()?;
///
/// let first = pool.allocate(40_000, &stream)?; // a miss: 64 KiB from the device
/// drop(first);
/// let second = pool.allocate(50_000, &stream)?; // a hit: the same 64 KiB
/// assert_eq!((second.len(), second.class()), (50_000, 65_536));
/// assert_eq!(pool.stats().hit_rate(), 0.5);
/// # Ok(())
/// # }
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

/// What all clones of a pool share and buffers do not: when it goes, the pool closes.
#[derive(Debug)]
pub(crate) struct Handle<B: Backend> {
    pub(crate) shared: Arc<Shared>,
    /// Kept for whoever reads it as long as the pool serves.
    _recorded_by: RecordedBy,
    /// Its figures when it ended, for whoever publishes them.
    pub(crate) last: Arc<OnceLock<PoolStats>>,
    backend: PhantomData<B>,
}

impl<B: Backend> Drop for Handle<B> {
    fn drop(&mut self) {
        if fork::is_child() {
            // It is never dropped then.
            return mem::forget(Arc::clone(&self.shared));
        }
        if Arc::strong_count(&self.last) > 1 {
            // Nobody else sets it.
            let _ = self.last.set(self.stats());
        }
        self.shared.close();
        self.shared.supply::<B>().close();
    }
}

impl<B: Backend> Handle<B> {
    fn stats(&self) -> PoolStats {
        let supply = self.shared.supply::<B>();
        let (stats, peak) = self.shared.stats();
        match supply.arena() {
            Some(arena) => stats.with_arena(supply.source(), arena, peak),
            None if supply.source() == Source::Driver => stats.with_driver_pool(),
            None => stats,
        }
    }
}

impl<B: Backend> Pool<B> {
    /// How to make a pool on `device`.
    pub fn builder(device: &B) -> Builder<B> {
        Builder::new(device)
    }

    pub(crate) fn new(shared: Arc<Shared>, recorded_by: RecordedBy) -> Self {
        let last = Arc::default();
        Self { handle: Arc::new(Handle { shared, _recorded_by: recorded_by, last, backend: PhantomData }) }
    }

    #[inline]
    fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// A buffer of `bytes` bytes for work on `stream`, of the pool's own kind of memory. 0 bytes are allowed.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] when neither idle memory nor the device has enough, [`Error::TooLarge`] when the device never
    /// does, [`Error::WrongDevice`] for another device's stream, [`Error::Backend`] when the device fails otherwise.
    /// [`Error::Capture`] when the stream is captured into a graph and nothing serves that was idle on it: then the pool makes
    /// no call that the capture forbids ([`GraphMemory`](crate::GraphMemory)).
    #[inline(always)]
    #[track_caller]
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let shared = self.shared();
        if fork::is_child() {
            return Err(BackendError::Forked.into());
        }
        // A block's stream is one of the pool's device, so a hit need not check the device.
        match magazine::take(shared, bytes, stream.id()) {
            Some(block) => Ok(Buffer::new(block)),
            None => self.allocate_past_magazines(bytes, stream),
        }
    }

    /// As [`allocate`](Self::allocate), of a kind of memory of your choice. Kinds share the caps and nothing else.
    ///
    /// ```
    /// # use vrampool::{Backend, Placement, Pool, host::HostDevice};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// # let pool = Pool::builder(&device).build()?;
    /// let pinned = pool.allocate_kind(4096, Placement::HostVisible, &stream)?;
    /// assert_eq!(pinned.kind().placement, Placement::HostVisible);
    /// # Ok(())
    /// # }
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
        self.allocate_by_depot(bytes, kind.into(), stream)
    }

    /// Nothing of its own, so that either way begins where it goes on.
    #[cold]
    #[inline(never)]
    #[track_caller]
    fn allocate_past_magazines(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        match self.shared().records.is_empty() {
            true => self.allocate_unrecorded(bytes, stream),
            false => self.allocate_recorded(bytes, stream),
        }
    }

    /// With nothing in it that calls and comes back, either: registers are not for others to save.
    #[inline(never)]
    #[track_caller]
    fn allocate_recorded(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let shared = self.shared();
        match shared.records.take(shared, bytes, stream.id()) {
            Taken::Recorded(block) => Ok(Buffer::new(block)),
            Taken::Unrecorded(block) => Self::record(block),
            Taken::NotYet { lane, is_last } => self.allocate_from_lane(lane, is_last, bytes, stream),
            Taken::Nothing => self.allocate_unrecorded(bytes, stream),
        }
    }

    #[cold]
    #[inline(never)]
    fn record(mut block: Box<Block>) -> Result<Buffer<B>, Error> {
        Records::record(&mut block);
        Ok(Buffer::new(block))
    }

    #[inline(never)]
    #[track_caller]
    fn allocate_from_lane(
        &self,
        lane: u8,
        is_last: bool,
        bytes: u64,
        stream: &B::Stream,
    ) -> Result<Buffer<B>, Error> {
        let shared = self.shared();
        match Records::take_of(lane, is_last, shared, bytes, stream.id()) {
            Some(block) => Ok(Buffer::new(block)),
            None => self.allocate_unrecorded(bytes, stream),
        }
    }

    #[inline(never)]
    #[track_caller]
    fn allocate_unrecorded(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let shared = self.shared();
        match shared.allocate_large::<B>(bytes, stream) {
            Some(served) => {
                let mut block = served?;
                shared.records.request(&mut block);
                Ok(Buffer::new(block))
            }
            None => self.allocate_by_depot(bytes, shared.kind, stream),
        }
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    fn allocate_by_depot(
        &self,
        bytes: u64,
        kind: MemoryKind,
        stream: &B::Stream,
    ) -> Result<Buffer<B>, Error> {
        let shared = self.shared();
        let mut block = match shared.hooks.is_empty() {
            true => shared.allocate::<B>(bytes, kind, stream, None)?,
            false => shared.allocate_announced::<B>(bytes, kind, stream, Location::caller())?,
        };
        shared.records.request(&mut block);
        Ok(Buffer::new(block))
    }

    /// As [`allocate`](Self::allocate), and every byte is set to 0 on `stream`. The other ways to a buffer give recycled
    /// bytes as they are.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate), and [`Error::Backend`] when filling fails.
    #[track_caller]
    pub fn allocate_zeroed(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let mut buffer = self.allocate(bytes, stream)?;
        let filled = buffer.whole_class(stream).and_then(|bytes| Ok(self.device().fill(stream, bytes, 0)?));
        filled.inspect_err(|_| self.shared().count_failure(|counters| &mut counters.failed_by_backend))?;
        Ok(buffer)
    }

    /// Gives all idle memory back to the device. Answers how many bytes that were. With [`Source::Virtual`] idle memory goes back
    /// to the arena, and the arena [releases](DeviceArena::release) to the device every piece of physical memory in which nothing
    /// is live, after the host has waited for the work that used it; what the device refuses stays the arena's, and the log
    /// has it. What the device itself keeps of dropped memory it [gives back](Backend::reclaim): wgpu waits for submitted work.
    /// Memory in the magazines of other threads comes back at their next call; when a thread has ended since, at the next trim.
    #[doc(alias = "clear")]
    #[doc(alias = "empty_cache")]
    #[allow(clippy::must_use_candidate, reason = "called for what it does; the figure is extra")]
    pub fn trim(&self) -> u64 {
        self.trim_to(0)
    }

    /// Gives idle memory back until at most `cached_bytes` are idle, classes that were asked for longest ago first.
    /// Answers how many bytes were given back. With [`Source::Virtual`] at most `cached_bytes` are spare then, idle ones and
    /// physical memory of the arena's beyond what is live together, or no more piece of it is free as a whole; else as
    /// [`trim`](Self::trim).
    #[allow(clippy::must_use_candidate, reason = "called for what it does; the figure is extra")]
    pub fn trim_to(&self, cached_bytes: u64) -> u64 {
        if fork::is_child() {
            return 0;
        }
        let shared = self.shared();
        let given_back = shared.trim_to(cached_bytes);
        if let Some(arena) = self.arena().filter(|arena| arena.is_growing()) {
            let spare = cached_bytes.saturating_sub(shared.cached_bytes());
            if let Err(error) = arena.release(spare) {
                log::warn!("pool {}: memory is kept that was to be given back: {error}", shared.name);
            }
        }
        shared.supply::<B>().reclaim();
        given_back
    }

    /// Gives back to the device what a pool with [`Source::Virtual`] did not need since the last call, as
    /// [`DeviceArena::decay`]: for calling once in a while. What is idle in the pool counts as needed. Answers how many bytes
    /// of physical memory that were; 0 with another source.
    ///
    /// # Errors
    /// As [`DeviceArena::decay`].
    pub fn decay(&self) -> Result<u64, Error> {
        fork::check()?;
        self.arena().map_or(Ok(0), DeviceArena::decay)
    }

    /// Has what other streams left idle serve `stream` without a wait on the device, which a stream that is captured must not be
    /// made to do: idle memory goes back to the pool's arena, and the host waits for the work that used it
    /// ([`DeviceArena::settle_for`]). Does nothing without an arena.
    ///
    /// # Errors
    /// As [`DeviceArena::settle_for`].
    pub fn settle_for(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        let Some(arena) = self.arena() else { return Ok(()) };
        self.shared().trim_to(0);
        arena.settle_for(stream)
    }

    /// Closes holes of the pool's arena, as [`DeviceArena::compact`], after giving all idle memory back to it. Live buffers
    /// follow their data. Moves nothing where the source is direct, virtual or the driver's, or where
    /// [addresses stay](Builder::addresses_stay).
    ///
    /// # Errors
    /// As [`DeviceArena::compact`].
    pub fn compact(
        &self,
        stream: &B::Stream,
        budget_bytes: u64,
        on_move: impl FnMut(Moved),
    ) -> Result<Compaction, Error> {
        fork::check()?;
        if self.arena().is_some() {
            self.shared().trim_to(0);
        }
        let Some(arena) = self.shared().supply::<B>().movable() else { return Ok(Compaction::default()) };
        arena.compact(stream, budget_bytes, on_move)
    }

    /// The arena that serves its misses, if one does.
    #[must_use]
    pub fn arena(&self) -> Option<&DeviceArena<B>> {
        self.shared().supply::<B>().arena()
    }

    /// The pool's counts and bytes, all of one moment; an arena's own (reserved bytes, its waits) are read right after.
    pub fn stats(&self) -> PoolStats {
        if fork::is_child() {
            return PoolStats::default();
        }
        self.handle.stats()
    }

    /// Starts the peaks in [`stats`](Self::stats) anew from what is there now.
    pub fn reset_peaks(&self) {
        if fork::is_child() {
            return;
        }
        let reserved = self.shared().supply::<B>().arena().map_or(0, DeviceArena::reserved_bytes);
        self.shared().reset_peaks(reserved);
    }

    /// The hard cap on bytes taken from the device; [`UNLIMITED`](crate::UNLIMITED) without one.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match fork::is_child() {
            true => self.shared().caps.limit,
            false => self.shared().depot().budget.caps.limit,
        }
    }

    /// Changes the [limit](crate::Builder::limit). Idle memory goes back where it is above; what is live above it stays, and
    /// nothing more is taken until enough came back. An arena of fixed size that the pool has stays as large as it is, and one
    /// that others have too keeps its own limit.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let buffer = pool.allocate(1 << 20, &stream)?;
    /// pool.set_limit(1 << 16)?;
    /// assert!(pool.allocate(1, &stream).unwrap_err().is_out_of_memory());
    /// drop(buffer);
    /// assert!(pool.allocate(1 << 16, &stream).is_ok());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Arena`] when a virtual source of the pool's own keeps more than that mapped for what is live. The limit is then as it
    /// was; idle memory may have been given back.
    pub fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        fork::check()?;
        let shared = self.shared();
        let before = mem::replace(&mut shared.depot().budget.caps.limit, bytes);
        let held = shared.depot().budget.now.held;
        let mapped = self.arena().filter(|arena| arena.is_growing()).map_or(0, DeviceArena::reserved_bytes);
        let surplus = held.max(mapped).saturating_sub(bytes);
        if surplus > 0 {
            self.trim_to(shared.cached_bytes().saturating_sub(surplus));
        }
        shared.supply::<B>().set_limit(bytes).inspect_err(|_| shared.depot().budget.caps.limit = before)
    }

    /// The pool's name in metrics.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.shared().name
    }

    /// The device it serves.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.shared().supply::<B>().device
    }

    /// The kind of memory that [`allocate`](Self::allocate) gives.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.shared().kind
    }

    /// How it rounds sizes.
    #[must_use]
    pub fn size_classes(&self) -> SizeClasses {
        self.shared().classes
    }

    /// What serves its misses.
    #[must_use]
    pub fn source(&self) -> Source {
        self.shared().supply::<B>().source()
    }
}
