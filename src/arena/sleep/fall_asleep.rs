//! The transition of an arena to sleep.

use super::asleep::{Asleep, Sleep, SleepingPiece};
use super::backups::Backups;
use super::offload::Offload;
use super::reports::SleepReport;
use super::view::{Kept, MapState, Mapping, View};
use crate::arena::core::ArenaCore;
use crate::arena::engine::ArenaError;
use crate::arena::hazards::ranges::{Streams, add};
use crate::arena::live_block::LiveBlock;
use crate::arena::mapping::pages::{Extent, Part};
use crate::arena::mapping::quota::Returned;
use crate::arena::panics::caught;
use crate::arena::state::State;
use crate::error::{Error, Forbidden};
use crate::streams::order::Need;
use parking_lot::MutexGuard as LongGuard;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, logging};

/// An arena whose contents are saved and whose memory is unmapped but not yet released. A drop maps it again.
#[derive(Debug)]
pub(crate) struct Falling<'a, B: Backend> {
    core: &'a ArenaCore<B>,
    _alone: LongGuard<'a, ()>,
    /// `None` once the arena is asleep, or awake again.
    arena: Option<Changing<B>>,
    discarded: u64,
    backed_up: u64,
}

/// An arena between awake and asleep.
#[derive(Debug)]
pub(super) struct Changing<B: Backend> {
    pub(super) pieces: Vec<SleepingPiece>,
    /// The range is the first.
    pub(super) views: Vec<Kept<B>>,
    pub(super) backups: Backups<B>,
    pub(super) offload: Offload,
}

impl<B: Backend> Falling<'_, B> {
    /// Releases the physical memory to the device. Never fails.
    pub(crate) fn commit(mut self) -> SleepReport {
        let Some(mut arena) = self.arena.take() else { return SleepReport::default() };
        let physical: Vec<_> = arena.pieces.iter_mut().filter_map(|piece| piece.physical.take()).collect();
        let freed = physical.iter().map(|physical| physical.len()).sum();
        // Returned after the memory is dropped: only then are the bytes available to other arenas.
        let returned = self.core.settle_asleep(arena);
        drop(physical);
        drop(returned);
        let Self { discarded, backed_up, .. } = self;
        logging::debug!(
            "arena on {}: asleep, {freed} bytes given back, {backed_up} on the host",
            self.core.id
        );
        SleepReport {
            freed_bytes: freed,
            backed_up_bytes: backed_up,
            discarded_bytes: discarded,
            was_asleep: false,
        }
    }
}

impl<B: Backend> Drop for Falling<'_, B> {
    fn drop(&mut self) {
        if let Some(mut arena) = self.arena.take() {
            let (mapped, panic) = caught(|| self.core.map_views(&mut arena.views, &arena.pieces));
            match mapped {
                Ok(()) => {
                    self.core.state.lock().sleep = Sleep::Awake;
                    self.core.giving_back.take(arena.backups.into_stored());
                }
                Err(error) => {
                    logging::warn!("arena on {}: asleep with its memory, because {error}", self.core.id);
                    drop(self.core.settle_asleep(arena));
                }
            }
            panic.go_on();
        }
    }
}

impl<B: Backend> ArenaCore<B> {
    pub(super) fn begin_sleep(&self, offload: Offload) -> Result<Option<Falling<'_, B>>, Error> {
        let waited = self.wait_for_others()?;
        let alone = self.changing.lock();
        // Stuck pieces are released now, or the device fails.
        self.release_settled(&[], 0, &waited)?;
        let mut state = self.state.lock();
        if state.backing.is_none() {
            let operation = "the sleep of an arena that does not grow";
            return Err(BackendError::unsupported(operation).into());
        }
        if !state.is_awake() {
            return Ok(None);
        }
        // Holds are taken under the lock that is held here.
        if state.slots.iter().any(LiveBlock::is_held) {
            return Err(ArenaError::Pinned.into());
        }
        let (mut users, live) = (state.users_of_free(), state.live());
        state.slots.iter().flat_map(LiveBlock::users).for_each(|user| add(&mut users, &user));
        let (pieces, views) = state.mapped();
        state.sleep = Sleep::Changing;
        drop(state);
        // From here on a drop reverses everything.
        let arena = Changing { pieces, views, backups: Backups::default(), offload };
        let mut falling =
            Falling { core: self, _alone: alone, arena: Some(arena), discarded: 0, backed_up: 0 };
        falling.fall(&users, &live, offload)?;
        Ok(Some(falling))
    }
}

