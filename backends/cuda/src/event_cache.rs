//! A cache of the driver's events, which mark points in streams.

use crate::driver::{Context, RawEvent};
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::BackendError;

/// Most idle events that a device keeps. Creating and destroying an event takes longer than recording it.
const KEPT: usize = 256;

/// Events without a recorded point in use.
#[derive(Debug, Default)]
pub(crate) struct EventCache {
    idle: Mutex<Vec<Arc<RawEvent>>>,
}

impl EventCache {
    pub(crate) fn take(&self, context: &Context) -> Result<Arc<RawEvent>, BackendError> {
        // The lock is released before the driver is called.
        let idle = self.idle.lock().pop();
        idle.map_or_else(|| RawEvent::new(context).map(Arc::new), Ok)
    }

    /// Keeps an event for reuse. Work that waits for its old point still waits for that point, not for a later record.
    pub(crate) fn recycle(&self, event: &Arc<RawEvent>) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(Arc::clone(event));
        }
    }
}
