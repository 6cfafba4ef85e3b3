//! Points in streams.

use crate::driver::RawEvent;
use crate::shared::DeviceCore;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{
    BackendError, Event,
    fork::{self, ForkArc},
};

/// A point in a [`CudaStream`](crate::CudaStream).
#[derive(Debug)]
pub struct CudaEvent {
    pub(crate) raw: Arc<RawEvent>,
    device: ForkArc<DeviceCore>,
}

impl CudaEvent {
    pub(crate) fn new(raw: Arc<RawEvent>, device: &ForkArc<DeviceCore>) -> Self {
        Self { raw, device: device.clone() }
    }
}

impl Event for CudaEvent {
    fn is_complete(&self) -> Result<bool, BackendError> {
        self.raw.is_complete()
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The parent's event: it is never dropped here.
            return mem::forget(Arc::clone(&self.raw));
        }
        self.device.events.recycle(&self.raw);
    }
}
