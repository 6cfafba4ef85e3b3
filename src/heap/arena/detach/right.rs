//! The right of a thread to detach or attach an arena.

use parking_lot::MutexGuard as LongGuard;
use std::cell::Cell;

thread_local! {
    /// Number of arenas that this thread is detaching or attaching.
    static CHANGES: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is detaching or attaching an arena: it may be in a callback of that.
pub(crate) fn is_changing_one() -> bool {
    CHANGES.get() > 0
}

/// The lock of changes of an arena that is detached or attached.
pub(super) type Right<'a> = (LongGuard<'a, ()>, Refusal);

/// While it exists, requests of this thread are refused instead of waiting for such a change.
#[derive(Debug)]
pub(crate) struct Refusal(());

impl Refusal {
    pub(crate) fn new() -> Self {
        CHANGES.set(CHANGES.get() + 1);
        Self(())
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        CHANGES.set(CHANGES.get() - 1);
    }
}
