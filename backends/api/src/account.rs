//! Bytes taken from a device whose driver does not report how many are free.

use crate::BackendError;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The bytes taken from one device, and the limit on them. Numbers only.
#[derive(Debug)]
pub struct Account {
    limit: u64,
    taken: AtomicU64,
}

/// Bytes that count against an account until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    /// An account of at most `limit` bytes, with nothing taken.
    #[must_use]
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit, taken: AtomicU64::new(0) })
    }

    /// The most bytes that can be taken at a time.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes that can still be taken.
    #[must_use]
    pub fn free(&self) -> u64 {
        // Relaxed: a figure for people and for errors; nothing is published with it.
        self.limit.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// Takes `bytes`. The limit holds exactly, under any number of threads.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] when more than the limit would be taken.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge, BackendError> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= self.limit);
        // Relaxed: the count alone decides.
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(Charge { account: Arc::clone(self), bytes }),
            Err(taken) => Err(BackendError::out_of_memory(bytes, Some(self.limit.saturating_sub(taken)))),
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_exact_under_any_number_of_threads() {
        let account = Account::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..10_000 {
                        let charge = account.charge(round % 700);
                        assert!(account.taken.load(Ordering::Relaxed) <= 1000);
                        drop(charge);
                    }
                });
            }
        });
        assert_eq!(account.free(), 1000);
        let _all = account.charge(1000).expect("all is free");
        assert!(account.charge(1).is_err() && account.charge(u64::MAX).is_err());
    }
}
