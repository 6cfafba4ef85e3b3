//! The account of a device's allocated bytes and its limit: numbers only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::BackendError;

/// The bytes taken, of at most so many.
#[derive(Debug)]
pub(crate) struct Account {
    limit: u64,
    taken: AtomicU64,
}

/// Bytes on an account, until it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    pub(crate) fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicU64::new(0) })
    }

    pub(crate) fn free(&self) -> u64 {
        self.limit - self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, BackendError> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= self.limit);
        // Relaxed: a number that publishes nothing.
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Charge { account: Arc::clone(self), bytes }),
            Err(taken) => Err(BackendError::OutOfMemory { requested: bytes, free: Some(self.limit - taken) }),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
