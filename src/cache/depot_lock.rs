//! A depot behind its lock, at an address that outlives its pool.
//!
//! A block that is freed owns a handle of its pool, and moves into the depot. A guard borrowed from the pool
//! would borrow from the moved value, and a further handle would cost two atomic counts at each free. The
//! lock is therefore never deallocated, and borrowed for the life of the process. Later pools reuse the locks
//! of dropped pools, so their number is the highest number of simultaneous pools. An empty depot is a few
//! kilobytes, mostly the guesses of its [buckets](crate::cache::buckets).

use crate::cache::core::{Depot, Together};
pub(crate) use crate::cache::core::{LockedDepot, PoolLock};
use crate::sync::{AtomicU64, GlobalMutex, Mutex};
use std::sync::atomic::Ordering::Relaxed;

/// Locks of dropped pools.
static VACANT: GlobalMutex<Vec<&'static LockedDepot>> = GlobalMutex::new(Vec::new());

impl PoolLock {
    pub(crate) fn new(depot: Depot) -> Self {
        // A model's locks do not outlive its run.
        let vacant = if cfg!(model) { None } else { VACANT.lock().pop() };
        match vacant {
            Some(lock) => {
                let _empty = std::mem::replace(&mut *lock.depot.lock(), depot);
                Self(lock)
            }
            None => {
                let (depot, asleep) = (Mutex::new(depot), AtomicU64::new(0));
                let together = Mutex::new(Together::default());
                Self(Box::leak(Box::new(LockedDepot { depot, asleep, together })))
            }
        }
    }
}

impl Drop for PoolLock {
    fn drop(&mut self) {
        if self.0.lock().shares.is_some() {
            self.0.leave_shared();
        }
        VACANT.lock().push(self.0);
    }
}

impl LockedDepot {
    /// Wakes the requests that can go on after a release or a cancelled reservation. Call it without the lock.
    #[inline]
    pub(crate) fn notify_freed(&'static self) {
        // Relaxed: the caller held the lock after its change.
        if self.asleep.load(Relaxed) > 0 {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&'static self) {
        for other in self.wake_own() {
            other.wake_own();
        }
    }

    /// Wakes those of this depot. Returns the locks of other pools with the same caps if requests of them sleep.
    fn wake_own(&'static self) -> Vec<&'static Self> {
        let mut depot = self.lock();
        let others = depot.sleeping_others();
        let Depot { queue, accounts, closed_by_user, .. } = &mut *depot;
        let woken = queue.wake_ready(accounts, *closed_by_user);
        drop(depot);
        woken.iter().for_each(|woken| woken.notify_all());
        others
    }
}
