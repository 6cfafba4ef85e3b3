//! The state under an arena's lock.

use super::former_ranges::FormerRanges;
use super::hazards::deferred::Deferred;
use super::hazards::ranges::{Awaited, Streams, Unsettled, add, await_also};
use super::hazards::timeline::{Before, Timeline};
use super::live_block::{LiveBlock, LiveBlocks};
use super::mapping::pages::Backing;
use super::reserved_peaks::ReservedPeaks;
use super::sleep::Sleep;
use crate::arena::engine::{Arena, ArenaLayout, BlockId, SpanState};
use crate::error::Error;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::num::NonZeroU64;
use std::sync::Arc;
use vrampool_backend::AllocationRequest;
use vrampool_backend::{Backend, Capabilities, MemoryKind, Stream, StreamId};

/// Range handles that are kept for further buffers.
const HANDLES: usize = 16;

#[derive(Debug)]
pub(super) struct State<B: Backend> {
    /// The range. Buffers keep it alive beyond a resize.
    pub(super) range: Arc<B::Memory>,
    /// Handles of the range from freed buffers, for new ones: a count shared between threads is expensive.
    handles: Vec<Arc<B::Memory>>,
    /// The stream handle of the block that was freed last, for a new block.
    stream: Option<B::Stream>,
    pub(super) engine: Arena,
    pub(super) slots: LiveBlocks<B::Stream>,
    pub(super) unsettled: Unsettled<B::Stream>,
    pub(super) timeline: Timeline<B>,
    pub(super) deferred: Deferred<B::Stream>,
    /// Only in a growing arena.
    pub(super) backing: Option<Backing<B>>,
    /// Only in an arena of fixed size.
    pub(super) former_ranges: FormerRanges<B::Memory>,
    pub(super) reserved_peaks: ReservedPeaks,
    /// Whether a request prefers memory without a wait even without points: in a range of fixed size.
    pub(super) prefers_settled: bool,
    pub(super) sleep: Sleep<B>,
    /// Bytes of a compaction's staging blocks.
    pub(super) staged: u64,
    /// The peak of bytes used by other blocks, over all ranges so far.
    pub(super) peak: u64,
    /// The block that was freed last, while the engine's free is deferred. Visible only through
    /// [`try_lock_as_it_is`](LockedState::try_lock_as_it_is).
    pub(super) last_free: Option<LastFree>,
    /// The index of the block that was allocated last, if nothing happened since; else 0, which no block has.
    pub(super) placed_last: u32,
}

/// A freed block that is still live in the engine. It has no slot.
#[derive(Debug)]
pub(super) struct LastFree {
    pub(super) block: BlockId,
    pub(super) size: NonZeroU64,
    /// The block's only user.
    pub(super) stream: StreamId,
}

impl LastFree {
    /// Returns `None` if `size` is 0, which cannot occur.
    #[inline]
    pub(super) fn new(block: BlockId, size: u64, stream: StreamId) -> Option<Self> {
        Some(Self { block, size: NonZeroU64::new(size)?, stream })
    }
}

/// The state behind its lock. Except on the fast path, locking completes the last free in the engine.
#[derive(Debug)]
pub(super) struct LockedState<B: Backend>(Mutex<State<B>>);

impl<B: Backend> LockedState<B> {
    pub(super) fn new(state: State<B>) -> Self {
        Self(Mutex::new(state))
    }

    /// Locks, and frees all deferred blocks.
    pub(super) fn lock(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.lock_with_deferred();
        state.let_go_deferred();
        state
    }

    /// Locks without freeing deferred blocks, for operations that do not need all free memory.
    pub(super) fn lock_with_deferred(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.0.lock();
        state.finish_last_free();
        state
    }

    /// Releases the lock until `signal` is notified. Deferred blocks remain deferred.
    pub(super) fn wait<'a>(
        &self,
        signal: &Condvar,
        state: MutexGuard<'a, State<B>>,
    ) -> MutexGuard<'a, State<B>> {
        let mut state = signal.wait(state);
        state.finish_last_free();
        state
    }

    /// Tries to lock for the fast path, without completing the last free and without freeing deferred blocks.
    #[inline]
    pub(super) fn try_lock_as_it_is(&self) -> Option<MutexGuard<'_, State<B>>> {
        self.0.try_lock()
    }
}

/// Work that a free leaves to do without the lock. Streams are dropped there, because dropping the last
/// handle of a stream may wait for its work.
#[derive(Debug)]
pub(super) struct Freed<S> {
    _gone: (Option<S>, Option<Streams<S>>),
    /// Set if several streams used the block.
    pub(super) to_record: Option<ToRecord<S>>,
}

