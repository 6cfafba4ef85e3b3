//! Memory that was dropped while work may still use its address.
//!
//! The driver keeps a buffer that queued work uses. Of shared and of mapped memory it knows an address alone,
//! and freeing that under a kernel is a page fault of the device. So the end of the work is marked when such
//! memory is dropped, and it is freed when the marks are reached. That is asked whenever memory comes or
//! goes, and waited for only where memory is short.

use crate::driver::{Allocation, RawEvent};
use crate::releases::Releases;
use crate::stream_core::StreamPoint;
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::BackendError;

/// Dropped memory of one device, in the order of dropping.
#[derive(Debug)]
pub(crate) struct Deferred {
    waiting: Mutex<Vec<Waiting>>,
    /// Where releasing memory may wait for the device.
    releases: Option<Releases>,
}

#[derive(Debug)]
struct Waiting {
    work: Vec<StreamPoint>,
    allocation: Arc<Allocation>,
}

impl Deferred {
    pub(crate) fn new(releases: Option<Releases>) -> Self {
        Self { waiting: Mutex::default(), releases }
    }

    /// Frees memory that `work` uses, when that is done.
    pub(crate) fn push(&self, work: Vec<StreamPoint>, allocation: Arc<Allocation>) {
        if work.is_empty() {
            return self.release(allocation);
        }
        self.waiting.lock().push(Waiting { work, allocation });
        self.sweep();
    }

    fn release(&self, allocation: Arc<Allocation>) {
        if let Some(releases) = &self.releases {
            releases.push(allocation);
        }
    }

    /// Bytes that were dropped and are not free yet.
    pub(crate) fn bytes(&self) -> u64 {
        let waiting: u64 = self.waiting.lock().iter().map(|waiting| waiting.allocation.len()).sum();
        waiting + self.releases.as_ref().map_or(0, Releases::bytes)
    }

    /// Frees what no work uses any more. Never blocks.
    pub(crate) fn sweep(&self) {
        self.free_where(|event| event.is_complete());
    }

    /// Waits for the work, and frees all. Answers whether there was something to free.
    pub(crate) fn finish(&self) -> bool {
        let freed = self.free_where(|event| event.wait().map(|()| true));
        self.releases.as_ref().is_some_and(Releases::finish) || freed
    }

    fn free_where(&self, is_done: impl Fn(&RawEvent) -> Result<bool, BackendError>) -> bool {
        // The driver is asked, and memory freed, outside the lock.
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let (mut still, mut freed) = (Vec::new(), false);
        for Waiting { mut work, allocation } in waiting {
            // Work that failed is over. A device that is lost does none.
            work.retain(|mark| mark.event().is_some_and(|event| !is_done(event).unwrap_or(true)));
            if work.is_empty() {
                freed = true;
                self.release(allocation);
            } else {
                still.push(Waiting { work, allocation });
            }
        }
        if !still.is_empty() {
            self.waiting.lock().append(&mut still);
        }
        freed
    }
}
