//! One buffer for one block after the other: what a pool's misses are made of that need nothing but numbers.
//!
//! A pool calls these under its own lock. So they call nothing of the device, wait for nothing, and drop no handle of a
//! stream or a range that may be the last. Where that cannot be they do nothing, and the usual way is to be taken.

use super::ArenaBuffer;
use super::state::State;
use crate::arena::Region;
use std::sync::OnceLock;
use vrampool_backend::{Backend, Memory, Stream};

/// What an [emptied](ArenaBuffer::empty) buffer got.
#[derive(Debug)]
pub(crate) struct Refill<S> {
    /// How much the arena has to have for it: where it ends, or what is mapped, bytes.
    pub(crate) end: u64,
    /// Where it is from now on, where the device has addresses and nothing moves it; 0 else.
    pub(crate) address: u64,
    /// To be dropped without any lock.
    pub(crate) gone: Option<S>,
}

impl<B: Backend> ArenaBuffer<B> {
    /// Gets an emptied buffer a block for `stream`, of the arena's device, unless that takes a wait.
    pub(crate) fn refill(&mut self, bytes: u64, stream: &B::Stream) -> Option<Refill<B::Stream>> {
        if self.range.is_some() {
            return None;
        }
        let mut state = self.arena.state.try_lock().filter(|state| state.is_awake())?;
        let size = bytes.checked_next_multiple_of(state.engine.alignment())?;
        let State { engine, backing, .. } = &mut *state;
        let block = match backing {
            None => engine.allocate(bytes, Region::Dynamic),
            Some(backing) if backing.stitches(size) => match engine.allocate_in_hole(bytes) {
                Err(_) if backing.end_is_oldest(engine, size) => engine.allocate(bytes, Region::Dynamic),
                found => found,
            },
            Some(backing) => {
                let region = backing.region_of(bytes);
                engine.allocate(bytes, region)
            }
        }
        .ok()?;
        let (offset, size, before) = state.settle(block, stream);
        if let Some(mut users) = before {
            // Whoever takes the usual way gets the same block. Nobody is down for its bytes any more, so nobody is replaced.
            users.push(stream.clone());
            state.take_back(block, users);
            return None;
        }
        let (writer, gone) = match self.stream.take() {
            Some(kept) if kept.id() == stream.id() => (kept, None),
            other => (stream.clone(), other),
        };
        state.slots.insert(block, writer);
        let range = state.handle();
        let stays = state.backing.is_some();
        let address = if stays { range.address().map_or(0, |start| start + offset) } else { 0 };
        self.range = Some(range);
        (self.block, self.len, self.size, self.alignment) = (block, bytes, size, 1);
        let end = state.backing.as_ref().map_or(offset + size, |backing| backing.mapped);
        Some(Refill { end, address, gone })
    }

    /// Frees its block at once, if it can be; it is good for [`refill`](Self::refill) then, and for nothing else.
    pub(crate) fn empty(&mut self) -> bool {
        if self.stitched_at.is_some() {
            return false;
        }
        // The backup of a block that is asleep goes another way.
        let Some(mut state) = self.arena.state.try_lock().filter(|state| state.is_awake()) else {
            return false;
        };
        let State { engine, slots, unsettled, .. } = &mut *state;
        let Some(slot) = slots.get(self.block) else { return false };
        let (Some(writer), false) = (slot.only_user(), slot.moving) else { return false };
        let (offset, size) = engine.extent(self.block);
        if !unsettled.is_of(&(offset..offset + size), writer) || engine.free(self.block).is_err() {
            return false;
        }
        self.stream = slots.remove(self.block).map(|slot| slot.writer);
        if self.holds.get().is_some() {
            self.holds = OnceLock::new();
        }
        // Not the last one: the state has one, of this range, because the block was live in it.
        let _another_one = state.keep_handle(self.range.take());
        true
    }
}
