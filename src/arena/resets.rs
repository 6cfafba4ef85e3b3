//! Resets an arena, and notifies the pools over it.

use super::DeviceArena;
use super::hazards::ranges::Unsettled;
use super::live_block::LiveBlock;
use super::state::State;
use crate::arena::engine::{ArenaError, ArenaLayout, Zone};
use crate::error::Error;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use vrampool_backend::{Backend, fork};

/// Called after a reset; returns whether it is to be called again.
type Told = Arc<dyn Fn() -> bool + Send + Sync>;

/// Pools over an arena, which keep blocks of it idle.
#[derive(Default)]
pub(super) struct Resets(Mutex<Vec<Told>>);

impl Resets {
    pub(super) fn tell(&self, told: impl Fn() -> bool + Send + Sync + 'static) {
        self.0.lock().push(Arc::new(told));
    }

    /// The blocks of before are gone. To be called without any lock: destructors run in here.
    pub(super) fn notify(&self) {
        let all: Vec<Told> = self.0.lock().clone();
        let gone: Vec<Told> = all.into_iter().filter(|told| !told()).collect();
        self.0.lock().retain(|told| !gone.iter().any(|gone| Arc::ptr_eq(gone, told)));
    }
}

impl<B: Backend> DeviceArena<B> {
    /// Forgets all blocks at once: the whole range is free. An arena that is asleep is awake then, with
    /// nothing mapped. Buffers that are still there get errors from then on and give nothing back. Memory is
    /// handed out again behind the work that used it. Pools over the arena give up what they keep idle. Waits
    /// for a compaction to end.
    ///
    /// # Errors
    /// [`Error::Arena`] while a zone of a block exists: its bytes would be somebody else's.
    pub fn reset(&self) -> Result<(), Error> {
        fork::check()?;
        self.forget_blocks()?;
        self.core.resets.notify();
        Ok(())
    }

    /// Calls that after each reset, until it returns `false`.
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

    /// Reserves a range of another size in place of this one, with the same kind of memory and the same share
    /// of it stable, and forgets all blocks as [`reset`](Self::reset) does. The new range is reserved before
    /// the old one is given back (when its last buffer is dropped), so a failure leaves the arena as it was.
    /// Of a growing arena it is the limit that changes, and nothing else.
    ///
    /// # Errors
    /// [`Error::Backend`] when the device has not enough memory for both; [`Error::Arena`] for a size that
    /// cannot be.
    pub fn resize(&self, bytes: u64) -> Result<(), Error> {
        fork::check()?;
        if self.is_growing() {
            return self.set_limit(bytes);
        }
        let quiet = self.core.changing.lock();
        let (capacity, stable, alignment) =
            (self.capacity(), self.capacity_of(Zone::Stable), self.alignment());
        // A share, so its product with the new size fits; u128 keeps it exact on the way.
        let stable = (u128::from(stable) * u128::from(bytes) / u128::from(capacity.max(1))) as u64;
        let layout =
            ArenaLayout::new(bytes).alignment(alignment).stable_bytes(stable / alignment * alignment);
        let mut resized = State::reserve(&self.core.device, self.core.kind, layout, bytes)?;
        let mut state = self.core.state.lock();
        resized.peak = state.peak;
        // Points and waits that are on their way say nothing of the new range.
        resized.unsettled = Unsettled::after(&mut state.unsettled);
        resized.reserved_peaks = state.reserved_peaks.clone();
        resized.former_ranges = std::mem::take(&mut state.former_ranges);
        resized.former_ranges.push(&state.range);
        resized.reserved_peaks.note(resized.reserved_bytes());
        let old = std::mem::replace(&mut *state, resized);
        drop(state);
        drop(quiet);
        log::info!("arena on {}: resized from {capacity} to {bytes} bytes", self.core.id);
        self.core.resets.notify();
        drop(old);
        Ok(())
    }
}

impl fmt::Debug for Resets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resets").field("told", &self.0.lock().len()).finish()
    }
}
