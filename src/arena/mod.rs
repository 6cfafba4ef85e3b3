//! Arenas: one range, sub-allocated in blocks. [`DeviceArena`] is one of a device's memory, with streams and
//! data; [`Arena`] is the numbers alone ([`engine`]).
//!
//! * `builder`, `buffer`, `stats`: how an arena is to be, a block on loan (`resize`: of another size), what
//!   it tells of itself; `reserved`: the bytes that it took from the device, and their peaks;
//! * `state`: what the lock holds; `live_block`: who uses a block, of which parts a stitched one is made, and
//!   whether it may move; `fast_path`: one buffer for one block after the other;
//! * `hazards`: who may touch which bytes when; `mapping`: physical memory behind a growing arena's range;
//! * `compaction`: blocks moved, with their data; `resets`: who is told that all blocks are gone;
//! * `sleep`: all physical memory given back, and taken again at the same addresses; `panics`: a device's
//!   panic, kept until the books are right.
//!
//! One lock holds all of that. No call of the device is made under it.

mod buffer;
mod builder;
mod compaction;
pub mod engine;
mod fast_path;
mod hazards;
mod live_block;
mod mapping;
mod panics;
mod reserved;
mod resets;
mod resize;
pub(crate) mod sleep;
mod state;
mod stats;

pub use buffer::ArenaBuffer;
pub use builder::ArenaBuilder;
pub use compaction::{Compaction, Moved};
pub(crate) use fast_path::Refill;
pub(crate) use mapping::make::mapping_calls_of_this_thread;
pub use mapping::quota::Allowance;
use mapping::quota::QuotaUse;
pub(crate) use reserved::ReservedPeak;
pub(crate) use sleep::{Falling, Stored, Waking, can_pin, on_a_stream};

pub use engine::{Arena, ArenaError, ArenaLayout, BlockId, Move, MoveEnd, Plan, Span, SpanState, Zone};

use crate::error::Error;
use crate::streams::order::{After, Need};
use crate::sync::{Condvar, MutexGuard};
use hazards::timeline::Before;
use parking_lot::Mutex as LongMutex;
use resets::Resets;
use sleep::GivingBack;
use state::{LockedState, State, Taken};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool_backend::{Backend, CaptureId, DeviceId, MemoryKind, Stream, fork};

/// A device's memory, handed out in blocks: one range reserved once, or, [growing](ArenaBuilder::growing),
/// addresses with memory mapped as it is needed, which can [sleep](Self::sleep). A clone is another handle to
/// it.
///
/// As cuArena's pool, with its zones, bins and compaction, and in constant time; on any backend; and safe: a
/// block waits on the device for the work that used its bytes before (and, mostly, for no later work of
/// streams that shared them), follows its data when it is moved, and is an error, not another's memory, after
/// [`reset`](Self::reset).
///
/// A block in a range of fixed size is placed in memory that takes no wait, if the search of some 64 free
/// places finds some. Where none is free, work on `stream` waits on the device for all work that the last
/// users of the bytes had enqueued when they were freed; with OpenCL that may include a wait for an event
/// that the program itself completes, so do not block a thread on `stream` that has yet to complete it. In a
/// program that shares blocks, a block that would have to wait is placed where the wait is shorter; of a
/// growing arena also in new memory, up to three eighths more than the most that was live (not within an
/// [`Allowance`] that has a limit). An arena of pageable host memory is one on
/// [`HostDevice`](crate::host::HostDevice).
///
/// ```
/// use vrampool::{Backend, host::HostDevice, arena::{DeviceArena, Zone}};
///
/// # fn main() -> Result<(), vrampool::Error> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let arena = DeviceArena::builder(&device).limit(64 << 20).stable_bytes(1 << 20).build()?;
/// let weights = arena.allocate_in(Zone::Stable, 300_000, &stream)?; // never moves
/// let mut batch = arena.allocate_elements::<f32>(1000, &stream)?;
/// batch.write(&stream, &[0; 4000])?;
/// assert_eq!(arena.used(), weights.size() + batch.size());
/// drop(batch);
/// let report = arena.compact(&stream, u64::MAX, |moved| println!("{moved:?}"))?;
/// assert_eq!(report.moved_blocks, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DeviceArena<B: Backend> {
    core: Arc<ArenaCore<B>>,
}

impl<B: Backend> Clone for DeviceArena<B> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<B: Backend> Drop for DeviceArena<B> {
    fn drop(&mut self) {
        if fork::is_child() {
            // It is never dropped then.
            mem::forget(Arc::clone(&self.core));
        }
    }
}

