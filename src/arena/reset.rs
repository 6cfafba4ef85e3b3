//! Resets or resizes an arena, and notifies the pools over it.

use super::DeviceArena;
use super::hazards::ranges::Unsettled;
use super::live_block::LiveBlock;
use super::state::State;
use crate::arena::engine::{ArenaError, ArenaLayout, Zone};
use crate::error::Error;
use vrampool_backend::{Backend, fork, logging};

impl<B: Backend> DeviceArena<B> {
    /// Forgets all blocks at once: the whole range is free.
    ///
    /// A sleeping arena wakes with nothing mapped. Existing buffers return errors from then on, and free
    /// nothing. Reused memory still waits for the work that used it. Pools over the arena drop their idle
    /// blocks. Waits for a running compaction.
    ///
    /// # Errors
    /// [`Error::Arena`] while a region of a block exists, because its bytes would belong to another block.
    pub fn reset(&self) -> Result<(), Error> {
        fork::check()?;
        self.forget_blocks()?;
        self.core.resets.notify();
        Ok(())
    }

    /// Calls `told` after each reset, until it returns `false`.
    pub(crate) fn on_reset(&self, told: impl Fn() -> bool + Send + Sync + 'static) {
        self.core.resets.tell(told);
    }

    fn forget_blocks(&self) -> Result<(), Error> {
        let _quiet = self.core.changing.lock();
        let mut state = self.core.state.lock();
        if !state.is_awake() {
            drop(state);
            return self.core.wake_empty();
        }
        let State { engine, slots, unsettled, backing, .. } = &mut *state;
        if slots.iter().any(LiveBlock::is_held) {
            return Err(ArenaError::Pinned.into());
        }
        let mut gone = Vec::new();
        for (block, slot) in slots.drain() {
            for &block in [block].iter().chain(slot.more()) {
                let (offset, size) = engine.extent(block);
                gone.extend(unsettled.put(offset..offset + size, slot.users()));
            }
        }
        let backing = backing.as_mut();
        match backing {
            None => engine.reset(),
            Some(backing) => backing.reset(engine)?,
        }
        drop(state);
        drop(gone);
        Ok(())
    }

    /// Replaces the range by one of `bytes` bytes, and forgets all blocks as [`reset`](Self::reset) does.
    ///
    /// The kind of memory and the stable share stay the same. The new range is reserved before the old one is
    /// released (with its last buffer), so a failure changes nothing. In a growing arena only the limit
    /// changes.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device has too little memory for both; [`Error::Arena`] for an invalid size.
    pub fn resize(&self, bytes: u64) -> Result<(), Error> {
        fork::check()?;
        if self.is_growing() {
            return self.set_limit(bytes);
        }
        let quiet = self.core.changing.lock();
        let (capacity, stable, alignment) =
            (self.capacity(), self.capacity_of(Zone::Stable), self.alignment());
        // The quotient is a share of the new size, so it fits; u128 keeps the product exact.
        let stable = (u128::from(stable) * u128::from(bytes) / u128::from(capacity.max(1))) as u64;
        let layout =
            ArenaLayout::new(bytes).alignment(alignment).stable_bytes(stable / alignment * alignment);
        let mut resized = State::reserve(&self.core.device, self.core.kind, layout, bytes)?;
        let mut state = self.core.state.lock();
        resized.peak = state.peak;
        // Pending points and waits do not apply to the new range.
        resized.unsettled = Unsettled::after(&mut state.unsettled);
        resized.reserved_peaks = state.reserved_peaks.clone();
        resized.former_ranges = std::mem::take(&mut state.former_ranges);
        resized.former_ranges.push(&state.range);
        resized.reserved_peaks.note(resized.reserved_bytes());
        let old = std::mem::replace(&mut *state, resized);
        drop(state);
        drop(quiet);
        logging::info!("arena on {}: resized from {capacity} to {bytes} bytes", self.core.id);
        self.core.resets.notify();
        drop(old);
        Ok(())
    }
}
