//! Counters of a depot, and totals of threads' magazines.

use crate::heap::ledger::accounts::Accounts;
use crate::heap::stats::outcomes::{DeviceErrors, Failures, LastFailures};
use crate::heap::stats::table::{Releases, Rungs};
use crate::heap::stats::times::{AllocationTimes, DriverTimes, Waits};

/// Counts since the pool was created.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Out of the depot: live, or idle in a magazine. Counters that opposite paths change are separate, for the
    /// same reason as [`Accounts::requested`](crate::heap::ledger::accounts::Accounts::requested).
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
