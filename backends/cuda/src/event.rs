//! Points in streams, and the driver events that mark them, which are reused.

use crate::device::DeviceCore;
use crate::driver::{Context, RawEvent};
use parking_lot::Mutex;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{BackendError, Event, fork};

/// How many events a device keeps for later. Making one and destroying it costs more than recording it.
const KEPT: usize = 256;

/// Events that nobody has a point in any more.
#[derive(Debug, Default)]
pub(crate) struct EventCache {
    idle: Mutex<Vec<Arc<RawEvent>>>,
}

impl EventCache {
    pub(crate) fn take(&self, context: &Context) -> Result<Arc<RawEvent>, BackendError> {
        // Out of the lock before the driver is called.
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| RawEvent::new(context).map(Arc::new), Ok)
    }

    /// Work that waits for the point goes on waiting for it, not for where the event is recorded next.
    fn give_back(&self, event: &Arc<RawEvent>) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(Arc::clone(event));
        }
    }
}

/// A point in a [`CudaStream`](crate::CudaStream).
#[derive(Debug)]
pub struct CudaEvent {
    raw: Arc<RawEvent>,
    device: Arc<DeviceCore>,
}

impl CudaEvent {
    pub(crate) fn new(raw: Arc<RawEvent>, device: &Arc<DeviceCore>) -> Self {
        Self { raw, device: Arc::clone(device) }
    }

    pub(crate) fn raw(&self) -> &RawEvent {
        &self.raw
    }
}

impl Event for CudaEvent {
    fn is_complete(&self) -> Result<bool, BackendError> {
        self.raw.is_complete()
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        if fork::is_child() {
            // Both are the parent's: they are never dropped here.
            return mem::forget((Arc::clone(&self.raw), Arc::clone(&self.device)));
        }
        self.device.events().give_back(&self.raw);
    }
}
