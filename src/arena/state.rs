//! What an arena's lock holds.

use super::hazards::pending_free::Deferred;
use super::hazards::ranges::{Awaited, Streams, Unsettled, add, await_also};
use super::hazards::timeline::{Before, Timeline};
use super::live_block::{LiveBlock, LiveBlocks};
use super::mapping::pages::Backing;
use super::reserved::{FormerRanges, ReservedPeaks};
use super::sleep::Sleep;
use crate::arena::engine::{Arena, ArenaLayout, BlockId, SpanState};
use crate::error::Error;
use crate::sync::{Condvar, Mutex, MutexGuard};
use std::num::NonZeroU64;
use std::sync::Arc;
use vrampool_backend::{Backend, Capabilities, MemoryKind, Stream, StreamId};

/// How many handles of the range are kept for further buffers.
const HANDLES: usize = 16;

#[derive(Debug)]
pub(super) struct State<B: Backend> {
    /// The range; buffers keep it alive beyond a resize.
    pub(super) range: Arc<B::Memory>,
    /// Some of the range's handles, of freed buffers for further ones: a count that threads share is dear.
    handles: Vec<Arc<B::Memory>>,
    /// The handle of the stream whose block was freed last, for a further block.
    stream: Option<B::Stream>,
    pub(super) engine: Arena,
    pub(super) slots: LiveBlocks<B::Stream>,
    pub(super) unsettled: Unsettled<B::Stream>,
    pub(super) timeline: Timeline<B>,
    pub(super) deferred: Deferred<B::Stream>,
    /// Of a growing arena.
    pub(super) backing: Option<Backing<B>>,
    /// Of an arena of fixed size.
    pub(super) former_ranges: FormerRanges<B::Memory>,
    pub(super) reserved_peaks: ReservedPeaks,
    /// Whether a request gets memory that takes no wait, if there is some, also where no stream has a point:
    /// in a range of fixed size.
    pub(super) prefers_settled: bool,
    pub(super) sleep: Sleep<B>,
    /// Bytes of blocks that a compaction uses for itself.
    pub(super) staged: u64,
    /// The most bytes that others used, in all ranges so far.
    pub(super) peak: u64,
    /// The block that was freed last, if the engine was not told yet. Only who takes the lock
    /// [as it is](LockedState) sees one.
    pub(super) put_off: Option<PutOff>,
    /// The index of the block that was allocated last, if nothing happened since; 0 else, which no block has.
    pub(super) placed_last: u32,
}

/// A block that is live for the engine and for nobody else; it has no slot.
#[derive(Debug)]
pub(super) struct PutOff {
    pub(super) block: BlockId,
    pub(super) size: NonZeroU64,
    /// Whose it was alone.
    pub(super) stream: StreamId,
}

impl PutOff {
    /// None if it has no bytes, which cannot be.
    #[inline]
    pub(super) fn new(block: BlockId, size: u64, stream: StreamId) -> Option<Self> {
        Some(Self { block, size: NonZeroU64::new(size)?, stream })
    }
}

/// The state behind its lock. Whoever takes that finds an engine that was told of every free, and nothing
/// deferred unless he says that it may stay so.
#[derive(Debug)]
pub(super) struct LockedState<B: Backend>(Mutex<State<B>>);

impl<B: Backend> LockedState<B> {
    pub(super) fn new(state: State<B>) -> Self {
        Self(Mutex::new(state))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.lock_with_deferred();
        state.let_go_deferred();
        state
    }

    /// For who does not look at what is free, or asks for it himself.
    pub(super) fn lock_with_deferred(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.0.lock();
        state.tell_engine();
        state
    }

    /// Lets the state go until somebody signals. What is deferred stays so.
    pub(super) fn wait<'a>(
        &self,
        signal: &Condvar,
        state: MutexGuard<'a, State<B>>,
    ) -> MutexGuard<'a, State<B>> {
        let mut state = signal.wait(state);
        state.tell_engine();
        state
    }

    /// The last free may be put off, and others deferred.
    #[inline]
    pub(super) fn try_lock_as_it_is(&self) -> Option<MutexGuard<'_, State<B>>> {
        self.0.try_lock()
    }
}

/// What is left to be done without the lock when a block was freed. Streams are dropped then: the last handle
/// of one may wait for its work.
#[derive(Debug)]
pub(super) struct Freed<S> {
    _gone: (Option<S>, Option<Streams<S>>),
    /// If several streams used it.
    pub(super) to_record: Option<ToRecord<S>>,
}

