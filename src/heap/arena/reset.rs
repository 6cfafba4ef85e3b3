//! Resets or resizes an arena, unless a pool has blocks of it.

use super::{DeviceArena, LiveBlock, State, StateGuard};
use crate::error::Error;
use crate::heap::arena::hazards::UseMap;
use crate::heap::space::{ArenaError, ArenaLayout, Zone};
use std::sync::Arc;
use vrampool_backend::{Backend, Memory, fork, logging};

impl<B: Backend> DeviceArena<B> {
    /// Forgets all blocks at once: the whole range is free.
    ///
    /// A detached arena is attached with nothing mapped. Existing buffers return errors from then on, and free
    /// nothing. Reused memory still waits for the work that used it. Waits for a running compaction.
    ///
    /// # Errors
    /// [`Error::Arena`] with [`Pinned`](ArenaError::Pinned) while a region of a block exists, because its bytes
    /// would belong to another block; with [`ServesPool`](ArenaError::ServesPool) while a pool over the arena, or
    /// a buffer of it, exists.
    pub fn reset(&self) -> Result<(), Error> {
        self.reset_if(|_| true)
    }

    /// Forgets the blocks that threads keep in magazines of dropped pools, if there are no others. Releases the
    /// range of an arena of fixed size, if only those blocks and pools have handles of the arena.
    pub(crate) fn forget_parked(&self) {
        let mut handles = 0;
        let reset = self.reset_if(|state| {
            let blocks = state.slots.iter().count();
            let parked = state.parked();
            handles = blocks + parked.map_or(0, |(pools, _)| pools);
            parked.is_some_and(|(_, parked)| parked == blocks as u64)
        });
        if reset.is_ok() && !self.is_growing() && Arc::strong_count(&self.core) == handles {
            let range = Arc::clone(&self.core.state.lock().range);
            range.release();
            drop(self.core.share.split(u64::MAX));
        }
    }

    fn reset_if(&self, may_reset: impl FnOnce(&mut StateGuard<'_, B>) -> bool) -> Result<(), Error> {
        fork::check()?;
        let _quiet = self.core.alone(0)?;
        self.core.state.check_unused()?;
        if self.core.attach_empty()? {
            return Ok(());
        }
        // Dropped after the lock is released.
        let mut dropped = Vec::new();
        let mut state = self.core.state.lock();
        if !may_reset(&mut state) {
            return Err(ArenaError::ServesPool.into());
        }
        let State { engine, slots, uses, backing, .. } = &mut *state;
        if slots.iter().any(LiveBlock::is_held) {
            return Err(ArenaError::Pinned.into());
        }
        for (block, slot) in slots.drain() {
            slot.blocks(block).for_each(|block| uses.put(engine.extent(block).range(), &slot.uses));
            dropped.push(slot);
        }
        match backing {
            None => engine.reset(),
            Some(backing) => backing.reset(engine)?,
        }
        drop(state);
        drop(dropped);
        Ok(())
    }

    /// Replaces the range by one of `bytes` bytes, and forgets all blocks as [`reset`](Self::reset) does.
    ///
    /// The kind of memory and the stable share stay the same. The new range is reserved before the old one is
    /// released (with its last buffer), so a failure changes nothing. In a growing arena only the limit
    /// changes.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device has too little memory for both; [`Error::Arena`] for an invalid size, and
    /// with [`ServesPool`](ArenaError::ServesPool) in an arena of fixed size, as [`reset`](Self::reset).
    pub fn resize(&self, bytes: u64) -> Result<(), Error> {
        fork::check()?;
        if self.is_growing() {
            return self.set_limit(bytes, false);
        }
        let quiet = self.core.alone(0)?;
        self.core.state.check_unused()?;
        let (capacity, stable, alignment) =
            (self.capacity(), self.capacity_of(Zone::Stable), self.alignment());
        // The quotient is a share of the new size, so it fits; u128 keeps the product exact.
        let stable = (u128::from(stable) * u128::from(bytes) / u128::from(capacity.max(1))) as u64;
        let layout =
            ArenaLayout::new(bytes).alignment(alignment).stable_bytes(stable / alignment * alignment);
        self.core.share.reserve(bytes)?;
        let reserved = State::reserve(&self.core.device, self.core.kind, layout, bytes);
        let mut resized = reserved.inspect_err(|_| drop(self.core.share.split(bytes)))?;
        let mut state = self.core.state.lock();
        resized.peaks.used = state.peaks.used;
        // Pending markers and waits do not apply to the new range.
        resized.uses = UseMap::after(&mut state.uses);
        resized.range.follow(&mut state.range);
        let old = std::mem::replace(&mut *state, resized);
        drop(state);
        drop(quiet);
        logging::info!("arena on {}: resized from {capacity} to {bytes} bytes", self.core.id);
        drop(old);
        // Buffers may keep the range, but none of its blocks.
        drop(self.core.share.split(capacity));
        Ok(())
    }
}
