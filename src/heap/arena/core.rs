//! Methods of the data shared by an arena's handles and its buffers.

use super::detach::{Phase, is_changing_one};
use crate::error::Error;
use crate::heap::arena::{ArenaCore, Reclaim, StateGuard};
use crate::heap::space::BlockId;
use crate::streams::{AwaitedUsers, Need, Order, Streams, WaitFor, check_device};
use parking_lot::MutexGuard as LongGuard;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, CaptureId, logging};

impl<B: Backend> Drop for Reclaim<B> {
    fn drop(&mut self) {
        logging::info!("arena on {}: released", self.0.id());
        // Memory that cannot be reclaimed now is reclaimed with memory that is dropped later.
        let _ = self.0.reclaim();
    }
}

impl<B: Backend> ArenaCore<B> {
    pub(super) fn check_device(&self, stream: &B::Stream) -> Result<(), Error> {
        check_device(self.id, stream)
    }

    /// As [`Need::before`], for users of a live block.
    pub(super) fn order(
        &self,
        users: &Streams<B::Stream>,
        to: &B::Stream,
        need: Need,
        until: WaitFor,
    ) -> Result<Option<CaptureId>, Error> {
        let users = users.iter().map(|user| (user, None));
        let (waits, capture) = need.before(&self.device, users, to, until)?;
        self.stream_waits.fetch_add(waits, Ordering::Relaxed);
        Ok(capture)
    }

    /// As [`Order::before`].
    pub(super) fn take_over(
        &self,
        users: &AwaitedUsers<B::Stream>,
        to: &B::Stream,
        need: Need,
    ) -> Result<(), Error> {
        let waits = self.before(users, to, need)?;
        self.stream_waits.fetch_add(waits, Ordering::Relaxed);
        self.reuse_waits.fetch_add(waits, Ordering::Relaxed);
        Ok(())
    }

    /// Locks the state once no move of the block is in progress.
    pub(super) fn lock_unmoved(&self, block: BlockId) -> StateGuard<'_, B> {
        let mut state = self.state.lock();
        while state.slots.get(block).is_some_and(|slot| slot.moving) {
            state = self.move_ended.wait(state, || self.state.lock(), None);
        }
        state
    }

    /// Locks the state by `lock` once no change between attached and detached is in progress. A detached arena
    /// refuses requests here.
    ///
    /// # Errors
    /// [`Error::Asleep`] with the requested `bytes`.
    #[inline]
    pub(super) fn attached<'a>(
        &'a self,
        bytes: u64,
        lock: impl Fn() -> StateGuard<'a, B>,
    ) -> Result<StateGuard<'a, B>, Error> {
        let state = lock();
        if matches!(state.phase, Phase::Attached) {
            return Ok(state);
        }
        drop(state);
        self.wait_attached(bytes, lock)
    }

    #[cold]
    fn wait_attached<'a>(
        &'a self,
        bytes: u64,
        lock: impl Fn() -> StateGuard<'a, B>,
    ) -> Result<StateGuard<'a, B>, Error> {
        loop {
            let state = lock();
            match state.phase {
                Phase::Attached => return Ok(state),
                Phase::Detached(_) => {
                    return Err(Error::Asleep { requested_bytes: bytes, live_bytes: state.engine.used() });
                }
                Phase::Changing => {
                    drop(state);
                    drop(self.alone(bytes)?);
                }
            }
        }
    }

    /// Waits for the right to change the arena. A thread that detaches or attaches an arena does not wait for such a
    /// change, which may be its own, or wait for this thread in a callback.
    ///
    /// # Errors
    /// [`Error::Asleep`] with the requested `bytes`.
    pub(super) fn alone(&self, bytes: u64) -> Result<LongGuard<'_, ()>, Error> {
        if is_changing_one() {
            let state = self.state.lock();
            if matches!(state.phase, Phase::Changing) {
                return Err(Error::Asleep { requested_bytes: bytes, live_bytes: state.engine.used() });
            }
        }
        Ok(self.changing.lock())
    }
}
