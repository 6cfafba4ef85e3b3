//! Counters of a depot, the functions that count beside the paths of requests, and totals of threads' magazines.

use crate::error::Error;
use crate::heap::accounts::Accounts;
use crate::heap::core::PoolCore;
use crate::heap::stats::outcomes::{DeviceCall, DeviceErrors, Failures, LastFailures, Reason};
use crate::heap::stats::table::{Releases, Rungs};
use crate::heap::stats::times::{AllocationTimes, DriverTimes, Waits};
use crate::sync::{Instant, unix_seconds};
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::BackendError;

/// Counts since the pool was created.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Out of the depot: live, or idle in a magazine. Counters that opposite paths change are separate, for the
    /// same reason as [`Accounts::requested`](crate::heap::accounts::Accounts::requested).
    pub(crate) live_buffers: u64,
    pub(crate) stream_waits: u64,
    pub(crate) source_allocations: u64,
    /// Requests for which the driver was called.
    pub(crate) served_by_driver: u64,
    /// The part of `stream_waits` for memory that another stream used before.
    pub(crate) reuse_waits: u64,
    pub(crate) source_frees: u64,
    pub(crate) released: Releases,
    pub(crate) rungs: Rungs,
    pub(crate) failed: Failures,
    pub(crate) last_failure: LastFailures,
    pub(crate) device_errors: DeviceErrors,
    pub(crate) waits: Waits,
    pub(crate) driver: DriverTimes,
    pub(crate) allocation: AllocationTimes,
}

/// Totals of idle buffers in threads' magazines, and the bytes requested by live buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InMagazines {
    pub(crate) buffers: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
}

/// Bytes of a pool at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BytesNow {
    pub(crate) live: u64,
    pub(crate) requested: u64,
    pub(crate) idle: u64,
}

impl InMagazines {
    /// The bytes of the pool with these accounts.
    pub(crate) fn bytes_now(&self, accounts: &Accounts) -> BytesNow {
        let live = accounts.now.out - self.bytes;
        BytesNow { live, requested: self.requested.min(live), idle: accounts.now.cached + self.bytes }
    }
}

impl PoolCore {
    pub(crate) fn count_failure(&self, reason: Reason) {
        let now = unix_seconds();
        let counters = &mut self.depot().counters;
        counters.failed.add(&mut counters.last_failure, reason, now);
    }

    /// Counts a request that failed because of the device or of a capture.
    pub(crate) fn count_device_failure(&self, error: &Error) {
        self.note_device_error(DeviceCall::Allocate, error);
        self.count_failure(Reason::Backend);
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
