//! Bytes that an arena reserved on the device.

use super::DeviceArena;
use super::reserved_peaks::ReservedPeak;
use super::state::State;
use vrampool_backend::{Backend, Memory, fork};

impl<B: Backend> State<B> {
    pub(super) fn reserved_bytes(&self) -> u64 {
        match &self.backing {
            Some(backing) => backing.mapped,
            None => self.range.len() + self.former_ranges.bytes(),
        }
    }
}

impl<B: Backend> DeviceArena<B> {
    /// Bytes reserved on the device.
    ///
    /// In a growing arena these are its physical memory, else its range and earlier ones that buffers keep
    /// alive.
    #[must_use]
    pub fn reserved_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.core.state.lock_with_deferred().reserved_bytes() }
    }

    /// Starts to track the peak of [`reserved_bytes`](Self::reserved_bytes).
    pub(crate) fn watch_reserved(&self) -> ReservedPeak {
        let state = self.core.state.lock_with_deferred();
        state.reserved_peaks.watch(state.reserved_bytes())
    }

    /// Restarts a peak from the current value.
    pub(crate) fn reset_reserved(&self, peak: &ReservedPeak) {
        let state = self.core.state.lock_with_deferred();
        peak.restart(state.reserved_bytes());
    }
}