/// What an arena's handles and its buffers share.
#[derive(Debug)]
struct ArenaCore<B: Backend> {
    device: B,
    id: DeviceId,
    kind: MemoryKind,
    state: LockedState<B>,
    /// Signalled when a move has ended.
    settled: Condvar,
    /// One compaction, growth, release, sleep or wake at a time.
    changing: LongMutex<()>,
    giving_back: GivingBack,
    resets: Resets,
    /// Behind the state, and so given back once its memory is.
    share: QuotaUse,
    /// Calls of the device for virtual memory, and their time.
    mapping_calls: AtomicU64,
    mapping_nanoseconds: AtomicU64,
    /// Waits put between streams.
    waits: AtomicU64,
    /// Whether the timeline has points: a hint.
    has_points: AtomicBool,
    /// Last of all, once its memory is dropped.
    _reclaim: Reclaim<B>,
}

/// Has the device give back, when it is dropped, the memory that it keeps for work.
#[derive(Debug)]
struct Reclaim<B: Backend>(B);

impl<B: Backend> Drop for Reclaim<B> {
    fn drop(&mut self) {
        // What is not given back now is given back with memory that is dropped later.
        let _ = self.0.reclaim();
    }
}

impl<B: Backend> DeviceArena<B> {
    /// How to make an arena on `device`.
    pub fn builder(device: &B) -> ArenaBuilder<B> {
        ArenaBuilder::new(device)
    }

    /// A block of `bytes` bytes (at least 1) in the dynamic zone, for work on `stream`.
    ///
    /// Of a [growing](ArenaBuilder::growing) arena, a request for which there is no memory, or neither
    /// addresses nor mappings, may wait on the host before it fails: for the work that used what is given
    /// back, and for that of other devices of the process. It holds no lock meanwhile. No other request waits
    /// for the device.
    ///
    /// # Errors
    /// [`Error::Arena`] when no hole is large enough ([`is_out_of_memory`](Error::is_out_of_memory)) or the
    /// request makes no sense, [`Error::WrongDevice`], [`Error::Backend`] when the device refuses an event or
    /// a wait, [`Error::Capture`] when that would be between a stream that is captured and one that is not.
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<ArenaBuffer<B>, Error> {
        self.allocate_in(Zone::Dynamic, bytes, stream)
    }

    /// As [`allocate`](Self::allocate), in a zone of your choice: what is in the stable one never moves.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); asking for a stable zone that is not there is one too.
    pub fn allocate_in(&self, zone: Zone, bytes: u64, stream: &B::Stream) -> Result<ArenaBuffer<B>, Error> {
        // Whatever the arena's alignment is, it is that.
        self.allocate_aligned(zone, bytes, 1, stream)
    }

    /// As [`allocate_in`](Self::allocate_in), at a multiple of `alignment` (a power of two) bytes from the
    /// range's start, which the device aligns to its own
    /// [`alignment`](vrampool_backend::Properties::alignment).
    ///
    /// # Errors
    /// As [`allocate_in`](Self::allocate_in).
    pub fn allocate_aligned(
        &self,
        zone: Zone,
        bytes: u64,
        alignment: u64,
        stream: &B::Stream,
    ) -> Result<ArenaBuffer<B>, Error> {
        self.core.check_device(stream)?;
        let is_captured = self.core.is_captured(stream);
        let mut state = self.core.lock_for_request();
        if state.backing.is_some() {
            // All of it is stable.
            drop(state);
            return self.core.allocate_growing((bytes, alignment), stream, || false);
        }
        let block = state.with_deferred(|engine| engine.allocate_aligned(bytes, alignment, zone))?;
        let request = (bytes, alignment);
        let served = self.core.hand_out((state, is_captured), Taken::plain(block), request, stream);
        self.core.or_elsewhere(served, zone, request, stream)
    }

    /// As [`allocate`](Self::allocate); before more is mapped for it `reclaim` may give back what is to serve
    /// instead.
    pub(crate) fn allocate_reclaiming(
        &self,
        bytes: u64,
        stream: &B::Stream,
        reclaim: impl FnMut() -> bool,
    ) -> Result<ArenaBuffer<B>, Error> {
        if !self.is_growing() {
            return self.allocate(bytes, stream);
        }
        self.core.check_device(stream)?;
        self.core.allocate_growing((bytes, 1), stream, reclaim)
    }

    /// A block for `count` elements of `T`, aligned for them too.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); a size that overflows is one too.
    pub fn allocate_elements<T>(&self, count: u64, stream: &B::Stream) -> Result<ArenaBuffer<B>, Error> {
        let size = size_of::<T>() as u64;
        let bytes = count.checked_mul(size).ok_or(ArenaError::Overflow { bytes: u64::MAX })?;
        let alignment = align_of::<T>() as u64;
        self.allocate_aligned(Zone::Dynamic, bytes, alignment, stream)
    }
}

