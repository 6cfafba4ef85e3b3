//! The pool that an arena serves.

use crate::arena::engine::ArenaError;
use crate::error::Error;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Returns whether the pool is in use, and a handle of it, to be dropped without the lock.
type IsInUse = Box<dyn Fn() -> (bool, Option<Handle>) + Send + Sync>;

/// A handle of a pool. It may be the last one, whose drop calls closures of the program.
pub(crate) type Handle = Arc<dyn Any + Send + Sync>;

/// The pool that an arena serves, if any. Set once.
#[derive(Default)]
pub(super) struct PoolOver(OnceLock<IsInUse>);

impl PoolOver {
    /// Sets the pool. `is_in_use` returns whether the pool has a handle or a live buffer. Returns `false` if a pool
    /// was set before.
    pub(super) fn set(&self, is_in_use: impl Fn() -> (bool, Option<Handle>) + Send + Sync + 'static) -> bool {
        self.0.set(Box::new(is_in_use)).is_ok()
    }

    /// Checks that no pool has blocks of the arena. Sets `handle` to one that must be dropped without the lock.
    pub(super) fn check_unused(&self, handle: &mut Option<Handle>) -> Result<(), Error> {
        let Some(is_in_use) = self.0.get() else { return Ok(()) };
        let (is_in_use, pool) = is_in_use();
        *handle = pool;
        if is_in_use { Err(ArenaError::ServesPool.into()) } else { Ok(()) }
    }
}

impl fmt::Debug for PoolOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolOver").field(&self.0.get().is_some()).finish()
    }
}