/// Streams whose [points](super::hazards::timeline) must be recorded now that an era has ended.
#[derive(Debug)]
pub(super) struct ToRecord<S> {
    pub(super) streams: Streams<S>,
    pub(super) era: u64,
}

impl<S> Default for Freed<S> {
    fn default() -> Self {
        Self { _gone: (None, None), to_record: None }
    }
}

/// The memory that serves a request.
#[derive(Debug)]
pub(super) struct Taken<B: Backend> {
    pub(super) block: BlockId,
    pub(super) stitched: Option<Place<B>>,
}

/// The place of a stitched block.
#[derive(Debug)]
pub(super) struct Place<B: Backend> {
    pub(super) memory: Arc<B::Memory>,
    pub(super) offset: u64,
    /// The other engine blocks of the stitched block.
    pub(super) more: Vec<BlockId>,
}

impl<B: Backend> Taken<B> {
    pub(super) fn plain(block: BlockId) -> Self {
        Self { block, stitched: None }
    }

    /// A stitched block of the given engine blocks; `None` if there are none.
    pub(super) fn stitched(mut blocks: Vec<BlockId>, memory: Arc<B::Memory>, offset: u64) -> Option<Self> {
        if blocks.is_empty() {
            return None;
        }
        let block = blocks.remove(0);
        Some(Self { block, stitched: Some(Place { memory, offset, more: blocks }) })
    }
}

impl<B: Backend> State<B> {
    pub(super) fn reserve(
        device: &B,
        kind: MemoryKind,
        layout: ArenaLayout,
        bytes: u64,
    ) -> Result<Self, Error> {
        let engine = Arena::new(layout)?;
        Ok(Self::new(device, engine, device.allocate(&AllocationRequest::new(bytes, kind))?, None))
    }

