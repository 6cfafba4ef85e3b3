//! The reserved bytes of a pending miss.

use crate::heap::request::Reservation;
use crate::heap::{Depot, PoolCore};
use crate::source::Key;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use vrampool_backend::MemoryKind;

impl Reservation {
    /// Of `class` bytes that are reserved.
    pub(crate) fn new(pool: Arc<PoolCore>, class: u64) -> Self {
        Self { pool, class, record: None }
    }

    /// Reserves bytes under the lock, unless memory has to be released or waited for first. It must be dropped without
    /// the lock.
    #[inline]
    pub(crate) fn at_once(pool: &Arc<PoolCore>, depot: &mut Depot, key: Key) -> Option<Self> {
        let Key { kind, class } = key;
        if depot.is_short_of(class) {
            return None;
        }
        depot.accounts.reserve(class, 0);
        let mut reservation = Self::new(Arc::clone(pool), class);
        reservation.record = depot.take_record(kind);
        Some(reservation)
    }

    /// Commits the bytes that the source delivered; `time` is set if it called the driver. `end` is the end of the
    /// highest block in an arena of fixed size. Its record must have been taken.
    pub(crate) fn commit(mut self, kind: MemoryKind, requested: u64, end: u64, time: Option<Duration>) {
        let key = Key { kind, class: mem::take(&mut self.class) };
        self.pool.depot().commit_reservation(key, requested, end, time);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.class > 0 {
            self.pool.depot().accounts.cancel(self.class);
            self.pool.notify_freed();
        }
    }
}
