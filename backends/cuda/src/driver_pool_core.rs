//! The state that all handles of a driver pool, and its memory, share.

use crate::driver::RawPool;
use crate::shared::DeviceCore;
use std::fmt;
use std::sync::atomic::AtomicU64;
use vrampool_backend::fork::ForkArc;

/// The common state of the handles to a driver pool.
pub(crate) struct DriverPoolCore {
    pub(crate) device: ForkArc<DeviceCore>,
    pub(crate) raw: RawPool,
    /// Bytes allocated by this pool, rounded.
    pub(crate) live_bytes: AtomicU64,
    pub(crate) limit: AtomicU64,
}

impl fmt::Debug for DriverPoolCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverPoolCore")
            .field("device", &self.device.listed().ordinal)
            .field("raw", &self.raw)
            .field("live_bytes", &self.live_bytes)
            .field("limit", &self.limit)
            .finish()
    }
}
