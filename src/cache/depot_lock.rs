//! A depot behind its lock, at an address that outlives its pool.
//!
//! A block that is freed owns a handle of its pool, and moves into the depot. A guard borrowed from the pool
//! would borrow from the moved value, and a further handle would cost two atomic counts at each free. The
//! lock is therefore never deallocated, and borrowed for the life of the process. Later pools reuse the locks
//! of dropped pools, so their number is the highest number of simultaneous pools. An empty depot is a few
//! kilobytes, mostly the guesses of its [buckets](crate::cache::buckets).

use crate::cache::core::Depot;
pub(crate) use crate::cache::core::{LockedDepot, Place};
use crate::sync::{Condvar, GlobalMutex, Mutex, MutexGuard};
use std::time::Duration;

/// Locks of dropped pools.
static VACANT: GlobalMutex<Vec<&'static LockedDepot>> = GlobalMutex::new(Vec::new());

impl Place {
    pub(crate) fn new(depot: Depot) -> Self {
        // A model's locks do not outlive its run.
        let vacant = if cfg!(model) { None } else { VACANT.lock().pop() };
        match vacant {
            Some(place) => {
                let _empty = std::mem::replace(&mut *place.lock(), depot);
                Self(place)
            }
            None => {
                Self(Box::leak(Box::new(LockedDepot { depot: Mutex::new(depot), freed: Condvar::new() })))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        VACANT.lock().push(self.0);
    }
}

impl LockedDepot {
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock()
    }

    /// Unlocks the depot until a [notification](Self::notify_freed), possibly for another pool.
    pub(crate) fn wait<'a>(&self, depot: MutexGuard<'a, Depot>) -> MutexGuard<'a, Depot> {
        self.freed.wait(depot)
    }

    pub(crate) fn wait_at_most<'a>(
        &self,
        depot: MutexGuard<'a, Depot>,
        time: Duration,
    ) -> MutexGuard<'a, Depot> {
        self.freed.wait_at_most(depot, time)
    }

    /// Signals that memory was released, or a reservation was cancelled. Call it without the lock.
    #[inline]
    pub(crate) fn notify_freed(&self) {
        self.freed.notify_all();
    }
}
