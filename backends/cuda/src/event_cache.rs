//! Driver events that mark points in streams, which are reused.

use crate::driver::{Context, RawEvent};
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::BackendError;

/// How many events a device keeps for later. Making one and destroying it costs more than recording it.
const KEPT: usize = 256;

/// Events that nothing has a point in any more.
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
    pub(crate) fn recycle(&self, event: &Arc<RawEvent>) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT {
            idle.push(Arc::clone(event));
        }
    }
}
