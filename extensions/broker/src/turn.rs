//! The lock that serializes commits.

use crate::error::BrokerError;
use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// A lock held during callbacks to clients. Its owner gets an error instead of a deadlock.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    lock: Mutex<()>,
    owner: Mutex<Option<ThreadId>>,
    waits: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct TurnGuard<'a> {
    turn: &'a Turn,
    _lock: MutexGuard<'a, ()>,
}

impl Turn {
    pub(crate) fn take(&self) -> Result<TurnGuard<'_>, BrokerError> {
        let this = std::thread::current().id();
        if *self.owner.lock() == Some(this) {
            return Err(BrokerError::Reentrant);
        }
        let lock = self.lock.try_lock().unwrap_or_else(|| {
            // Relaxed: a statistic.
            self.waits.fetch_add(1, Ordering::Relaxed);
            self.lock.lock()
        });
        *self.owner.lock() = Some(this);
        Ok(TurnGuard { turn: self, _lock: lock })
    }

    pub(crate) fn waits(&self) -> u64 {
        self.waits.load(Ordering::Relaxed)
    }
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        *self.turn.owner.lock() = None;
    }
}
