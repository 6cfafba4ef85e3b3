//! Physical memory that several arenas may have in all.

use super::Shared;
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

impl<B: Backend> Shared<B> {
    /// Takes so much of the allowance, if there is one.
    pub(super) fn take_allowance(&self, bytes: u64) -> Result<(), BackendError> {
        self.allowance.as_ref().map_or(Ok(()), |allowance| allowance.take(bytes))
    }

    pub(super) fn give_allowance(&self, bytes: u64) {
        if let Some(allowance) = &self.allowance {
            allowance.taken.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}
