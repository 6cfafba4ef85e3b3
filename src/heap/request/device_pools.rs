//! Pools of this process on the same device: when the device refuses memory to one, the others release what is idle.

use crate::error::OtherPool;
use crate::heap::PoolCore;
use parking_lot::Mutex;
use std::ptr;
use std::sync::{Arc, Weak};

/// All pools of the process. Weak: a pool is not kept alive by being listed.
static POOLS: Mutex<Vec<Weak<PoolCore>>> = Mutex::new(Vec::new());

/// Lists a pool.
pub(crate) fn add(pool: &Arc<PoolCore>) {
    let mut pools = POOLS.lock();
    pools.retain(|pool| pool.strong_count() > 0);
    pools.push(Arc::downgrade(pool));
}

/// The others on the device of `pool` that have a handle. They are used without the lock, because their destructors may
/// take it.
fn others(pool: &PoolCore) -> Vec<Arc<PoolCore>> {
    let mut others: Vec<_> = POOLS.lock().iter().filter_map(Weak::upgrade).collect();
    others.retain(|other| other.device == pool.device && !other.is_dropped() && !ptr::eq(&**other, pool));
    others
}

/// Releases idle memory of the others to the device. Returns the number of bytes.
pub(crate) fn trim(pool: &PoolCore) -> u64 {
    others(pool).iter().map(|other| other.trim_for_device()).sum()
}

/// The others that hold memory, most bytes first.
pub(crate) fn holders(pool: &PoolCore) -> Vec<OtherPool> {
    let figures = |other: &Arc<PoolCore>| {
        let depot = other.depot();
        let (held_bytes, idle_bytes) = (depot.accounts.now.held(), depot.memory_now().idle);
        OtherPool { name: other.name.clone(), held_bytes, idle_bytes }
    };
    let mut holders: Vec<_> = others(pool).iter().map(figures).filter(|other| other.held_bytes > 0).collect();
    holders.sort_by(|one, two| two.held_bytes.cmp(&one.held_bytes).then_with(|| one.name.cmp(&two.name)));
    holders
}