impl<B: Backend> Falling<'_, B> {
    fn fall(&mut self, users: &Streams<B::Stream>, live: &[Extent], offload: Offload) -> Result<(), Error> {
        let (core, Some(arena)) = (self.core, &mut self.arena) else { return Ok(()) };
        let bytes = live.iter().map(|extent| extent.bytes).sum();
        // A wait for a captured stream would invalidate the capture.
        let need = Need { requested: bytes, class: bytes };
        users.iter().try_for_each(|user| need.check(&core.device, user, Forbidden::Relief))?;
        users.iter().try_for_each(|user| core.device.synchronize(user))?;
        core.giving_back.wait();
        if let Some(range) = arena.views.first() {
            arena.backups = core.back_up(&range.memory, live, offload)?;
        }
        match offload {
            Offload::Discard => self.discarded = bytes,
            _ => self.backed_up = bytes,
        }
        Ok(core.unmap_views(&mut arena.views)?)
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Makes the arena asleep, keeping memory that could not be released. Returns the allowance of unmapped
    /// memory, to be dropped after that memory.
    pub(super) fn settle_asleep(&self, arena: Changing<B>) -> Returned<'_> {
        let Changing { pieces, views, mut backups, offload } = arena;
        let mut state = self.state.lock();
        // Buffers may have been dropped in the meantime.
        let empty = backups.keep(&state.live());
        let (views, handles): (Vec<_>, Vec<_>) = views.into_iter().map(View::weak).unzip();
        let asleep = Asleep { pieces, views, backups, offload };
        let (mut gone, mut unmapped) = (None, 0);
        if let Some(backing) = &mut state.backing {
            let (was_mapped, kept) = (backing.mapped, asleep.kept());
            gone = Some(backing.take_all());
            backing.mapped = kept;
            unmapped = was_mapped.saturating_sub(kept);
        }
        state.sleep = Sleep::Asleep(Box::new(asleep));
        drop(state);
        let returned = self.share.returned(unmapped);
        self.giving_back.take(empty);
        // Drops that call the device run without the lock.
        drop((gone, handles));
        returned
    }
}

impl<B: Backend> State<B> {
    /// Returns all pieces, and all their views except ranges that no buffer uses.
    fn mapped(&self) -> (Vec<SleepingPiece>, Vec<Kept<B>>) {
        let Some(backing) = &self.backing else { return (Vec::new(), Vec::new()) };
        let pieces = backing.extents.iter().zip(&backing.physical);
        let pieces = pieces
            .map(|(&extent, physical)| SleepingPiece { extent, physical: Some(physical.clone()) })
            .collect();
        let in_range =
            |&extent: &Extent| Mapping { offset: extent.start, extent, state: MapState::Accessible };
        let in_stitched =
            |&Part { offset, piece }: &Part| Mapping { offset, extent: piece, state: MapState::Accessible };
        let mut views = vec![View {
            memory: Arc::clone(&self.range),
            is_range: true,
            age: None,
            mappings: backing.extents.iter().map(in_range).collect(),
        }];
        for stitched in backing.stitched.iter().filter(|stitched| !stitched.is_unused()) {
            views.push(View {
                memory: Arc::clone(&stitched.memory),
                is_range: false,
                age: Some(stitched.age),
                mappings: stitched.parts().iter().map(in_stitched).collect(),
            });
        }
        for (torn, parts) in backing.torn.iter().filter(|(torn, _)| !torn.is_unused()) {
            views.push(View {
                memory: Arc::clone(&torn.memory),
                is_range: false,
                age: None,
                mappings: parts.iter().map(in_stitched).collect(),
            });
        }
        (pieces, views)
    }
}
