//! Guards of a miss that is in progress: its reserved bytes, which are released if the source fails, and its
//! position in the retry queue.

use crate::cache::core::PoolCore;
use crate::cache::oom_rung::Rung;
use crate::cache::release::is_giving_back;
use crate::cache::served_by::ServedBy;
use crate::error::Error;

/// Why there is no reservation.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// The pool's limit, bytes.
    Limit(u64),
    /// Nothing may be given back for it now.
    Relief(Error),
}

/// Bytes that a miss may take from the device. Dropped unkept, also by a panic, they are free again.
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

    /// The source gave them. `end` is the end of the highest block if it is an arena of fixed size.
    /// It was asked in that generation.
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

/// The place of a request among those that found the device out of memory. They ask again in the order in
/// which they came; dropped, also by a panic, it lets the next one ask.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pool: &'a PoolCore,
    number: u64,
}

impl<'a> Turn<'a> {
    /// Behind all that are there. None in a destructor, where nobody waits: what others wait for may be what
    /// is being dropped.
    pub(crate) fn begin(pool: &'a PoolCore) -> Option<Self> {
        (!is_giving_back()).then(|| Self { pool, number: pool.depot().turns.begin() })
    }

    /// Waits until those before have their answers.
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
