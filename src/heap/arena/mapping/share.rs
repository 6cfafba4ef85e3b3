//! The bytes of a [ledger](Ledger) that an arena holds.

use parking_lot::Mutex;
use vrampool_backend::spi::{Grant, Ledger};
use vrampool_backend::{BackendError, Scarce};

/// An arena's share of a ledger. It is returned with the arena.
#[derive(Debug)]
pub(crate) struct Share {
    ledger: Ledger,
    held: Mutex<Grant>,
}

impl Share {
    pub(crate) fn of(ledger: Ledger) -> Self {
        let held = Mutex::new(ledger.force(0));
        Self { ledger, held }
    }

    /// Returns the limit of the arena, for an error.
    pub(crate) fn limit(&self, limit: u64, charged: u64) -> Scarce {
        Scarce::limit(self.ledger.name(), limit, charged)
    }

    /// Adds `bytes`.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<(), BackendError> {
        self.keep(self.ledger.reserve(bytes)?);
        Ok(())
    }

    /// Takes `bytes` out, to be dropped after their memory.
    pub(crate) fn split(&self, bytes: u64) -> Grant {
        self.held.lock().split(bytes)
    }

    /// Puts bytes back that were [taken out](Self::split).
    pub(crate) fn keep(&self, grant: Grant) {
        // All grants are of the same ledger.
        let _ = self.held.lock().merge(grant);
    }
}
