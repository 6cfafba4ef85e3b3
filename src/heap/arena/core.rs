//! The data shared by an arena's handles and its buffers.

use super::detach::{Phase, is_changing_one};
use super::mapping::share::Share;
use super::state_lock::{StateGuard, StateLock};
use crate::error::Error;
use crate::heap::space::BlockId;
use crate::streams::order::{self, Need, Order, WaitFor};
use crate::streams::uses::{AwaitedUsers, Streams};
use crate::sync::Condvar;
use parking_lot::{Mutex as LongMutex, MutexGuard as LongGuard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool_backend::{Backend, CaptureId, DeviceId, MemoryKind, logging};

/// The data shared by an arena's handles and its buffers.
#[derive(Debug)]
pub(super) struct ArenaCore<B: Backend> {
    pub(super) device: B,
    pub(super) id: DeviceId,
    pub(super) kind: MemoryKind,
    pub(super) state: StateLock<B>,
    pub(super) is_growing: bool,
    /// Signalled at the end of a move.
    pub(super) move_ended: Condvar,
    /// Serializes compaction, growth, release, detaching and attaching.
    pub(super) changing: LongMutex<()>,
    /// Declared after the state: the quota is returned after the memory is released.
    pub(super) share: Share,
    /// Device calls for virtual memory, and their duration.
    pub(super) mapping: MappingCounters,
    /// Waits inserted between streams.
    pub(super) stream_waits: AtomicU64,
    /// The part of them for memory that another stream used before.
    pub(super) reuse_waits: AtomicU64,
    /// Free bytes that device work may still use, as far as markers show.
    pub(super) in_flight: Arc<AtomicU64>,
    /// Whether there are markers: a hint.
    pub(super) has_markers: Arc<AtomicBool>,
    /// Declared last: runs after the arena's memory is dropped.
    pub(super) _reclaim: Reclaim<B>,
}

/// See [`MappingCalls`](super::MappingCalls).
#[derive(Debug, Default)]
pub(super) struct MappingCounters {
    pub(super) calls: AtomicU64,
    pub(super) nanoseconds: AtomicU64,
}

/// On drop, reclaims memory that the device keeps for pending work.
#[derive(Debug)]
pub(super) struct Reclaim<B: Backend>(pub(super) B);

impl<B: Backend> Drop for Reclaim<B> {
    fn drop(&mut self) {
        logging::info!("arena on {}: released", self.0.id());
        // Memory that cannot be reclaimed now is reclaimed with memory that is dropped later.
        let _ = self.0.reclaim();
    }
}

impl<B: Backend> ArenaCore<B> {
    pub(super) fn check_device(&self, stream: &B::Stream) -> Result<(), Error> {
        order::check_device(self.id, stream)
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
            state = state.wait(&self.move_ended);
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