impl<B: Backend> ArenaCore<B> {
    fn check_device(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        let given = stream.device();
        // Numbers first, and names mostly by their address.
        let is_own = given.key == self.id.key
            && (std::ptr::eq(given.backend, self.id.backend) || given.backend == self.id.backend);
        if is_own { Ok(()) } else { Err(Error::WrongDevice { pool: self.id, given }) }
    }

    /// A buffer of a block that was just allocated, behind the work of those who used its bytes.
    #[inline(always)]
    fn hand_out(
        self: &Arc<Self>,
        (mut state, is_captured): (MutexGuard<'_, State<B>>, Option<bool>),
        taken: Taken<B>,
        (bytes, alignment): (u64, u64),
        stream: &B::Stream,
    ) -> Result<ArenaBuffer<B>, Error> {
        let Taken { block, stitched } = state.keep_without_wait(taken, alignment, (stream, is_captured))?;
        let (_, mut size, mut before) = state.settle(block, stream);
        if let Some(place) = &stitched {
            (size, before) = state.settle_more(&place.more, stream, (size, before));
        }
        let before = before.map(|before| state.points_of(before));
        let writer = state.stream(stream);
        let slot = state.slots.insert(block, writer);
        if let Some(before) = &before {
            slot.awaits(before.streams.iter().map(|(user, _)| user));
        }
        let (range, stitched_at) = match stitched {
            None => (state.handle(), None),
            Some(place) => {
                slot.has_more(place.more);
                (place.memory, Some(place.offset))
            }
        };
        let gone = state.unsettled.take_gone();
        drop(state);
        drop(gone);
        let mut buffer = ArenaBuffer::new(Arc::clone(self), range, block, (bytes, size, alignment));
        buffer.stitched_at = stitched_at;
        let Some(before) = before else { return Ok(buffer) };
        match self.put_behind(&before, &buffer, stream) {
            Ok(()) => Ok(buffer),
            Err(error) => {
                self.take_back(&buffer);
                Err(error)
            }
        }
    }

    /// Frees a new block that nobody was given, so that all is as before: `stream` used nothing of it.
    #[cold]
    fn take_back(&self, buffer: &ArenaBuffer<B>) {
        let mut state = self.state.lock_with_deferred();
        let slot = state.slots.remove(buffer.block);
        if let Some(slot) = &slot {
            [buffer.block].iter().chain(slot.more()).for_each(|&block| state.free_freed(block));
        }
        drop(state);
        drop(slot);
    }

    /// Puts what `stream` does from now on behind the work of those who used a new block's bytes.
    #[cold]
    fn put_behind(
        &self,
        before: &Before<B>,
        buffer: &ArenaBuffer<B>,
        stream: &B::Stream,
    ) -> Result<(), Error> {
        let users = before.streams.iter();
        let users = users.map(|(user, mark)| (user, mark.as_ref().map(|mark| &*mark.event)));
        self.take_over(users, stream, buffer.need())?;
        let State { slots, unsettled, .. } = &mut *self.state.lock_with_deferred();
        if let Some(slot) = slots.get_mut(buffer.block) {
            slot.awaits_nobody();
        }
        for (user, mark) in &before.streams {
            unsettled.waited(user, stream, mark.as_ref().map_or(before.era, |point| point.era));
        }
        Ok(())
    }

    /// As [`Need::order`].
    fn order<'a>(
        &self,
        users: impl Iterator<Item = &'a B::Stream> + Clone,
        to: &B::Stream,
        need: Need,
        after: After,
    ) -> Result<Option<CaptureId>, Error> {
        let (waits, capture) = need.order(&self.device, users, to, after)?;
        self.waits.fetch_add(waits, Ordering::Relaxed);
        Ok(capture)
    }

    /// As [`Need::take_over`].
    fn take_over<'a>(
        &self,
        users: impl Iterator<Item = (&'a B::Stream, Option<&'a B::Event>)> + Clone,
        to: &B::Stream,
        need: Need,
    ) -> Result<(), Error> {
        let waits = need.take_over(&self.device, users, to)?;
        self.waits.fetch_add(waits, Ordering::Relaxed);
        Ok(())
    }

    /// The state, once nothing moves the block.
    fn settled(&self, block: BlockId) -> MutexGuard<'_, State<B>> {
        let mut state = self.state.lock_with_deferred();
        while state.slots.get(block).is_some_and(|slot| slot.moving) {
            state = self.state.wait(&self.settled, state);
        }
        state
    }
}

impl<B: Backend> Drop for ArenaCore<B> {
    fn drop(&mut self) {
        log::info!("arena on {}: given back", self.id);
    }
}
