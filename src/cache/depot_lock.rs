//! A depot behind its lock, at an address that outlives its pool.
//!
//! A block that is freed owns a handle of its pool, and moves into the depot. A guard borrowed from the pool
//! would borrow from the moved value, and a further handle would cost two atomic counts at each free. The
//! lock is therefore never deallocated, and borrowed for the life of the process. Later pools reuse the locks
//! of dropped pools, so their number is the highest number of simultaneous pools. An empty depot is a few
//! kilobytes, mostly the guesses of its [buckets](crate::cache::buckets).

use crate::cache::core::Depot;
pub(crate) use crate::cache::core::{LockedDepot, PoolLock};
use crate::sync::{AtomicU64, Condvar, GlobalMutex, Mutex, MutexGuard};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Locks of dropped pools.
static VACANT: GlobalMutex<Vec<&'static LockedDepot>> = GlobalMutex::new(Vec::new());

impl PoolLock {
    pub(crate) fn new(depot: Depot) -> Self {
        // A model's locks do not outlive its run.
        let vacant = if cfg!(model) { None } else { VACANT.lock().pop() };
        match vacant {
            Some(lock) => {
                let _empty = std::mem::replace(&mut *lock.lock(), depot);
                Self(lock)
            }
            None => {
                Self(Box::leak(Box::new(LockedDepot { depot: Mutex::new(depot), asleep: AtomicU64::new(0) })))
            }
        }
    }
}

impl Drop for PoolLock {
    fn drop(&mut self) {
        VACANT.lock().push(self.0);
    }
}

impl LockedDepot {
    #[inline]
    pub(crate) fn lock(&self) -> MutexGuard<'_, Depot> {
        self.depot.lock()
    }

    /// Unlocks the depot until `woken` is notified, for at most `time` if it is set.
    pub(crate) fn sleep<'a>(
        &self,
        depot: MutexGuard<'a, Depot>,
        woken: &Condvar,
        time: Option<Duration>,
    ) -> MutexGuard<'a, Depot> {
        self.asleep.fetch_add(1, Relaxed);
        let depot = woken.wait(depot, time);
        self.asleep.fetch_sub(1, Relaxed);
        depot
    }

    /// Wakes the requests that can go on after a release or a cancelled reservation. Call it without the lock.
    #[inline]
    pub(crate) fn notify_freed(&self) {
        // Relaxed: the caller held the lock after its change.
        if self.asleep.load(Relaxed) > 0 {
            self.wake();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake(&self) {
        let mut depot = self.lock();
        let Depot { queue, accounts, closed_by_user, .. } = &mut *depot;
        let woken = queue.wake_ready(accounts, *closed_by_user);
        drop(depot);
        woken.iter().for_each(|woken| woken.notify_all());
    }
}