/// Streams whose [points](super::hazards::timeline) are to be recorded now that an era is over.
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

/// What a request got.
#[derive(Debug)]
pub(super) struct Taken<B: Backend> {
    pub(super) block: BlockId,
    pub(super) stitched: Option<Place<B>>,
}

/// Where a stitched block is.
#[derive(Debug)]
pub(super) struct Place<B: Backend> {
    pub(super) memory: Arc<B::Memory>,
    pub(super) offset: u64,
    /// The other blocks of the engine that are its.
    pub(super) more: Vec<BlockId>,
}

impl<B: Backend> Taken<B> {
    pub(super) fn plain(block: BlockId) -> Self {
        Self { block, stitched: None }
    }

    /// Of all blocks of the engine that it has; none if there are none.
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
        Ok(Self::new(device, engine, device.allocate(bytes, kind)?, None))
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
            // Streams that never run side by side wait for nothing.
            prefers_settled: backing.is_none()
                && device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS),
            backing,
            former_ranges: FormerRanges::default(),
            reserved_peaks,
            sleep: Sleep::Awake,
            staged: 0,
            peak: 0,
            put_off: None,
            placed_last: 0,
        }
    }

    /// Tells the engine of the last free, if that was put off.
    #[inline]
    pub(super) fn tell_engine(&mut self) {
        match self.put_off.take() {
            Some(last) => self.free_freed(last.block),
            None => self.placed_last = 0,
        }
    }

    /// Frees what has no slot any more.
    #[inline]
    pub(super) fn free_freed(&mut self, block: BlockId) {
        self.placed_last = 0;
        // It is live, and neither moves nor is pinned.
        let _ = self.engine.free(block);
    }

    /// Puts a free off, in place of the one before.
    #[inline]
    pub(super) fn put_off(&mut self, freed: PutOff) {
        if let Some(before) = self.put_off.replace(freed) {
            self.free_freed(before.block);
        }
    }

    /// Of a block that was just allocated for `stream`, its offset and size, and the streams that it must be
    /// put behind, if there are any. Its slot is left to be made.
    // Beside the block's name, not with it in a struct: that would be stored in parts and read as one, for
    // which a processor waits until it has reached the cache.
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

    /// Frees a block that nothing moves, if it is not stale.
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

    /// Frees a block that several streams used, whose slot is gone, and that is not stitched. Answers handles
    /// that are to be dropped without the lock, and whose points are to be recorded.
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

    /// Frees the other blocks of a stitched one.
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

    /// As [`settle`](Self::settle) for the other blocks of a stitched one.
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

    /// How far those have to be who are to be waited for.
    #[cold]
    pub(super) fn points_of(&mut self, awaited: Awaited<B::Stream>) -> Before<B> {
        let point = |(user, era): (B::Stream, u64)| {
            let point = self.timeline.behind(user.id(), era).cloned();
            (user, point)
        };
        Before { streams: awaited.into_iter().map(point).collect(), era: self.unsettled.begin_era() }
    }

    /// All streams that used what is free.
    pub(super) fn users_of_free(&self) -> Streams<B::Stream> {
        let mut users = Streams::new();
        for span in self.engine.blocks().filter(|span| matches!(span.state, SpanState::Free)) {
            let free = span.offset..span.offset + span.bytes;
            self.unsettled.users_in(&free).iter().for_each(|user| add(&mut users, user));
        }
        users
    }

    /// A handle of the stream.
    pub(super) fn stream(&mut self, stream: &B::Stream) -> B::Stream {
        match self.stream.take_if(|kept| kept.id() == stream.id()) {
            Some(kept) => kept,
            None => stream.clone(),
        }
    }

    /// Another range in place of the one so far. Returns that, and its handles that were kept, to be dropped
    /// without the lock.
    pub(super) fn replace_range(&mut self, range: B::Memory) -> (Arc<B::Memory>, Vec<Arc<B::Memory>>) {
        let handles = std::mem::replace(&mut self.handles, Vec::with_capacity(HANDLES));
        (std::mem::replace(&mut self.range, Arc::new(range)), handles)
    }

    /// A handle of the range.
    #[inline]
    pub(super) fn handle(&mut self) -> Arc<B::Memory> {
        self.handles.pop().unwrap_or_else(|| Arc::clone(&self.range))
    }

    /// Keeps a handle, if it is of the range and there are not enough; else it is to be dropped without the
    /// lock.
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
