//! Peaks of the bytes that an arena reserved on the device, one for each pool over the arena.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The peak of an arena's reserved bytes, for one pool. Relaxed: only the number matters.
#[derive(Debug)]
pub(crate) struct ReservedPeak(Arc<AtomicU64>);

impl ReservedPeak {
    pub(crate) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Restarts the peak. Must be called under the arena's lock, so that no concurrent growth is lost.
    pub(super) fn restart(&self, bytes: u64) {
        self.0.store(bytes, Ordering::Relaxed);
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

    pub(super) fn watch(&self, bytes: u64) -> ReservedPeak {
        let peak = Arc::new(AtomicU64::new(bytes));
        let mut peaks = self.0.lock();
        peaks.retain(|peak| peak.strong_count() > 0);
        peaks.push(Arc::downgrade(&peak));
        ReservedPeak(peak)
    }
}
