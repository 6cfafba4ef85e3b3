//! The data shared by an arena's handles and its buffers.

use super::mapping::quota::QuotaUse;
use super::reset_callbacks::ResetCallbacks;
use super::sleep::GivingBack;
use super::state::{LockedState, State};
use crate::arena::engine::BlockId;
use crate::error::Error;
use crate::streams::order::{After, Need};
use crate::sync::{Condvar, MutexGuard};
use parking_lot::Mutex as LongMutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool_backend::{Backend, CaptureId, DeviceId, MemoryKind, Stream, fork, logging};

/// The data shared by an arena's handles and its buffers.
#[derive(Debug)]
pub(super) struct ArenaCore<B: Backend> {
    pub(super) device: B,
    pub(super) id: DeviceId,
    pub(super) kind: MemoryKind,
    pub(super) state: LockedState<B>,
    /// Signalled at the end of a move.
    pub(super) settled: Condvar,
    /// Serializes compaction, growth, release, sleep and wake.
    pub(super) changing: LongMutex<()>,
    pub(super) giving_back: GivingBack,
    pub(super) resets: ResetCallbacks,
    /// Declared after the state: the quota is returned after the memory is released.
    pub(super) share: QuotaUse,
    /// Device calls for virtual memory, and their duration.
    pub(super) mapping_calls: AtomicU64,
    pub(super) mapping_nanoseconds: AtomicU64,
    /// Waits inserted between streams.
    pub(super) waits: AtomicU64,
    /// Whether the timeline has points: a hint.
    pub(super) has_points: AtomicBool,
    /// Declared last: runs after the arena's memory is dropped.
    pub(super) _reclaim: Reclaim<B>,
}

/// On drop, reclaims memory that the device keeps for pending work.
#[derive(Debug)]
pub(super) struct Reclaim<B: Backend>(pub(super) B);

impl<B: Backend> Drop for Reclaim<B> {
    fn drop(&mut self) {
        // Memory that cannot be reclaimed now is reclaimed with memory that is dropped later.
        let _ = self.0.reclaim();
    }
}

impl<B: Backend> ArenaCore<B> {
    pub(super) fn check_device(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        let given = stream.device();
        // Compares keys first, and names by address before contents.
        let is_own = given.key == self.id.key
            && (std::ptr::eq(given.backend, self.id.backend) || given.backend == self.id.backend);
        if is_own { Ok(()) } else { Err(Error::wrong_device(self.id, given)) }
    }

    /// As [`Need::order`].
    pub(super) fn order<'a>(
        &self,
        users: impl Iterator<Item = &'a B::Stream> + Clone,
        to: &B::Stream,
        need: Need,
        after: After,
    ) -> Result<Option<CaptureId>, Error> {
        let (waits, capture) = need.order(&self.device, users, to, after)?;
        self.waits.fetch_add(waits, Ordering::Relaxed);
        Ok(capture)
    }

    /// As [`Need::take_over`].
    pub(super) fn take_over<'a>(
        &self,
        users: impl Iterator<Item = (&'a B::Stream, Option<&'a B::Event>)> + Clone,
        to: &B::Stream,
        need: Need,
    ) -> Result<(), Error> {
        let waits = need.take_over(&self.device, users, to)?;
        self.waits.fetch_add(waits, Ordering::Relaxed);
        Ok(())
    }

    /// Locks the state once no move of the block is in progress.
    pub(super) fn settled(&self, block: BlockId) -> MutexGuard<'_, State<B>> {
        let mut state = self.state.lock_with_deferred();
        while state.slots.get(block).is_some_and(|slot| slot.moving) {
            state = self.state.wait(&self.settled, state);
        }
        state
    }
}

impl<B: Backend> Drop for ArenaCore<B> {
    fn drop(&mut self) {
        logging::info!("arena on {}: given back", self.id);
    }
}
