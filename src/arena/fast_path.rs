//! Reuses one buffer object for successive blocks. Serves the misses of a pool that need only bookkeeping.
//!
//! A pool calls these functions under the lock that it has with the arena. They make no device call, never block, and
//! never drop the last handle of a stream or a range. If that is impossible they do nothing; the general path follows.

use super::ArenaBuffer;
use super::detach::Phase;
use super::state::State;
use crate::arena::engine::{BlockId, Zone};
use crate::cache::core::Space;
use crate::streams::order::Order;
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Backend, Memory, Stream};

/// The place of a refilled [empty](ArenaBuffer::empty) buffer.
#[derive(Debug)]
pub(crate) struct Refill<S> {
    /// End of the block in a range of fixed size, bytes; 0 in a growing arena.
    pub(crate) end: u64,
    /// Permanent address, if the device has addresses and the block never moves; else 0.
    pub(crate) address: u64,
    /// Must be dropped without any lock.
    pub(crate) dropped: Option<S>,
}

impl<B: Backend> ArenaBuffer<B> {
    /// Allocates a block for an emptied buffer, unless `stream`, of the arena's device, would have to wait.
    #[inline(always)]
    pub(crate) fn refill(
        &mut self,
        space: &mut Space,
        bytes: u64,
        stream: &B::Stream,
    ) -> Option<Refill<B::Stream>> {
        if !self.is_emptied {
            return None;
        }
        let state = State::<B>::attached_of(space)?;
        let size = bytes.checked_next_multiple_of(state.engine.alignment())?;
        state.uses.ticks.used_by(stream.id());
        let (block, offset, size) = state.take_anew((bytes, size), stream)?;
        let (writer, dropped) = match self.stream.take() {
            Some(kept) if kept.id() == stream.id() => (kept, None),
            other => (stream.clone(), other),
        };
        state.slots.insert(block, writer);
        let stays = state.backing.is_some();
        let range = match &mut self.range {
            Some(range) if Arc::ptr_eq(range, &state.range) => range,
            // Not the last handle of a replaced range: the state has one.
            slot => slot.insert(state.handle()),
        };
        let address = if stays { range.address().map_or(0, |start| start + offset) } else { 0 };
        (self.block, self.len, self.size, self.alignment) = (block, bytes, size, 1);
        self.is_emptied = false;
        let end = if stays { 0 } else { offset + size };
        Some(Refill { end, address, dropped })
    }

    /// Frees the block at once if possible. Afterwards the buffer can only be [refilled](Self::refill).
    #[inline]
    pub(crate) fn empty(&mut self, space: &mut Space) -> bool {
        if self.stitched_at.is_some() {
            return false;
        }
        let state = State::<B>::attached_of(space);
        let Some(state) = state.filter(|state| !state.marks(self.block)) else { return false };
        let may_mark = state.may_mark(self.block);
        let State { engine, slots, uses, .. } = &mut *state;
        let Some(user) = slots.sole_user(self.block) else { return false };
        let (offset, size) = engine.extent(self.block);
        if !uses.put_own(offset..offset + size, user) {
            return false;
        }
        if may_mark {
            uses.freed_unmarked(user, size);
            self.arena.note_markers(uses.are_any_unasked());
        }
        self.stream = slots.take_sole(self.block);
        state.free_freed(self.block);
        // Not the last handle while the lock is held: the block was live in this range, so the state has one.
        drop(state.keep_handle_of_emptied(&mut self.range));
        self.becomes_empty();
        true
    }

    /// As [`empty`](Self::empty), for a block whose free gets markers. Returns work to do without any lock:
    /// recording them, and dropping handles.
    #[cold]
    pub(crate) fn empty_marked(&mut self, space: &mut Space) -> Option<impl FnOnce() + Send + use<B>> {
        if self.stitched_at.is_some() {
            return None;
        }
        let arena = Arc::clone(&self.arena);
        let state = State::<B>::attached_of(space)?;
        let is_marked = state.marks(self.block);
        let slots = &mut state.slots;
        slots.get(self.block).filter(|slot| (slot.uses.is_shared() || is_marked) && !slot.moving)?;
        let slot = slots.remove(self.block)?;
        let (dropped, to_record) = state.free_marked(self.block, &slot);
        self.stream = Some(slot.uses.writer.clone());
        let handle = state.keep_handle_of_emptied(&mut self.range);
        self.becomes_empty();
        Some(move || {
            arena.freed(&to_record);
            drop((dropped, to_record, slot, handle));
        })
    }

    #[inline]
    fn becomes_empty(&mut self) {
        if self.holds.get().is_some() {
            self.holds = OnceLock::new();
        }
        self.is_emptied = true;
    }
}

impl<B: Backend> State<B> {
    /// The state in a locked depot, unless the arena is detached.
    #[inline]
    fn attached_of(space: &mut Space) -> Option<&mut Self> {
        Self::of(space).filter(|state| matches!(state.phase, Phase::Attached))
    }

    /// Takes the range handle of an emptied buffer in an arena of fixed size, so that a resize releases the
    /// range. Returns a handle to drop, if any.
    #[inline]
    fn keep_handle_of_emptied(&mut self, handle: &mut Option<Arc<B::Memory>>) -> Option<Arc<B::Memory>> {
        if self.backing.is_none() { self.keep_handle(handle.take()) } else { None }
    }

    /// Allocates a new block from the engine, unless its bytes need a wait.
    #[inline(always)]
    fn take_anew(&mut self, (bytes, size): (u64, u64), stream: &B::Stream) -> Option<(BlockId, u64, u64)> {
        // Only with pending markers: without them, the check below finds memory of a busy stream.
        let avoids_waits = !self.markers.is_empty() && self.uses.ticks.are_several() && self.is_large(size);
        let block =
            if avoids_waits { self.place_without_wait(size, stream)? } else { self.place(bytes, size)? };
        let (offset, size) = self.engine.extent(block);
        if !avoids_waits && !self.uses.needs_no_wait(&(offset..offset + size), stream) {
            // The general path gets the same block, or one with a shorter wait.
            self.free_freed(block);
            return None;
        }
        self.note_peak();
        self.uses.note_reused(&(offset..offset + size));
        Some((block, offset, size))
    }

    #[inline]
    fn place(&mut self, bytes: u64, size: u64) -> Option<BlockId> {
        let Self { engine, backing, .. } = self;
        match backing {
            None => engine.allocate(bytes, Zone::Dynamic).ok(),
            Some(backing) if backing.stitches(size) => match engine.allocate_in_hole(bytes) {
                None if backing.end_is_oldest(engine, size) => engine.allocate_at_end(bytes),
                found => found,
            },
            Some(backing) => {
                let zone = backing.zone_of(bytes);
                engine.allocate(bytes, zone).ok()
            }
        }
    }
}
