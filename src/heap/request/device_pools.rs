//! Pools of this process on the same device: when the device refuses memory to one, the others release what is idle.

use crate::error::OtherPool;
use crate::heap::PoolCore;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use vrampool_backend::DeviceId;

/// All pools of the process. Weak: a pool is not kept alive by being listed.
static POOLS: Mutex<Vec<(DeviceId, Weak<dyn DevicePool>)>> = Mutex::new(Vec::new());

/// A pool of any backend.
pub(crate) trait DevicePool: Send + Sync {
    fn core(&self) -> &PoolCore;

    /// Releases idle memory to the device. Returns the number of bytes.
    fn trim(self: Arc<Self>) -> u64;
}

/// Lists a pool.
pub(crate) fn add<S: DevicePool + 'static>(pool: &Arc<S>) {
    let (device, weak): (_, Weak<S>) = (pool.core().device, Arc::downgrade(pool));
    let mut pools = POOLS.lock();
    pools.retain(|(_, pool)| pool.strong_count() > 0);
    pools.push((device, weak));
}

/// The others on the device of `pool`. They are used without the lock, because their destructors may take it.
fn others(pool: &PoolCore) -> Vec<Arc<dyn DevicePool>> {
    let of_device = |(device, other): &(DeviceId, Weak<dyn DevicePool>)| {
        (*device == pool.device).then(|| other.upgrade()).flatten()
    };
    let mut others: Vec<_> = POOLS.lock().iter().filter_map(of_device).collect();
    others.retain(|other| !std::ptr::eq(other.core(), pool));
    others
}

/// Releases idle memory of the others to the device. Returns the number of bytes.
pub(crate) fn trim(pool: &PoolCore) -> u64 {
    others(pool).into_iter().map(DevicePool::trim).sum()
}

/// The others that hold memory, most bytes first.
pub(crate) fn holders(pool: &PoolCore) -> Vec<OtherPool> {
    let figures = |other: &Arc<dyn DevicePool>| {
        let depot = other.core().depot();
        let (held_bytes, idle_bytes) = (depot.accounts.now.held(), depot.bytes_now().idle);
        OtherPool { name: other.core().name.clone(), held_bytes, idle_bytes }
    };
    let mut holders: Vec<_> = others(pool).iter().map(figures).filter(|other| other.held_bytes > 0).collect();
    holders.sort_by(|one, two| two.held_bytes.cmp(&one.held_bytes).then_with(|| one.name.cmp(&two.name)));
    holders
}
