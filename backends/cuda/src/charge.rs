//! The bytes that memory counts for in a driver pool, and the hooks that its release calls.

use crate::driver_pool_core::DriverPoolCore;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::spi::{Hooks, Occasion};
use vrampool_backend::{HookEvent, Outcome, fork};

/// The bytes that a memory counts as allocated, until it is dropped. Keeps its pool alive.
pub(crate) struct Charge {
    pool: Arc<DriverPoolCore>,
    bytes: u64,
    free_hooks: Option<Arc<FreeHooks>>,
}

/// Hooks that were called for a request, and the event of its free, with which they are called again.
struct FreeHooks {
    hooks: Hooks,
    event: HookEvent<'static>,
}

/// Calls the hooks, when it is dropped, for the free of the memory.
pub(crate) struct Leave(Arc<FreeHooks>);

impl Charge {
    /// For bytes that the pool counts already.
    pub(crate) fn new(pool: Arc<DriverPoolCore>, bytes: u64) -> Self {
        Self { pool, bytes, free_hooks: None }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Sets the hooks that are called when the memory is freed.
    pub(crate) fn call_on_free(&mut self, hooks: &Hooks, event: HookEvent<'static>) {
        self.free_hooks = Some(Arc::new(FreeHooks { hooks: hooks.clone(), event }));
    }

    /// Returns a value to drop before the memory is dropped.
    pub(crate) fn leave(&self) -> Option<Leave> {
        self.free_hooks.clone().map(Leave)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The pool is the parent's: it is never dropped here.
            return std::mem::forget(Arc::clone(&self.pool));
        }
        // Relaxed, as all of the count: nothing is published with it.
        self.pool.live_bytes.fetch_sub(self.bytes, Relaxed);
        if let Some(free_hooks) = &self.free_hooks {
            let event = HookEvent::clone(&free_hooks.event).with(Outcome::Done);
            free_hooks.hooks.after(Occasion::Free, &event);
        }
    }
}

impl Drop for Leave {
    fn drop(&mut self) {
        if !fork::is_forked() {
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
