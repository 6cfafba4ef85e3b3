//! Guards of a pending miss: its reserved bytes, and its position in the retry queue.

use crate::cache::core::PoolCore;
use crate::cache::oom_rung::Rung;
use crate::cache::release::is_giving_back;
use crate::cache::served_by::ServedBy;
use crate::error::Error;

/// Why a reservation was refused.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// The pool's limit, bytes.
    Limit(u64),
    /// The program has closed the pool.
    Closed,
    /// Releasing memory for it is not allowed now.
    Relief(Error),
}

/// Bytes that a miss may take from the device. Dropping it uncommitted, also by a panic, cancels them.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    pool: &'a PoolCore,
    class: u64,
    kept: bool,
}

impl<'a> Reservation<'a> {
    pub(crate) fn new(pool: &'a PoolCore, class: u64) -> Self {
        Self { pool, class, kept: false }
    }

    /// Commits the bytes that the source delivered when asked in `generation`. `end` is the end of the
    /// highest block in an arena of fixed size.
    pub(crate) fn commit(mut self, requested: u64, end: u64, generation: u64, server: ServedBy) {
        self.kept = true;
        self.pool.depot().commit_reservation(self.class, requested, end, generation, server);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.depot().accounts.cancel(self.class);
            self.pool.notify_freed();
        }
    }
}

/// The position of a request among those that found the device out of memory. They retry in order of arrival.
/// Dropping it, also by a panic, lets the next request retry.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pool: &'a PoolCore,
    number: u64,
}

impl<'a> Turn<'a> {
    /// Queues a request behind all others. Returns `None` in a destructor, which must not wait: the memory
    /// that others wait for may be the memory being dropped.
    pub(crate) fn begin(pool: &'a PoolCore) -> Option<Self> {
        (!is_giving_back()).then(|| Self { pool, number: pool.depot().turns.begin() })
    }

    /// Waits until all earlier requests have finished.
    pub(crate) fn wait(&self) {
        let mut depot = self.pool.depot();
        if !depot.turns.is_next(self.number) {
            depot.count(Rung::Wait);
        }
        while !depot.turns.is_next(self.number) {
            depot = self.pool.wait_for_freed(depot);
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if self.pool.depot().turns.end(self.number) {
            self.pool.notify_freed();
        }
    }
}
