//! Counts what happens beside the paths of requests and frees: failures, errors of the device, waits, times.

use crate::error::Error;
use crate::heap::core::PoolCore;
use crate::heap::stats::outcomes::{DeviceCall, Reason};
use crate::sync::{Instant, unix_seconds};
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::BackendError;

impl PoolCore {
    pub(crate) fn count_failure(&self, reason: Reason) {
        let now = unix_seconds();
        let counters = &mut self.depot().counters;
        counters.failed.add(&mut counters.last_failure, reason, now);
    }

    /// Counts a request that failed because of the device, of a capture or of the pool's state.
    pub(crate) fn count_refusal(&self, error: &Error) {
        match error {
            // Requests of a pool that is asleep have no count: nothing failed.
            Error::Asleep { .. } => {}
            Error::Closed => self.count_failure(Reason::Closed),
            _ => {
                self.note_device_error(DeviceCall::Allocate, error);
                self.count_failure(Reason::Backend);
            }
        }
    }

    /// Counts an error if the device reported it.
    #[cold]
    pub(crate) fn note_device_error(&self, call: DeviceCall, error: &Error) {
        if let Some(error) = error.backend().filter(|error| is_failure(error)) {
            self.is_device_lost.fetch_or(error.is_device_lost(), Relaxed);
            self.depot().counters.device_errors.add(call);
        }
    }

    /// Counts the time of a request that began at `began`.
    pub(crate) fn count_time(&self, began: Instant) {
        let time = began.elapsed();
        self.depot().counters.allocation.add(time);
    }

    #[inline]
    pub(crate) fn count_waits(&self, waits: u64) {
        if waits > 0 {
            self.depot().counters.stream_waits += waits;
        }
    }
}

/// Whether the device reported it, rather than a check of arguments.
fn is_failure(error: &BackendError) -> bool {
    error.is_stream_failed() || matches!(error, BackendError::Driver { .. })
}
