//! The bytes that memory counts for in a driver pool, and the hooks that its release calls.

use crate::driver_pool_core::DriverPoolCore;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::spi::{Hooks, Occasion};
use vrampool_backend::{HookEvent, Outcome, fork};

/// What a memory counts as allocated, until it is dropped. Keeps its pool alive.
pub(crate) struct Charge {
    pool: Arc<DriverPoolCore>,
    bytes: u64,
    told: Option<Arc<Told>>,
}

/// Hooks that were called for a request, and what they are called with for its free.
struct Told {
    hooks: Hooks,
    event: HookEvent<'static>,
}

/// Calls the hooks, when it is dropped, for the free of the memory.
pub(crate) struct Leave(Arc<Told>);

impl Charge {
    /// For bytes that the pool counts already.
    pub(crate) fn new(pool: Arc<DriverPoolCore>, bytes: u64) -> Self {
        Self { pool, bytes, told: None }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Calls the hooks for the free of memory whose request they were called for.
    pub(crate) fn tell(&mut self, hooks: &Hooks, event: HookEvent<'static>) {
        self.told = Some(Arc::new(Told { hooks: hooks.clone(), event }));
    }

    /// What is to be dropped before the memory is.
    pub(crate) fn leave(&self) -> Option<Leave> {
        self.told.clone().map(Leave)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if fork::is_child() {
            // The pool is the parent's: it is never dropped here.
            return std::mem::forget(Arc::clone(&self.pool));
        }
        // Relaxed, as all of the count: nothing is published with it.
        self.pool.live_bytes.fetch_sub(self.bytes, Relaxed);
        if let Some(told) = &self.told {
            let event = HookEvent::clone(&told.event).with(Outcome::Done);
            told.hooks.after(Occasion::Free, &event);
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        if !fork::is_child() {
            self.0.hooks.before(Occasion::Free, &self.0.event);
        }
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Leave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leave").field(&self.0.event).finish()
    }
}
