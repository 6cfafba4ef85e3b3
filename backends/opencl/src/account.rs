//! The account of a device's allocated bytes and its limit: numbers only.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What one context has taken. OpenCL does not tell how much of a device's memory is free, so this counts its
/// own.
#[derive(Debug)]
pub(crate) struct Account {
    limit: u64,
    taken: AtomicU64,
}

/// Bytes on an account, until dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    account: Arc<Account>,
    bytes: u64,
}

impl Account {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, taken: AtomicU64::new(0) }
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn free(&self) -> u64 {
        // Relaxed: a figure for people and for errors; nothing is published with it.
        self.limit.saturating_sub(self.taken.load(Ordering::Relaxed))
    }

    /// `None` when they would go over the limit.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= self.limit);
        // Relaxed: the count alone decides.
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Charge { account: Arc::clone(self), bytes })
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
        let account = Arc::new(Account::new(1000));
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
        assert!(account.charge(1).is_none() && account.charge(u64::MAX).is_none());
    }
}
