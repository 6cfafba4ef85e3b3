//! Physical memory that several arenas may have in all.

use super::Shared;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::{Backend, BackendError};

/// A limit on bytes, and how much of it is taken.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit: u64,
    taken: AtomicU64,
}

impl Allowance {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, taken: AtomicU64::new(0) }
    }

    fn take(&self, bytes: u64) -> Result<(), BackendError> {
        // Relaxed: only the number matters, nothing is published with it.
        let more = |taken: u64| taken.checked_add(bytes).filter(|&taken| taken <= self.limit);
        match self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(taken) => Err(BackendError::OutOfMemory {
                requested: bytes,
                free: Some(self.limit.saturating_sub(taken)),
            }),
        }
    }
}

/// What an arena has of an allowance, if there is one; given back with the arena.
#[derive(Debug)]
pub(super) struct Share {
    allowance: Option<Arc<Allowance>>,
    taken: AtomicU64,
}

impl Share {
    pub(super) fn of(allowance: Option<Arc<Allowance>>) -> Self {
        Self { allowance, taken: AtomicU64::new(0) }
    }

    fn give(&self, bytes: u64) {
        if let Some(allowance) = &self.allowance {
            self.taken.fetch_sub(bytes, Ordering::Relaxed);
            allowance.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.give(self.taken.load(Ordering::Relaxed));
    }
}

impl<B: Backend> Shared<B> {
    /// Takes so much of the allowance.
    pub(super) fn take_allowance(&self, bytes: u64) -> Result<(), BackendError> {
        if let Some(allowance) = &self.share.allowance {
            allowance.take(bytes)?;
            self.share.taken.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(super) fn give_allowance(&self, bytes: u64) {
        self.share.give(bytes);
    }
}
