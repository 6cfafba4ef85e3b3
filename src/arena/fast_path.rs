//! Reuses one buffer object for successive blocks. Serves the misses of a pool that need only bookkeeping.
//!
//! A pool calls these functions under its own lock. They make no device call, never block, and never drop the
//! last handle of a stream or a range. If that is impossible they do nothing; the general path follows.
//!
//! A loop may next request the size that it freed last. The engine's free is therefore deferred until the
//! next lookup ([`LockedState`](super::state::LockedState)) or request, and omitted if the request gets the
//! same block. This saves more than a fifth of such a pair's instructions (`docs/src/performance.md`, "The
//! block freed last").

use super::ArenaBuffer;
use super::hazards::ranges::Streams;
use super::state::{LastFree, State};
use crate::arena::engine::{BlockId, Zone};
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
    pub(crate) gone: Option<S>,
}

impl<B: Backend> ArenaBuffer<B> {
    /// Allocates a block for an emptied buffer, unless `stream`, of the arena's device, would have to wait.
    #[inline(always)]
    pub(crate) fn refill(&mut self, bytes: u64, stream: &B::Stream) -> Option<Refill<B::Stream>> {
        if !self.is_emptied {
            return None;
        }
        let mut state = self.arena.state.try_lock_as_it_is().filter(|state| state.is_awake())?;
        let size = bytes.checked_next_multiple_of(state.engine.alignment())?;
        let (block, offset, size) = match state.take_again(size, stream) {
            Some(block) => (block, state.engine.extent(block).0, size),
            None => state.take_anew((bytes, size), stream)?,
        };
        let (writer, gone) = match self.stream.take() {
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
        Some(Refill { end, address, gone })
    }

    /// Frees the block at once if possible. Afterwards the buffer can only be [refilled](Self::refill).
    #[inline]
    pub(crate) fn empty(&mut self) -> bool {
        if self.stitched_at.is_some() {
            return false;
        }
        // A sleeping block has a backup, which the general path frees.
        let Some(mut state) = self.arena.state.try_lock_as_it_is().filter(|state| state.is_awake()) else {
            return false;
        };
        let State { engine, slots, unsettled, .. } = &mut *state;
        let Some(user) = slots.sole_user(self.block) else { return false };
        let (offset, size) = engine.extent(self.block);
        if !unsettled.put_own(offset..offset + size, user) {
            return false;
        }
        let Some(freed) = LastFree::new(self.block, size, user.id()) else { return false };
        self.stream = slots.take_sole(self.block);
        state.defer_free(freed);
        // Not the last handle while the lock is held: the block was live in this range, so the state has one.
        drop(state.keep_handle_of_emptied(&mut self.range));
        drop(state);
        self.becomes_empty();
        true
    }

    /// As [`empty`](Self::empty), for a block that several streams used. Returns work to do without any lock:
    /// recording points of those streams, and dropping handles.
    #[cold]
    pub(crate) fn empty_shared(&mut self) -> Option<impl FnOnce() + Send + use<B>> {
        if self.stitched_at.is_some() {
            return None;
        }
        let arena = Arc::clone(&self.arena);
        let mut state = arena.state.try_lock_as_it_is().filter(|state| state.is_awake())?;
        let State { slots, .. } = &mut *state;
        slots.get(self.block).filter(|slot| slot.is_shared() && !slot.moving)?;
        let slot = slots.remove(self.block)?;
        let (gone, to_record) = match state.defer(self.block, &slot) {
            Some(to_record) => (Streams::new(), to_record),
            None => state.free_shared(self.block, &slot),
        };
        self.stream = Some(slot.writer.clone());
        let handle = state.keep_handle_of_emptied(&mut self.range);
        drop(state);
        self.becomes_empty();
        Some(move || {
            arena.record_points(&to_record);
            drop((gone, to_record, slot, handle));
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
    /// Takes the range handle of an emptied buffer in an arena of fixed size, so that a resize releases the
    /// range. Returns a handle to drop, if any.
    #[inline]
    fn keep_handle_of_emptied(&mut self, handle: &mut Option<Arc<B::Memory>>) -> Option<Arc<B::Memory>> {
        if self.backing.is_none() { self.keep_handle(handle.take()) } else { None }
    }

    /// Returns the block that was freed last, live but without a slot, if a request of `size` gets it again.
    #[inline(always)]
    fn take_again(&mut self, size: u64, stream: &B::Stream) -> Option<BlockId> {
        let last = self.last_free.as_ref()?;
        if last.size.get() != size || last.stream != stream.id() {
            return None;
        }
        let block = last.block;
        // The engine's earlier state would yield the same place, and no hole fits better than an exact one.
        if self.placed_last != block.index() && !self.engine.is_between_live(block) {
            return None;
        }
        self.last_free = None;
        Some(block)
    }

    /// Allocates a new block from the engine, unless its bytes need a wait.
    #[inline(always)]
    fn take_anew(&mut self, (bytes, size): (u64, u64), stream: &B::Stream) -> Option<(BlockId, u64, u64)> {
        self.finish_last_free();
        let avoids_waits = self.timeline.were_any() && self.is_large(size);
        let block = if avoids_waits { self.place_settled(size, stream)? } else { self.place(bytes, size)? };
        let (offset, size) = self.engine.extent(block);
        if !avoids_waits && !self.unsettled.is_settled_for(&(offset..offset + size), stream) {
            // The general path gets the same block, or one with a shorter wait.
            self.free_freed(block);
            return None;
        }
        self.note_peak();
        self.placed_last = block.index();
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
