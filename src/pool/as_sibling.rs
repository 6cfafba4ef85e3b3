//! A pool as one of those that release idle memory for each other.

use crate::heap::core::PoolCore;
use crate::pool::siblings::Sibling;
use crate::pool::{Handle, Pool};
use std::sync::Arc;
use vrampool_backend::Backend;

impl<B: Backend> Sibling for Handle<B> {
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
        pool.trim_to_or_log(0);
        before.saturating_sub(taken())
    }
}
