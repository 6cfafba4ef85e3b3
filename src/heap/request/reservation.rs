//! The reserved bytes of a pending miss.

use crate::error::Error;
use crate::heap::core::{Block, Depot, PoolCore};
use crate::source::Key;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use vrampool_backend::MemoryKind;

/// Why a reservation was refused.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// No reservation is needed: a block became idle that serves the request.
    Idle,
    /// Memory in transit, or what earlier requests wait for, has to be awaited.
    Wait,
    /// A limit.
    Limit,
    /// A limit, which has room only for bytes that earlier requests wait for.
    Reserved,
    /// A capture forbids a release of memory, or the pool is closed or asleep.
    Refused(Error),
}

/// Bytes that a miss may take from the device. Dropping it uncommitted, also by a panic, cancels them.
#[derive(Debug)]
pub(crate) struct Reservation<'a> {
    pool: &'a PoolCore,
    class: u64,
    /// A record for the memory, if one was kept.
    pub(super) record: Option<Box<Block>>,
}

impl<'a> Reservation<'a> {
    /// Of `class` bytes that are reserved.
    pub(crate) fn new(pool: &'a PoolCore, class: u64) -> Self {
        Self { pool, class, record: None }
    }

    /// Moves a reservation to another thread.
    pub(crate) fn depart(mut self, pool: &Arc<PoolCore>) -> DepartedReservation {
        let departed =
            DepartedReservation { pool: Arc::clone(pool), class: self.class, record: self.record.take() };
        mem::forget(self);
        departed
    }

    /// Reserves bytes under the lock, unless memory has to be released or waited for first. It must be dropped without
    /// the lock.
    #[inline]
    pub(crate) fn at_once(pool: &'a PoolCore, depot: &mut Depot, key: Key) -> Option<Self> {
        let Key { kind, class } = key;
        if depot.is_short_of(class) {
            return None;
        }
        depot.accounts.reserve(class, 0);
        let mut reservation = Self::new(pool, class);
        reservation.record = depot.take_record(kind);
        Some(reservation)
    }

    /// Commits the bytes that the source delivered; `time` is set if it called the driver. `end` is the end of the
    /// highest block in an arena of fixed size. Its record must have been taken.
    pub(crate) fn commit(self, kind: MemoryKind, requested: u64, end: u64, time: Option<Duration>) {
        let (pool, key) = (self.pool, Key { kind, class: self.class });
        mem::forget(self);
        pool.depot().commit_reservation(key, requested, end, time);
    }
}

/// A reservation on its way to another thread. Dropping it cancels the bytes.
#[derive(Debug)]
pub(crate) struct DepartedReservation {
    pool: Arc<PoolCore>,
    class: u64,
    record: Option<Box<Block>>,
}

impl DepartedReservation {
    /// The reservation on the other thread.
    pub(crate) fn arrive(mut self, pool: &PoolCore) -> Reservation<'_> {
        let (class, record) = (mem::take(&mut self.class), self.record.take());
        Reservation { pool, class, record }
    }
}

impl Drop for DepartedReservation {
    fn drop(&mut self) {
        if self.class > 0 {
            let (class, record) = (self.class, self.record.take());
            drop(Reservation { pool: &self.pool, class, record });
        }
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut depot = self.pool.depot();
        depot.accounts.cancel(self.class);
        drop(depot);
        self.pool.notify_freed();
    }
}
