//! The memory capacity of a device, and the allocations that wait for memory.

use parking_lot::{Condvar, Mutex};
use vrampool_backend::BackendError;

/// Bytes of a device: all, taken, and taken by memory that is dropped but still in use by queued work.
#[derive(Debug)]
pub(crate) struct Capacity {
    bytes: Mutex<Bytes>,
    freed: Condvar,
}

#[derive(Debug)]
struct Bytes {
    total: u64,
    taken: u64,
    dropped: u64,
}

impl Capacity {
    pub(crate) fn new(total: u64) -> Self {
        Self { bytes: Mutex::new(Bytes { total, taken: 0, dropped: 0 }), freed: Condvar::new() }
    }

    pub(crate) fn set_total(&self, total: u64) {
        self.bytes.lock().total = total;
        self.freed.notify_all();
    }

    /// (free, total)
    pub(crate) fn info(&self) -> (u64, u64) {
        let bytes = self.bytes.lock();
        (bytes.total.saturating_sub(bytes.taken), bytes.total)
    }

    /// Takes bytes, after waiting for dropped memory where that may help and `may_wait`.
    pub(crate) fn take(&self, requested: u64, may_wait: bool) -> Result<(), BackendError> {
        let mut bytes = self.bytes.lock();
        loop {
            let free = bytes.total.saturating_sub(bytes.taken);
            if requested <= free {
                bytes.taken += requested;
                return Ok(());
            }
            if !may_wait || bytes.dropped == 0 || requested > free.saturating_add(bytes.dropped) {
                return Err(BackendError::out_of_memory(requested, Some(free)));
            }
            self.freed.wait(&mut bytes);
        }
    }

    /// Waits until memory that was dropped is free. False if none was dropped.
    pub(crate) fn wait_for_dropped(&self) -> bool {
        let mut bytes = self.bytes.lock();
        let before = bytes.dropped;
        while bytes.dropped > 0 && bytes.dropped >= before {
            self.freed.wait(&mut bytes);
        }
        before > 0
    }

    /// Releases what nothing uses.
    pub(crate) fn untake(&self, bytes_taken: u64) {
        let mut bytes = self.bytes.lock();
        bytes.taken -= bytes_taken;
        drop(bytes);
        self.freed.notify_all();
    }

    /// Counts bytes as dropped; queued work may still use them.
    pub(crate) fn drop_later(&self, bytes: u64) {
        self.bytes.lock().dropped += bytes;
    }

    /// Nothing uses what was [dropped](Self::drop_later) any more.
    pub(crate) fn release(&self, dropped: u64) {
        let mut bytes = self.bytes.lock();
        bytes.taken -= dropped;
        bytes.dropped -= dropped;
        drop(bytes);
        self.freed.notify_all();
    }
}
