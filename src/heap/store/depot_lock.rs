//! A depot behind its lock, at an address that outlives its pool.
//!
//! A block that is freed owns a handle of its pool, and moves into the depot. A guard borrowed from the pool
//! would borrow from the moved value, and a further handle would cost two atomic counts at each free. The
//! lock is therefore never deallocated, and borrowed for the life of the process. Later pools reuse the locks
//! of dropped pools, so their number is the highest number of simultaneous pools.
//!
//! A pool over an arena has the lock of the arena, except children over the arena of the pool above. An empty depot is
//! a few kilobytes, mostly the guesses of its [buckets](crate::heap::store).

use crate::heap::{BackendState, Depot, DepotGuard, Family, Life, LockedDepot};
use crate::sync::{AtomicU64, Condvar, GlobalMutex, Mutex};
use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::Weak;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Locks of dropped pools and arenas.
static VACANT: GlobalMutex<Vec<&'static LockedDepot>> = GlobalMutex::new(Vec::new());

impl LockedDepot {
    /// Puts a depot under the lock of a dropped owner, or a new one.
    pub(crate) fn new(depot: Depot) -> &'static Self {
        // A model's locks do not outlive its run.
        let vacant = if cfg!(model) { None } else { VACANT.lock().pop() };
        match vacant {
            Some(lock) => {
                let _empty = mem::replace(&mut *lock.depot.lock(), depot);
                lock
            }
            None => {
                let (depot, sleeping) = (Mutex::new(depot), AtomicU64::new(0));
                let family = Mutex::new(Family::default());
                Box::leak(Box::new(Self { depot, sleeping, family }))
            }
        }
    }

    /// Puts a pool's depot under the lock of its arena. Returns `None` if the arena serves, or served, another pool.
    pub(crate) fn over_arena(&'static self, mut depot: Depot) -> Option<&'static Self> {
        let mut locked = self.depot.lock();
        if locked.life != Life::NoPool {
            return None;
        }
        depot.accounts.in_flight = locked.backend_state.ticks().shared_in_flight();
        mem::swap(&mut depot.backend_state, &mut locked.backend_state);
        let _empty = mem::replace(&mut *locked, depot);
        drop(locked);
        Some(self)
    }

    /// Ends the use by a pool that is dropped. Its own lock is kept for a later owner.
    pub(in crate::heap) fn end_pool(&'static self) {
        if self.lock().node.is_some() {
            self.leave_family();
        }
        let mut depot = self.depot.lock();
        depot.pool = Weak::new();
        if matches!(depot.backend_state, BackendState::Order { .. }) {
            // The markers have events of the device. They are dropped without the lock.
            let order = mem::replace(&mut depot.backend_state, BackendState::order(()));
            drop(depot);
            self.vacate();
            drop(order);
        }
    }

    #[inline]
    pub(crate) fn lock(&'static self) -> DepotGuard {
        let mut guard = DepotGuard { depot: self.depot.lock(), family: None };
        if guard.node.is_some() {
            guard.enter();
        }
        guard
    }

    /// Unlocks the depot until `woken` is notified, for at most `time` if it is set.
    pub(crate) fn sleep(
        &'static self,
        guard: DepotGuard,
        woken: &Condvar,
        time: Option<Duration>,
    ) -> DepotGuard {
        self.count_sleeping(&guard, 1);
        let guard = woken.wait(guard, || self.lock(), time);
        self.count_sleeping(&guard, 1_u64.wrapping_neg());
        guard
    }

    /// Adds to the number of sleeping requests, which each pool of a tree has.
    fn count_sleeping(&self, guard: &DepotGuard, more: u64) {
        match &guard.family {
            Some(family) => {
                family.members.iter().for_each(|(_, of)| _ = of.lock.sleeping.fetch_add(more, Relaxed));
            }
            None => _ = self.sleeping.fetch_add(more, Relaxed),
        }
    }

    /// Keeps the lock for a later owner.
    pub(crate) fn vacate(&'static self) {
        VACANT.lock().push(self);
    }

    /// Wakes the requests that can go on after a release or a cancelled reservation. Call it without the lock.
    #[inline]
    pub(crate) fn notify_freed(&'static self) {
        // Relaxed: the caller held the lock, in a tree that of its accounts, after its change.
        if self.sleeping.load(Relaxed) > 0 {
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

    /// Wakes those of this depot. Returns the locks of the pools of its tree.
    fn wake_own(&'static self) -> Vec<&'static Self> {
        let depot = self.lock();
        let locks = depot.locks();
        let wakers = depot.queue.ready(&depot.accounts, depot.refuses());
        drop(depot);
        wakers.iter().for_each(|waker| waker.notify_all());
        locks
    }
}

impl Drop for DepotGuard {
    #[inline]
    fn drop(&mut self) {
        if self.family.is_some() {
            self.leave();
        }
    }
}

impl Deref for DepotGuard {
    type Target = Depot;

    #[inline]
    fn deref(&self) -> &Depot {
        &self.depot
    }
}

impl DerefMut for DepotGuard {
    #[inline]
    fn deref_mut(&mut self) -> &mut Depot {
        &mut self.depot
    }
}
