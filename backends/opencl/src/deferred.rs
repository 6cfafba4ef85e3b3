//! Memory that was dropped while work may still use its address.
//!
//! The driver keeps a buffer that queued work uses. Of shared and of mapped memory it knows an address alone, and freeing
//! that under a kernel is a page fault of the device. So the end of the work is marked when such memory is dropped, and it
//! is freed when the marks are reached. That is asked whenever memory comes or goes, and waited for only where memory is
//! short.

use crate::driver::{Allocation, RawEvent};
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::BackendError;

/// Dropped memory of one device, in the order of dropping.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    waiting: Mutex<Vec<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    work: Vec<RawEvent>,
    allocation: Arc<Allocation>,
}

impl Deferred {
    pub(crate) fn push(&self, work: Vec<RawEvent>, allocation: Arc<Allocation>) {
        self.waiting.lock().push(Waiting { work, allocation });
        self.sweep();
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.waiting.lock().iter().map(|waiting| waiting.allocation.len()).sum()
    }

    /// Frees what no work uses any more. Never blocks.
    pub(crate) fn sweep(&self) {
        self.free_where(|event| event.is_complete());
    }

    /// Waits for the work, and frees all. Answers whether there was something to free.
    pub(crate) fn finish(&self) -> bool {
        self.free_where(|event| event.wait().map(|()| true))
    }

    fn free_where(&self, is_done: impl Fn(&RawEvent) -> Result<bool, BackendError>) -> bool {
        // The driver is asked, and memory freed, outside the lock.
        let mut waiting = std::mem::take(&mut *self.waiting.lock());
        let before = waiting.len();
        // Work that failed is over. A device that is lost does none.
        waiting.retain_mut(|waiting| {
            waiting.work.retain(|event| !is_done(event).unwrap_or(true));
            !waiting.work.is_empty()
        });
        let freed = waiting.len() < before;
        if !waiting.is_empty() {
            self.waiting.lock().append(&mut waiting);
        }
        freed
    }
}
