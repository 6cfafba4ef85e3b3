//! Resizes an allocated block, with or without its contents.

use crate::error::Error;
use crate::heap::arena::DeviceArena;
use crate::heap::arena::buffer::ArenaBuffer;
use crate::heap::arena::compaction::copier::Copier;
use crate::heap::arena::state_lock::StateGuard;
use crate::heap::space::ArenaError;
use crate::streams::order::WaitFor;
use crate::streams::uses::Access;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::Backend;
use vrampool_backend::spi::Hold;

impl<B: Backend> ArenaBuffer<B> {
    /// Changes the length to `bytes` for use on `stream`, and keeps the contents as far as they fit.
    ///
    /// The block is resized in place if there is room, else replaced. A failure changes nothing.
    ///
    /// # Errors
    /// As [`DeviceArena::allocate`](super::DeviceArena::allocate).
    pub fn resize(&mut self, bytes: u64, stream: &B::Stream) -> Result<(), Error> {
        let resized = self.resize_by(bytes, stream, |old, new| {
            let are_of_one = old.stitched_at.is_none()
                && new.stitched_at.is_none()
                && Arc::ptr_eq(old.range(), new.range());
            // Block sizes are multiples of the granularity.
            let granularity = old.arena.device.properties().copy_granularity;
            let kept = old.len.min(bytes).next_multiple_of(granularity);
            let source = old.region(kept, stream)?;
            let destination = new.region_mut(kept, stream)?;
            if !are_of_one {
                return Ok(old.arena.device.copy(stream, source, destination)?);
            }
            Copier::new(&old.device_arena(), Arc::clone(old.range()), stream).move_to(
                source.offset(),
                destination.offset(),
                kept,
            )
        });
        resized.map_err(|error| self.device_arena().explain(error, Some(bytes)))
    }

    /// As [`resize`](Self::resize), without keeping the contents.
    ///
    /// # Errors
    /// As [`resize`](Self::resize).
    pub fn resize_discarding(&mut self, bytes: u64, stream: &B::Stream) -> Result<(), Error> {
        let resized = self.resize_by(bytes, stream, |_, _| Ok(()));
        resized.map_err(|error| self.device_arena().explain(error, Some(bytes)))
    }

    fn device_arena(&self) -> DeviceArena<B> {
        DeviceArena { core: Arc::clone(&self.arena) }
    }

    fn resize_by(
        &mut self,
        bytes: u64,
        stream: &B::Stream,
        keep: impl FnOnce(&Self, &mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.arena.check_device(stream)?;
        let mut state = self.arena.attached(bytes, || self.arena.lock_unmoved(self.block))?;
        let zone = state.engine.zone(self.block)?;
        if bytes <= self.size && bytes > 0 {
            self.len = bytes;
            return Ok(());
        }
        let (offset, size) = (state.engine.offset(self.block)?, state.engine.size(self.block)?);
        let is_in_range = Arc::ptr_eq(self.range(), &state.range);
        let resized = match self.stitched_at {
            None if is_in_range => state.engine.resize_in_place(self.block, bytes),
            // The block is not followed by free memory of the arena's range.
            _ if bytes == 0 => Err(ArenaError::ZeroBytes),
            _ => Err(ArenaError::NoRoom { by_bytes: bytes - self.size, room_bytes: 0 }),
        };
        match resized {
            Ok(()) => {
                let len = self.take_over_grown(state, offset..offset + size, stream)?;
                (self.len, self.size) = (bytes, len);
                Ok(())
            }
            Err(error) if error.is_out_of_memory() => {
                drop(state);
                let mut new = self.device_arena().allocate_aligned(bytes, self.alignment, zone, stream)?;
                keep(self, &mut new)?;
                *self = new;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes `stream` the writer of the block, which has grown from the bytes `before`, after all users of the
    /// block and of the bytes behind it. Returns the new size. On failure the block has its old size.
    fn take_over_grown(
        &self,
        mut state: StateGuard<'_, B>,
        before: Range<u64>,
        stream: &B::Stream,
    ) -> Result<u64, Error> {
        state.note_peak();
        let grown = state.engine.size(self.block)?;
        // The users of those bytes remain recorded until the block is freed.
        let behind = state.uses.awaited_for(&(before.end..before.start + grown), stream).unwrap_or_default();
        let slot = state.slots.get_mut(self.block).ok_or(ArenaError::StaleBlock)?;
        let (users, kept) = (slot.uses.users(), slot.uses.clone());
        behind.iter().for_each(|(user, _)| slot.uses.recorded_on(user));
        let _hold = Hold::new(self.holds.get_or_init(|| Arc::clone(slot.holds())));
        drop(state);
        let ordered = self
            .arena
            .take_over(&behind, stream, self.need())
            .and_then(|()| self.arena.order(&users, stream, self.need(), WaitFor::Data));
        let mut state = self.arena.state.lock();
        if ordered.is_err() {
            // Restoring the old size cannot fail.
            state.engine.resize_in_place(self.block, before.end - before.start)?;
        }
        if let Some(slot) = state.slots.get_mut(self.block) {
            slot.uses = kept;
            if let Ok(capture) = ordered {
                slot.used(stream, Access::Write, capture);
            }
        }
        drop(state);
        ordered.map(|_| grown)
    }
}
