//! Bytes that an arena reserved on the device, and their peaks, one for each pool over the arena.

use super::DeviceArena;
use super::state::State;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vrampool_backend::{Backend, Memory, fork};

/// The peak of an arena's reserved bytes, for one pool. Relaxed: only the number matters.
#[derive(Debug)]
pub(crate) struct ReservedPeak(Arc<AtomicU64>);

impl ReservedPeak {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The peaks of all pools over an arena. A clone is another handle to them.
#[derive(Debug, Clone, Default)]
pub(super) struct ReservedPeaks(Arc<Mutex<Vec<Weak<AtomicU64>>>>);

impl ReservedPeaks {
    /// Records the reserved bytes. Must be called under the arena's lock.
    pub(super) fn note(&self, bytes: u64) {
        for peak in self.0.lock().iter().filter_map(Weak::upgrade) {
            peak.fetch_max(bytes, Ordering::Relaxed);
        }
    }

    fn watch(&self, bytes: u64) -> ReservedPeak {
        let peak = Arc::new(AtomicU64::new(bytes));
        let mut peaks = self.0.lock();
        peaks.retain(|peak| peak.strong_count() > 0);
        peaks.push(Arc::downgrade(&peak));
        ReservedPeak(peak)
    }
}

/// Ranges that a resize replaced and that buffers keep alive, with their sizes.
#[derive(Debug)]
pub(super) struct FormerRanges<M>(Vec<(Weak<M>, u64)>);

impl<M> Default for FormerRanges<M> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<M: Memory> FormerRanges<M> {
    pub(super) fn push(&mut self, range: &Arc<M>) {
        self.0.retain(|(range, _)| range.strong_count() > 0);
        self.0.push((Arc::downgrade(range), range.len()));
    }

    fn bytes(&self) -> u64 {
        self.0.iter().filter(|(range, _)| range.strong_count() > 0).map(|(_, bytes)| bytes).sum()
    }
}

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
        // Under the lock, so that no concurrent growth is lost.
        let state = self.core.state.lock_with_deferred();
        peak.0.store(state.reserved_bytes(), Ordering::Relaxed);
    }
}
