//! Memory that was dropped while work may still use its address.
//!
//! The driver keeps a buffer that queued work uses. Of shared and of mapped memory it knows an address alone,
//! and freeing that under a kernel is a page fault of the device. So the end of the work is marked when such
//! memory is dropped, and it is freed when the marks are reached. That is asked whenever memory comes or
//! goes, and waited for only where memory is short.

use crate::driver::{Allocation, RawEvent};
use crate::releases::Releases;
use crate::stream_core::StreamPoint;
use parking_lot::{Mutex, ReentrantMutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool_backend::BackendError;

/// Dropped memory of one device, in the order of dropping.
#[derive(Debug)]
pub(crate) struct Deferred {
    waiting: Mutex<Vec<Waiting>>,
    /// Bytes there, and of what a thread looks through.
    bytes: AtomicU64,
    /// Held by the thread that looks through it.
    look: ReentrantMutex<()>,
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
        Self {
            waiting: Mutex::default(),
            bytes: AtomicU64::new(0),
            look: ReentrantMutex::default(),
            releases,
        }
    }

    /// Frees memory that `work` uses, when that is done.
    pub(crate) fn push(&self, work: Vec<StreamPoint>, allocation: Arc<Allocation>) {
        if work.is_empty() {
            return self.release(allocation);
        }
        // Relaxed, here and below: only the number matters.
        self.bytes.fetch_add(allocation.len(), Relaxed);
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
        self.bytes.load(Relaxed) + self.releases.as_ref().map_or(0, Releases::bytes)
    }

    /// Frees what no work uses any more. Never blocks for work.
    pub(crate) fn sweep(&self) {
        if let Some(_look) = self.look.try_lock() {
            self.free_where(|event| event.is_complete());
        }
    }

    /// Waits for the work, and frees all that was dropped before.
    pub(crate) fn finish(&self) {
        // Memory that another thread is checking is dropped, too.
        let look = self.look.lock();
        self.free_where(|event| event.wait().map(|()| true));
        drop(look);
        if let Some(releases) = &self.releases {
            releases.finish();
        }
    }

    fn free_where(&self, is_done: impl Fn(&RawEvent) -> Result<bool, BackendError>) {
        // The driver is called, and memory is freed, outside the lock that drops of memory take.
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let mut still = Vec::new();
        for Waiting { mut work, allocation } in waiting {
            // Work that failed is over. A device that is lost does none.
            work.retain(|mark| mark.event().is_some_and(|event| !is_done(event).unwrap_or(true)));
            if work.is_empty() {
                let bytes = allocation.len();
                self.release(allocation);
                self.bytes.fetch_sub(bytes, Relaxed);
            } else {
                still.push(Waiting { work, allocation });
            }
        }
        if !still.is_empty() {
            self.waiting.lock().append(&mut still);
        }
    }
}
