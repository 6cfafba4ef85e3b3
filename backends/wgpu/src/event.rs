//! Events: points in the submission order of a device.

use crate::batch::Batch;
use crate::shared::DeviceCore;
use vrampool_backend::{
    BackendError, Event,
    fork::{self, ForkArc},
};

/// A point in a [`WgpuStream`](crate::WgpuStream).
///
/// Making one does not submit anything. Asking it does, if what it marks is not submitted yet, so that it
/// comes true.
///
/// wgpu reports completed work to one thread at a time, by callbacks. So while a callback of the program's runs,
/// an event may be known to be complete only when that has returned, or when the host has waited for the
/// stream.
#[derive(Debug)]
pub struct WgpuEvent {
    pub(crate) batch: ForkArc<Batch>,
    pub(crate) device: ForkArc<DeviceCore>,
}

impl Event for WgpuEvent {
    fn is_complete(&self) -> Result<bool, BackendError> {
        fork::check()?;
        let gpu = &self.device.gpu;
        if self.batch.outcome().is_none() {
            self.device.recorder.submit_through(gpu, &self.batch)?;
        }
        match self.batch.outcome() {
            Some(Ok(number)) => gpu.is_done(number),
            Some(Err(error)) => Err(error),
            // A callback of wgpu's asks, from within the submission.
            None => Ok(false),
        }
    }
}
