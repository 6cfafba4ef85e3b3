//! Bytes that an arena reserved on the device, and their peak.

use super::DeviceArena;
use super::state::State;
use vrampool_backend::{Backend, fork};

impl<B: Backend> State<B> {
    pub(super) fn reserved_bytes(&self) -> u64 {
        match &self.backing {
            Some(backing) => backing.mapped,
            None => self.range.reserved_bytes(),
        }
    }

    fn reserved_peak(&mut self) -> &mut u64 {
        match &mut self.backing {
            Some(backing) => &mut backing.mapped_peak,
            None => &mut self.peaks.reserved,
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
        if fork::is_child() { 0 } else { self.core.state.lock().reserved_bytes() }
    }

    /// The peak of [`reserved_bytes`](Self::reserved_bytes) since it was restarted.
    pub(crate) fn reserved_peak(&self) -> u64 {
        if fork::is_child() { 0 } else { *self.core.state.lock().reserved_peak() }
    }

    /// Restarts the peak from the current value.
    pub(crate) fn restart_reserved_peak(&self) {
        let mut state = self.core.state.lock();
        *state.reserved_peak() = state.reserved_bytes();
    }
}
