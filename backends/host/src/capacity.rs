//! How much memory a device has, and who waits for it.

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
                return Err(BackendError::OutOfMemory { requested, free: Some(free) });
            }
            self.freed.wait(&mut bytes);
        }
    }

    /// Gives back what was taken for nothing.
    pub(crate) fn untake(&self, bytes: u64) {
        self.bytes.lock().taken -= bytes;
        self.freed.notify_all();
    }

    /// What was taken is dropped; queued work may still use it.
    pub(crate) fn drop_later(&self, bytes: u64) {
        self.bytes.lock().dropped += bytes;
    }

    /// Nothing uses what was [dropped](Self::drop_later) any more.
    pub(crate) fn give_back(&self, dropped: u64) {
        let mut bytes = self.bytes.lock();
        bytes.taken -= dropped;
        bytes.dropped -= dropped;
        drop(bytes);
        self.freed.notify_all();
    }
}
