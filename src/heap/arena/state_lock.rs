//! The lock of an arena's state. The depot of a pool over the arena is under the same lock.

use super::detach::Phase;
use crate::heap::arena::{State, StateGuard, StateLock};
use crate::heap::ledger::Caps;
use crate::heap::size_class::SizeClasses;
use crate::heap::space::ArenaError;
use crate::heap::{BackendState, Buckets, Depot, ErasedArena, Life, LockedDepot, PoolCore};
use crate::streams::Ticks;
use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::{fmt, mem};
use vrampool_backend::{Backend, MemoryKind};

impl<B: Backend> StateLock<B> {
    pub(super) fn new(state: State<B>) -> Self {
        let (kind, classes, caps) = (MemoryKind::default(), SizeClasses::default(), Caps::default());
        let mut depot =
            Depot::new(Buckets::new(kind, classes, 0), caps, BackendState::Arena(Box::new(state)));
        depot.life = Life::NoPool;
        Self { lock: LockedDepot::new(depot), state: PhantomData }
    }

    /// The lock, for the pool over the arena.
    pub(super) fn shared(&self) -> &'static LockedDepot {
        self.lock
    }

    /// The pool that the arena serves.
    pub(super) fn pool(&self) -> Option<Arc<PoolCore>> {
        self.lock.depot.lock().pool.upgrade()
    }

    /// Changes whether the pool finds the arena [detached](super::detach).
    pub(super) fn set_asleep(&self, is_asleep: bool) {
        self.pool().into_iter().for_each(|pool| pool.set_asleep(is_asleep));
    }

    /// Checks that no pool over the arena has a handle or a live buffer.
    pub(super) fn check_unused(&self) -> Result<(), ArenaError> {
        let depot = self.lock.depot.lock();
        let is_in_use = depot.life != Life::NoPool && depot.parked_in_arena().is_none();
        if is_in_use { Err(ArenaError::ServesPool) } else { Ok(()) }
    }

    #[inline]
    pub(super) fn lock(&self) -> StateGuard<'_, B> {
        StateGuard { depot: self.lock.depot.lock(), state: PhantomData }
    }
}

impl<B: Backend> Drop for StateLock<B> {
    fn drop(&mut self) {
        let state = mem::replace(&mut self.lock.depot.lock().backend_state, BackendState::order(()));
        self.lock.vacate();
        // Not under the lock.
        drop(state);
    }
}

impl<B: Backend> StateGuard<'_, B> {
    /// As [`Depot::parked_in_arena`].
    pub(super) fn parked(&self) -> Option<(usize, u64)> {
        self.depot.parked_in_arena()
    }
}

impl<B: Backend> Deref for StateGuard<'_, B> {
    type Target = State<B>;

    #[inline]
    fn deref(&self) -> &State<B> {
        match self.depot.backend_state.arena() {
            Some(state) => state,
            None => unreachable!("an arena's lock has its state"),
        }
    }
}

impl<B: Backend> DerefMut for StateGuard<'_, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut State<B> {
        match self.depot.backend_state.arena_mut() {
            Some(state) => state,
            None => unreachable!("an arena's lock has its state"),
        }
    }
}

impl BackendState {
    /// The arena's state, if it is one.
    #[inline]
    pub(super) fn arena<B: Backend>(&self) -> Option<&State<B>> {
        let Self::Arena(state) = self else { return None };
        (&**state as &dyn Any).downcast_ref()
    }

    /// As [`arena`](Self::arena), to be changed.
    #[inline]
    pub(super) fn arena_mut<B: Backend>(&mut self) -> Option<&mut State<B>> {
        let Self::Arena(state) = self else { return None };
        (&mut **state as &mut dyn Any).downcast_mut()
    }
}

impl<B: Backend> ErasedArena for State<B> {
    fn ticks(&self) -> &Ticks {
        &self.uses.ticks
    }

    fn ticks_mut(&mut self) -> &mut Ticks {
        &mut self.uses.ticks
    }

    fn used(&self) -> u64 {
        self.engine.used()
    }

    fn detached(&self) -> u64 {
        if matches!(self.phase, Phase::Detached(_)) { self.engine.used() } else { 0 }
    }
}

impl<B: Backend> fmt::Debug for StateLock<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateLock").finish_non_exhaustive()
    }
}