    pub(super) fn new(device: &B, engine: Arena, range: B::Memory, backing: Option<Backing<B>>) -> Self {
        let reserved_peaks = ReservedPeaks::default();
        let backing = backing.map(|backing| backing.noting(reserved_peaks.clone()));
        Self {
            range: Arc::new(range),
            handles: Vec::with_capacity(HANDLES),
            stream: None,
            engine,
            slots: LiveBlocks::new(),
            unsettled: Unsettled::new(),
            timeline: Timeline::new(),
            deferred: Deferred::new(device),
            // On devices that never run streams concurrently, no request waits.
            prefers_settled: backing.is_none()
                && device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS),
            backing,
            former_ranges: FormerRanges::default(),
            reserved_peaks,
            sleep: Sleep::Awake,
            staged: 0,
            peak: 0,
            last_free: None,
            placed_last: 0,
        }
    }

    /// Completes the last free in the engine, if it was deferred.
    #[inline]
    pub(super) fn finish_last_free(&mut self) {
        match self.last_free.take() {
            Some(last) => self.free_freed(last.block),
            None => self.placed_last = 0,
        }
    }

    /// Frees a block whose slot is removed.
    #[inline]
    pub(super) fn free_freed(&mut self, block: BlockId) {
        self.placed_last = 0;
        // The block is live, and neither moves nor is pinned.
        let _ = self.engine.free(block);
    }

    /// Defers a free, and completes the previously deferred one.
    #[inline]
    pub(super) fn defer_free(&mut self, freed: LastFree) {
        if let Some(before) = self.last_free.replace(freed) {
            self.free_freed(before.block);
        }
    }

    /// Returns a new block's offset and size, and the streams to wait for, if any. Its slot does not exist
    /// yet.
    // Not in a struct with the block's name: that would be stored in parts and read as one. A processor waits
    // until such stores have reached the cache.
    #[inline(always)]
    pub(super) fn settle(
        &mut self,
        block: BlockId,
        stream: &B::Stream,
    ) -> (u64, u64, Option<Awaited<B::Stream>>) {
        let (offset, size) = self.engine.extent(block);
        self.note_peak();
        (offset, size, self.unsettled.awaited_for(&(offset..offset + size), stream))
    }

    /// Frees a block that is not moving. Does nothing for a stale block.
    #[inline(always)]
    pub(super) fn free(&mut self, block: BlockId) -> Freed<B::Stream> {
        let Some(slot) = self.slots.remove(block) else { return Freed::default() };
        let gone = self.unsettled.take_gone();
        let mut replaced = (!gone.is_empty()).then_some(gone);
        if slot.is_shared()
            && let Some(to_record) = self.defer(block, &slot)
        {
            return Freed { _gone: (self.stream.replace(slot.writer), replaced), to_record: Some(to_record) };
        }
        if !slot.more().is_empty() {
            let others = self.free_more(&slot);
            if !others.is_empty() {
                replaced.get_or_insert_default().extend(others);
            }
        }
        let (offset, size) = self.engine.extent(block);
        if self.engine.free(block).is_ok() {
            let range = offset..offset + size;
            if slot.only_user().is_none_or(|stream| !self.unsettled.is_of(&range, stream)) {
                let gone = self.unsettled.put(range, slot.users());
                replaced.get_or_insert_default().extend(gone);
            }
        }
        let to_record =
            slot.is_shared().then(|| ToRecord { streams: slot.users(), era: self.unsettled.begin_era() });
        Freed { _gone: (self.stream.replace(slot.writer), replaced), to_record }
    }

    /// Frees a block that several streams used, is not stitched, and has no slot any more. Returns handles to
    /// drop without the lock, and streams whose points are to be recorded.
    #[cold]
    pub(super) fn free_shared(
        &mut self,
        block: BlockId,
        slot: &LiveBlock<B::Stream>,
    ) -> (Streams<B::Stream>, ToRecord<B::Stream>) {
        let (offset, size) = self.engine.extent(block);
        let gone = self.unsettled.put(offset..offset + size, slot.users());
        self.free_freed(block);
        (gone, ToRecord { streams: slot.users(), era: self.unsettled.begin_era() })
    }

    /// Frees the other engine blocks of a stitched block.
    #[cold]
    fn free_more(&mut self, slot: &LiveBlock<B::Stream>) -> Streams<B::Stream> {
        let mut replaced = Streams::new();
        for &block in slot.more() {
            let (offset, size) = self.engine.extent(block);
            let range = offset..offset + size;
            if self.engine.free(block).is_ok()
                && slot.only_user().is_none_or(|stream| !self.unsettled.is_of(&range, stream))
            {
                replaced.extend(self.unsettled.put(range, slot.users()));
            }
        }
        replaced
    }

    /// As [`settle`](Self::settle), for the other engine blocks of a stitched block.
    #[cold]
    pub(super) fn settle_more(
        &mut self,
        more: &[BlockId],
        stream: &B::Stream,
        (mut size, mut before): (u64, Option<Awaited<B::Stream>>),
    ) -> (u64, Option<Awaited<B::Stream>>) {
        for &block in more {
            let (_, bytes, users) = self.settle(block, stream);
            size += bytes;
            let users = users.iter().flatten();
            users.for_each(|(user, era)| await_also(before.get_or_insert_default(), user, *era));
        }
        (size, before)
    }

    /// Returns the awaited streams, each with the earliest sufficient point.
    #[cold]
    pub(super) fn points_of(&mut self, awaited: Awaited<B::Stream>) -> Before<B> {
        let point = |(user, era): (B::Stream, u64)| {
            let point = self.timeline.behind(user.id(), era).cloned();
            (user, point)
        };
        Before { streams: awaited.into_iter().map(point).collect(), era: self.unsettled.begin_era() }
    }

    /// Returns all streams that used free memory.
    pub(super) fn users_of_free(&self) -> Streams<B::Stream> {
        let mut users = Streams::new();
        for span in self.engine.blocks().filter(|span| matches!(span.state, SpanState::Free)) {
            let free = span.offset..span.offset + span.bytes;
            self.unsettled.users_in(&free).iter().for_each(|user| add(&mut users, user));
        }
        users
    }

    /// Returns a handle of the stream, reusing the kept one if possible.
    pub(super) fn stream(&mut self, stream: &B::Stream) -> B::Stream {
        match self.stream.take_if(|kept| kept.id() == stream.id()) {
            Some(kept) => kept,
            None => stream.clone(),
        }
    }

    /// Replaces the range. Returns the previous range and its kept handles, to be dropped without the lock.
    pub(super) fn replace_range(&mut self, range: B::Memory) -> (Arc<B::Memory>, Vec<Arc<B::Memory>>) {
        let handles = std::mem::replace(&mut self.handles, Vec::with_capacity(HANDLES));
        (std::mem::replace(&mut self.range, Arc::new(range)), handles)
    }

    #[inline]
    pub(super) fn handle(&mut self) -> Arc<B::Memory> {
        self.handles.pop().unwrap_or_else(|| Arc::clone(&self.range))
    }

    /// Keeps a handle of the current range if there is room, else returns it, to be dropped without the lock.
    #[inline]
    pub(super) fn keep_handle(&mut self, handle: Option<Arc<B::Memory>>) -> Option<Arc<B::Memory>> {
        let is_kept = self.handles.len() < HANDLES
            && handle.as_ref().is_some_and(|handle| Arc::ptr_eq(handle, &self.range));
        if !is_kept {
            return handle;
        }
        self.handles.extend(handle);
        None
    }

    pub(super) fn note_peak(&mut self) {
        self.peak = self.peak.max(self.engine.used().saturating_sub(self.staged));
    }
}
