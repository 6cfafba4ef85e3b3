//! Caps that hold for a pool and others together.
//!
//! Each of these pools has a separate depot. A thread that locks a depot then locks the common account, too. So the
//! caps hold at every instant, as those of one pool do, and no thread holds the locks of two depots.

use crate::heap::caps::Shared;
use crate::heap::core::{DepotGuard, LockedDepot, PoolCore, Together};
use std::fmt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl LockedDepot {
    /// Removes a pool from the common account. No thread or block refers to the pool, so nothing is charged to it.
    pub(super) fn leave_shared(&'static self) {
        let mut guard = self.lock();
        guard
            .together
            .iter_mut()
            .for_each(|together| together.pools.retain(|(lock, _)| !ptr::eq(*lock, self)));
        guard.leave();
        guard.common = None;
        self.asleep.store(0, Relaxed);
    }
}

impl DepotGuard {
    /// Locks the common account.
    #[cold]
    #[inline(never)]
    pub(super) fn enter(&mut self) {
        if let Some(root) = self.common {
            let together = root.together.lock();
            self.accounts.others = together.sums.minus(self.accounts.told);
            self.accounts.caps.set_common(&together.caps);
            self.together = Some(together);
        }
    }

    /// Notes the changes in the common account, and unlocks it.
    #[cold]
    #[inline(never)]
    pub(super) fn leave(&mut self) {
        if let Some(mut together) = self.together.take() {
            self.accounts.told = self.accounts.shared();
            together.sums = self.accounts.others.plus(self.accounts.told);
            together.caps.set_common(&self.accounts.caps);
        }
    }
}

impl PoolCore {
    /// Returns the pool whose caps this one shares, or this one if it shares none.
    pub(crate) fn root(self: &Arc<Self>) -> Arc<Self> {
        Arc::clone(self.root.as_ref().unwrap_or(self))
    }

    /// Makes the caps of `root` bound both pools together.
    pub(super) fn share(self: &Arc<Self>, root: &Arc<Self>) {
        for pool in [root, self] {
            let mut depot = pool.depot();
            if depot.common.is_some() {
                continue;
            }
            (depot.common, depot.accounts.told) = (Some(root.lock.lock), Shared::default());
            if Arc::ptr_eq(pool, root) {
                root.lock.lock.together.lock().caps.set_common(&depot.accounts.caps);
            }
            depot.enter();
            pool.set_largest_class(&depot.accounts.caps);
            // One more than are asleep, so that each release looks for requests of all pools.
            let asleep = pool.lock.lock.asleep.fetch_add(1, Relaxed);
            if let Some(together) = &mut depot.together {
                together.asleep += asleep;
                together.pools.push((pool.lock.lock, Arc::downgrade(pool)));
            }
        }
    }

    /// Releases idle memory of other pools with the same caps, as far as its own is not enough for `class` bytes.
    /// Returns whether any was released.
    pub(super) fn relieve(&self, class: u64) -> bool {
        let lacking = self.depot().accounts.lacking(class);
        lacking > 0 && self.trim_others(lacking) > 0
    }

    /// Releases at most about `bytes` of idle memory of other pools with the same caps. Returns the released bytes.
    pub(crate) fn trim_others(&self, bytes: u64) -> u64 {
        let mut released = 0;
        for other in self.others() {
            let idle = other.depot().accounts.idle();
            released += other.trim_to(idle.saturating_sub(bytes.saturating_sub(released)));
        }
        released
    }

    /// The other pools with the same caps.
    pub(crate) fn others(&self) -> Vec<Arc<Self>> {
        let depot = self.depot();
        let pools = depot.together.iter().flat_map(|together| &together.pools);
        pools
            .filter(|(lock, _)| !ptr::eq(*lock, self.lock.lock))
            .filter_map(|(_, pool)| pool.upgrade())
            .collect()
    }
}

impl DepotGuard {
    /// The locks of the pools with the same caps, if requests of them sleep.
    pub(super) fn sleeping_others(&self) -> Vec<&'static LockedDepot> {
        let together = self.together.iter().filter(|together| together.asleep > 0);
        together.flat_map(|together| &together.pools).map(|(lock, _)| *lock).collect()
    }
}

impl fmt::Debug for Together {
    /// Without the pools, which refer to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Together").field("sums", &self.sums).finish_non_exhaustive()
    }
}
