//! The state that all handles of a device share.

use crate::capacity::Capacity;
use crate::driver::{Claims, Slabs};
use crate::fault::Faults;
#[cfg(target_os = "linux")]
use crate::file::Files;
use std::sync::Arc;
use std::time::Duration;
use vrampool_backend::{DeviceId, Properties};

/// The common state of a device's handles, streams and memory.
#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) id: DeviceId,
    pub(crate) properties: Properties,
    pub(crate) capacity: Capacity,
    pub(crate) claims: Claims,
    pub(crate) slabs: Arc<Slabs>,
    pub(crate) faults: Faults,
    pub(crate) allocation_latency: Duration,
    pub(crate) work_latency: Duration,
    #[cfg(target_os = "linux")]
    pub(crate) granularity: u64,
    #[cfg(target_os = "linux")]
    pub(crate) files: Files,
}

impl DeviceCore {
    /// Bytes that the control group of the process leaves; `None` where it does not limit this device.
    pub(crate) fn group_bytes(&self) -> Option<u64> {
        #[cfg(target_os = "linux")]
        if self.slabs.ranges().are_committed() {
            return crate::committed::available_bytes();
        }
        None
    }

    pub(crate) fn pause_before_allocation(&self) {
        pause(self.allocation_latency);
    }

    pub(crate) fn pause_before_work(&self) {
        pause(self.work_latency);
    }
}

/// Simulates a slow device; orders nothing.
fn pause(latency: Duration) {
    if !latency.is_zero() {
        std::thread::sleep(latency);
    }
}
