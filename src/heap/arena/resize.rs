//! Changes the length of an allocated block.

use crate::error::Error;
use crate::heap::arena::compaction::copier::Copier;
use crate::heap::arena::{ArenaBuffer, DeviceArena};
use std::sync::Arc;
use vrampool_backend::Backend;

impl<B: Backend> ArenaBuffer<B> {
    /// Changes the length to `bytes` for use on `stream`, and keeps the contents as far as they fit.
    ///
    /// A block that is too small is replaced by another one. A failure changes nothing.
    ///
    /// # Errors
    /// As [`DeviceArena::allocate`](super::DeviceArena::allocate).
    pub fn resize(&mut self, bytes: u64, stream: &B::Stream) -> Result<(), Error> {
        self.arena.check_device(stream)?;
        let state = self.arena.attached(bytes, || self.arena.lock_unmoved(self.block))?;
        let zone = state.engine.zone_at(state.engine.offset(self.block)?);
        drop(state);
        if bytes <= self.size && bytes > 0 {
            self.len = bytes;
            return Ok(());
        }
        let arena = DeviceArena { core: Arc::clone(&self.arena) };
        let mut new = arena.allocate_in(bytes, zone, stream)?;
        // Block sizes are multiples of the granularity.
        let granularity = self.arena.device.properties().copy_granularity;
        let kept = self.len.min(bytes).next_multiple_of(granularity);
        let are_of_one =
            self.stitched_at.is_none() && new.stitched_at.is_none() && Arc::ptr_eq(self.range(), new.range());
        {
            let (source, destination) = (self.region(kept, stream)?, new.region_mut(kept, stream)?);
            if are_of_one {
                let copier = Copier::new(&arena, Arc::clone(self.range()), stream);
                copier.move_to(source.offset(), destination.offset(), kept)?;
            } else {
                self.arena.device.copy(stream, source, destination)?;
            }
        }
        *self = new;
        Ok(())
    }
}
