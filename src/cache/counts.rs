//! Counters of a depot, and totals of threads' magazines.

use crate::cache::oom_rung::Rung;
use crate::cache::stats::groups::Failures;

/// Counts since the pool was created.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Out of the depot: live, or idle in a magazine. Counters that opposite paths change are apart, for the
    /// same reason as [`Accounts::requested`](crate::cache::accounts::Accounts::requested).
    pub(crate) live_buffers: u64,
    pub(crate) drops_over_count: u64,
    pub(crate) source_allocations: u64,
    /// Requests for which the driver was called.
    pub(crate) served_by_driver: u64,
    pub(crate) drops_over_bytes: u64,
    pub(crate) source_frees: u64,
    pub(crate) evictions: u64,
    pub(crate) stream_waits: u64,
    pub(crate) rungs: [u64; Rung::ALL.len()],
    pub(crate) failed: Failures,
}

/// Totals of idle buffers in threads' magazines, and the bytes requested by live buffers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InMagazines {
    pub(crate) buffers: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
}
