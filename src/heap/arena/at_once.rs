//! Requests and frees that need only bookkeeping: no device call, no wait. Otherwise these functions have no effect,
//! and the general path follows.
//!
//! A pool calls them under the lock that it has with the arena, and uses one buffer object for successive blocks. They
//! never drop the last handle of a stream or a range.

use super::{ArenaBuffer, ArenaRequest, TakenBlock};
use crate::heap::space::{Extent, Zone};
use crate::heap::{BackendState, Refill};
use crate::streams::Streams;
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Backend, Memory, Stream, StreamId};

impl<B: Backend> ArenaBuffer<B> {
    /// Allocates a block for an emptied buffer, unless `stream`, of the arena's device, would have to wait.
    #[inline(always)]
    pub(crate) fn refill(
        &mut self,
        backend_state: &mut BackendState,
        bytes: u64,
        stream: &B::Stream,
    ) -> Option<Refill<B::Stream>> {
        if !self.is_emptied {
            return None;
        }
        let state = backend_state.arena_mut::<B>().filter(|state| state.phase.is_attached())?;
        state.uses.ticks.used_by(stream.id());
        let request = ArenaRequest::new((bytes, Zone::Dynamic), stream);
        let TakenBlock { block, stitched } = state.take_at_once(&request)?;
        let Extent { start: mut offset, bytes: mut size } = state.engine.extent(block);
        let (writer, dropped) = match self.stream.take() {
            Some(kept) if kept.id() == stream.id() => (kept, None),
            other => (stream.clone(), other),
        };
        let slot = state.slots.insert(block, writer);
        if let Some(place) = stitched {
            slot.has_more(place.more);
            size = slot.blocks(block).map(|block| state.engine.extent(block).bytes).sum();
            offset = place.offset;
            // Not the last handle of the range: the state has one.
            (self.range, self.stitched_at) = (Some(place.memory), Some(offset));
        } else if self.range.as_ref().is_none_or(|range| !Arc::ptr_eq(range, &state.range)) {
            // Not the last handle of a replaced range: the state has one.
            self.range = Some(state.range.take_handle());
        }
        let stays = state.backing.is_some();
        let start = if stays { self.range().address() } else { None };
        (self.block, self.len, self.size) = (block, bytes, size);
        self.is_emptied = false;
        let end = if stays { 0 } else { offset + size };
        Some(Refill { end, address: start.map_or(0, |start| start + offset), dropped })
    }

    /// The streams that may use the block, as [`users`](Self::users).
    pub(crate) fn users_in(&self, backend_state: &BackendState) -> Streams<B::Stream> {
        backend_state.arena::<B>().map(|state| state.users_of_live(self.block)).unwrap_or_default()
    }

    /// As [`users_in`](Self::users_in), but their ids.
    pub(crate) fn user_ids_in(&self, backend_state: &BackendState) -> SmallVec<[StreamId; 2]> {
        let slot = backend_state.arena::<B>().and_then(|state| state.slots.get(self.block));
        slot.map(|slot| slot.uses.ids()).unwrap_or_default()
    }

    /// Frees the block at once if possible. Afterwards the buffer can only be [refilled](Self::refill).
    #[inline]
    pub(crate) fn empty(&mut self, backend_state: &mut BackendState) -> bool {
        let Some(state) = backend_state.arena_mut::<B>() else { return false };
        if !state.phase.is_attached() || state.uses.keeps_many_dropped() {
            return false;
        }
        // A block that a reset made stale has no user.
        let Some(slot) = state.slots.of_sole_user(self.block) else { return false };
        let may_mark = state.may_mark(self.block);
        let bytes = if may_mark { state.bytes_of(self.block, slot) } else { 0 };
        if may_mark && state.is_marker_due(bytes, Some(&slot.uses.writer)) {
            return false;
        }
        let Some((user, more)) = state.slots.take_sole(self.block) else { return false };
        let mut free = |block| {
            state.uses.put_own(state.engine.extent(block).range(), &user);
            state.free_freed(block);
        };
        free(self.block);
        more.into_iter().flatten().for_each(free);
        if may_mark {
            state.uses.freed_unmarked(&user, bytes);
            self.arena.note_markers(state.uses.are_any_unasked());
        }
        self.stream = Some(user);
        if self.stitched_at.take().is_some() || state.backing.is_none() {
            // A resize releases the range. Not the last handle while the lock is held: the block was live in this
            // range, so the state has one, or its stitched range, which is not retired while a block has another.
            drop(state.range.keep_handle(self.range.take()));
        }
        self.becomes_empty();
        true
    }

    #[inline]
    pub(super) fn becomes_empty(&mut self) {
        if self.holds.get().is_some() {
            self.holds = OnceLock::new();
        }
        self.is_emptied = true;
    }
}

#[cfg(all(test, feature = "host", not(model)))]
mod tests {
    use crate::host::HostDevice;
    use crate::{Backend, Pool, Source};

    /// Frees of bookkeeping alone drop no handle, and leave those that are to be dropped to others in time.
    #[test]
    fn handles_of_streams_that_came_and_went_leave() {
        let device = HostDevice::builder().memory_limit(1 << 30).build();
        if device.virtual_memory().is_none() {
            return;
        }
        let builder = Pool::builder(&device).source(Source::Virtual).max_cached_bytes(0);
        let pool = builder.magazine_bytes(0).build().expect("a pool");
        for _ in 0..200 {
            let stream = device.create_stream().expect("a stream");
            drop(pool.allocate(8 << 20, &stream).expect("memory"));
            device.synchronize(&stream).expect("no fault");
            let handles = pool.arena().expect("it is virtual").core.state.lock().uses.handles();
            assert!(handles <= 32, "{handles}");
        }
    }
}
