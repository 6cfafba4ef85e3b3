//! A pool as one of those that release idle memory for each other.

use crate::heap::PoolCore;
use crate::heap::device_pools::DevicePool;
use crate::pool::{Handle, Pool};
use std::sync::Arc;
use vrampool_backend::Backend;

impl<B: Backend> DevicePool for Handle<B> {
    fn core(&self) -> &PoolCore {
        &self.core
    }

    fn trim(self: Arc<Self>) -> u64 {
        let pool = Pool { handle: self };
        let taken = || match pool.arena().filter(|arena| arena.is_growing()) {
            Some(arena) => arena.reserved_bytes(),
            None => pool.core().depot().accounts.now.charged,
        };
        let before = taken();
        // Its children are listed, too.
        pool.log_kept(pool.core().trim_own_to::<B>(0).map(drop));
        before.saturating_sub(taken())
    }
}
