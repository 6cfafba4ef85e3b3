//! The account of pinned bytes and its limit, which depends on the host's memory.

use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::fork;

/// Part of the host's memory that may be pinned, and above which an array goes to a file (as in CuBIE).
pub(crate) const HOST_FRACTION: f64 = 0.8;

/// The account of pinned memory. Bytes in use and bytes kept for reuse together stay within the budget. A
/// clone is a handle to the same account.
#[derive(Debug, Clone)]
pub(crate) struct PinnedLedger {
    account: Arc<Account>,
}

#[derive(Debug)]
struct Account {
    budget: u64,
    bytes: Mutex<Bytes>,
}

#[derive(Debug, Default)]
struct Bytes {
    live: u64,
    retained: u64,
}

/// Accounted pinned bytes. Dropping the reservation releases them.
#[derive(Debug)]
#[must_use]
pub(crate) struct PinnedReservation {
    account: Arc<Account>,
    bytes: u64,
    is_retained: bool,
}

impl PinnedLedger {
    /// Creates an account of at most `budget` bytes.
    #[must_use]
    pub(crate) fn new(budget: u64) -> Self {
        Self { account: Arc::new(Account { budget, bytes: Mutex::default() }) }
    }

    /// Reserves `bytes` bytes, or returns `None` if they exceed the budget, or in a forked child.
    #[must_use]
    pub(crate) fn reserve(&self, bytes: u64) -> Option<PinnedReservation> {
        if fork::is_child() {
            return None;
        }
        let mut account = self.account.bytes.lock();
        let held = account.live.saturating_add(account.retained);
        if bytes > self.account.budget.saturating_sub(held) {
            return None;
        }
        account.live += bytes;
        drop(account);
        Some(PinnedReservation { account: Arc::clone(&self.account), bytes, is_retained: false })
    }

    /// Reserves `bytes` bytes, if necessary beyond the budget, for memory that is indispensable.
    pub(crate) fn force(&self, bytes: u64) -> PinnedReservation {
        if fork::is_child() {
            // Not accounted for in a child, so nothing is released.
            return PinnedReservation { account: Arc::clone(&self.account), bytes: 0, is_retained: false };
        }
        let mut account = self.account.bytes.lock();
        let bytes = bytes.min(u64::MAX - account.live.saturating_add(account.retained));
        account.live += bytes;
        drop(account);
        PinnedReservation { account: Arc::clone(&self.account), bytes, is_retained: false }
    }

    /// Returns the limit, bytes.
    #[must_use]
    pub(crate) fn budget(&self) -> u64 {
        self.account.budget
    }

    /// Returns the bytes in use.
    #[must_use]
    pub(crate) fn live_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.account.bytes.lock().live }
    }

    /// Returns the bytes that are unused and kept for reuse.
    #[must_use]
    pub(crate) fn retained_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.account.bytes.lock().retained }
    }
}

impl PinnedReservation {
    /// Sets whether the bytes are kept for reuse rather than in use.
    pub(crate) fn set_retained(&mut self, is_retained: bool) {
        if self.is_retained == is_retained {
            return;
        }
        let mut account = self.account.bytes.lock();
        let Bytes { live, retained } = &mut *account;
        let (from, to) = if is_retained { (live, retained) } else { (retained, live) };
        *from -= self.bytes;
        *to += self.bytes;
        drop(account);
        self.is_retained = is_retained;
    }
}

impl Drop for PinnedReservation {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        let mut account = self.account.bytes.lock();
        if self.is_retained {
            account.retained -= self.bytes;
        } else {
            account.live -= self.bytes;
        }
    }
}

/// Returns the budget: at most `most`, and at most 0.8 of the host's memory if that is known.
pub(crate) fn budget(most: u64, host: Option<u64>) -> u64 {
    host.map_or(most, |bytes| most.min((bytes as f64 * HOST_FRACTION) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn test_pinned_budget_counts_all_live_allocations() {
        let ledger = PinnedLedger::new(1024);
        let first = ledger.reserve(768);
        assert!(first.is_some());
        assert!(ledger.reserve(768).is_none());
        let second = ledger.reserve(128);
        assert!(second.is_some());
        assert_eq!(ledger.live_bytes(), 896);
    }

    #[test]
    fn test_pinned_release_returns_budget() {
        let ledger = PinnedLedger::new(1024);
        let mut kept = ledger.reserve(1024).expect("all of it");
        kept.set_retained(true);
        assert_eq!((ledger.live_bytes(), ledger.retained_bytes()), (0, 1024));
        assert!(ledger.reserve(1).is_none(), "what is kept counts");
        kept.set_retained(false);
        assert_eq!((ledger.live_bytes(), ledger.retained_bytes()), (1024, 0));
        drop(kept);
        assert!(ledger.reserve(1024).is_some());
    }

    #[test]
    fn test_concurrent_pinned_reservations_respect_budget() {
        let ledger = PinnedLedger::new(8 * 128);
        let barrier = Barrier::new(16);
        let granted: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|_| {
                    scope.spawn(|| {
                        let reservation = ledger.reserve(128);
                        barrier.wait();
                        usize::from(reservation.is_some())
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!((granted, ledger.live_bytes()), (8, 0));
    }

    #[test]
    fn test_forced_pinned_reservation_exceeds_budget() {
        let ledger = PinnedLedger::new(128);
        let forced = ledger.force(1024);
        assert_eq!((forced.bytes, ledger.live_bytes()), (1024, 1024));
        assert!(ledger.reserve(1).is_none());
        let most = ledger.force(u64::MAX);
        drop((forced, most));
        assert_eq!(ledger.live_bytes(), 0);
    }

    #[test]
    fn test_pinned_budget_capped_by_ram_fraction() {
        assert_eq!(budget(10_000, Some(1000)), 800);
        assert_eq!(budget(500, Some(1000)), 500);
        assert_eq!(budget(500, None), 500);
    }
}
