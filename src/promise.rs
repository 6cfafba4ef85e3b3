//! Bytes that were promised to a miss: they count until the source gave them, or did not.

use crate::error::Error;
use crate::served_by::ServedBy;
use crate::shared::Shared;

/// Why there is no promise.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// The pool's limit, bytes.
    Limit(u64),
    /// Nothing may be given back for it now.
    Relief(Error),
}

/// Bytes that a miss may take from the device. Dropped unkept, also by a panic, they are free again.
#[derive(Debug)]
pub(crate) struct Promise<'a> {
    pool: &'a Shared,
    class: u64,
    kept: bool,
}

impl<'a> Promise<'a> {
    pub(crate) fn new(pool: &'a Shared, class: u64) -> Self {
        Self { pool, class, kept: false }
    }

    /// The source gave them; it has had to reserve `reserved` bytes, if it reserves ahead.
    /// It was asked in that generation.
    pub(crate) fn keep(mut self, requested: u64, reserved: u64, generation: u64, server: ServedBy) {
        self.kept = true;
        self.pool.depot().promise_kept(self.class, requested, reserved, generation, server);
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.depot().budget.broken(self.class);
            self.pool.notify_freed();
        }
    }
}
