//! The transition of an arena to awake.

use super::asleep::{Sleep, SleepingPiece};
use super::fall_asleep::Changing;
use super::reports::WakeReport;
use super::view::{Mapping, View};
use crate::arena::core::ArenaCore;
use crate::arena::engine::BlockId;
use crate::arena::engine::Zone;
use crate::arena::mapping::pages::{Extent, Part};
use crate::arena::panics::caught;
use crate::error::Error;
use parking_lot::MutexGuard as LongGuard;
use std::sync::Arc;
use vrampool_backend::{AllocationRequest, Backend, BackendError, logging};

/// An arena that has memory and contents again, and still its backups. A drop puts it to sleep.
#[derive(Debug)]
pub(crate) struct Waking<'a, B: Backend> {
    core: &'a ArenaCore<B>,
    _alone: LongGuard<'a, ()>,
    /// `None` once the arena is awake, or asleep again.
    arena: Option<Changing<B>>,
    /// Unneeded parts of the range, held, that become gaps.
    gaps: Vec<BlockId>,
    /// Indices of the pieces that this wake created.
    made: Vec<usize>,
    mapped: u64,
    restored: u64,
}

impl<B: Backend> Waking<'_, B> {
    /// Completes the wake. Never fails.
    pub(crate) fn commit(mut self) -> WakeReport {
        let Some(arena) = self.arena.take() else { return WakeReport::default() };
        let mut state = self.core.state.lock();
        let state_now = &mut *state;
        let mut handles = Vec::with_capacity(arena.views.len());
        if let Some(backing) = &mut state_now.backing {
            // Pieces that this sleep could not release are among the pieces.
            backing.mapped = 0;
            for SleepingPiece { extent, physical } in arena.pieces {
                if let Some(physical) = physical {
                    backing.add(extent, physical);
                }
            }
            for view in arena.views {
                handles.push(Arc::clone(&view.memory));
                if view.is_range {
                    continue;
                }
                let mapped = view.mappings.iter().filter(|mapping| mapping.is_mapped());
                let part = |mapping: &Mapping| Part { offset: mapping.offset, piece: mapping.extent };
                let mapped: Vec<_> = mapped.map(part).collect();
                match view.age {
                    Some(age) if mapped.len() == view.mappings.len() => {
                        backing.put_stitched(
                            age,
                            view.memory,
                            mapped.into_iter().map(|part| part.piece).collect(),
                        );
                    }
                    _ => backing.put_torn(view.memory, mapped),
                }
            }
            backing.gaps.append(&mut self.gaps);
            backing.join_gaps(&mut state_now.engine);
        }
        state.sleep = Sleep::Awake;
        drop(state);
        drop(handles);
        self.core.giving_back.take(arena.backups.into_stored());
        let Self { mapped, restored, .. } = self;
        logging::debug!("arena on {}: awake, {mapped} bytes taken, {restored} restored", self.core.id);
        WakeReport { mapped_bytes: mapped, restored_bytes: restored, was_awake: false }
    }

    fn wake(&mut self, live: &[Extent]) -> Result<(), Error> {
        let (core, Some(arena)) = (self.core, &mut self.arena) else { return Ok(()) };
        let device = core.virtual_memory()?;
        for (index, piece) in arena.pieces.iter_mut().enumerate() {
            if piece.physical.is_none() && is_needed(live, piece.extent) {
                let bytes = piece.extent.bytes;
                core.share.take(bytes)?;
                let taken = core.share.returned(bytes);
                piece.physical =
                    Some(core.timed(|| device.create_physical(&AllocationRequest::new(bytes, core.kind)))?);
                taken.keep();
                self.made.push(index);
                self.mapped += bytes;
            }
        }
        core.map_views(&mut arena.views, &arena.pieces)?;
        if let Some(range) = arena.views.first() {
            self.restored = core.restore(&range.memory, &arena.backups, live)?;
        }
        Ok(())
    }
}

impl<B: Backend> Drop for Waking<'_, B> {
    fn drop(&mut self) {
        let Some(mut arena) = self.arena.take() else { return };
        let mut gone = Vec::new();
        let (unmapped, panic) = caught(|| self.core.unmap_views(&mut arena.views));
        match unmapped {
            Ok(()) => {
                for &index in &self.made {
                    gone.extend(arena.pieces.get_mut(index).and_then(|piece| piece.physical.take()));
                }
            }
            // Mapped pieces keep their memory for the next wake.
            Err(error) => logging::warn!("arena on {}: asleep with memory, because {error}", self.core.id),
        }
        let mut state = self.core.state.lock();
        for gap in self.gaps.drain(..) {
            state.engine.put_back(gap);
        }
        if let Some(backing) = &mut state.backing {
            // Counted as mapped, so that `settle_asleep` returns the part that is not kept.
            backing.mapped += self.mapped;
        }
        drop(state);
        // Returned after the memory is dropped: only then are the bytes available to other arenas.
        let returned = self.core.settle_asleep(arena);
        drop(gone);
        drop(returned);
        panic.go_on();
    }
}

impl<B: Backend> ArenaCore<B> {
    pub(super) fn begin_wake(&self) -> Result<Option<Waking<'_, B>>, Error> {
        let alone = self.changing.lock();
        let mut state = self.state.lock();
        let asleep = match std::mem::replace(&mut state.sleep, Sleep::Changing) {
            Sleep::Asleep(asleep) => *asleep,
            other => {
                state.sleep = other;
                return Ok(None);
            }
        };
        let live = state.live();
        let views = asleep.views.into_iter().filter_map(View::strong).collect();
        let arena =
            Changing { pieces: asleep.pieces, views, backups: asleep.backups, offload: asleep.offload };
        let planned = state.plan_wake(&arena.pieces, &live);
        drop(state);
        // From here on a drop reverses everything.
        let mut waking = Waking {
            core: self,
            _alone: alone,
            arena: Some(arena),
            gaps: Vec::new(),
            made: Vec::new(),
            mapped: 0,
            restored: 0,
        };
        waking.gaps = planned?;
        waking.wake(&live)?;
        Ok(Some(waking))
    }

    /// Forgets a sleeping arena's blocks: it is awake and empty. The caller holds the lock of changes.
    pub(in crate::arena) fn wake_empty(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        let Sleep::Asleep(asleep) = std::mem::replace(&mut state.sleep, Sleep::Changing) else {
            return Ok(());
        };
        drop(state);
        let views = asleep.views.into_iter().filter_map(View::strong).collect();
        let (pieces, backups, offload) = (asleep.pieces, asleep.backups, asleep.offload);
        let mut arena = Changing { pieces, views, backups, offload };
        let (unmapped, panic) = caught(|| self.unmap_views(&mut arena.views));
        if let Err(error) = unmapped {
            drop(self.settle_asleep(arena));
            panic.go_on();
            return Err(error.into());
        }
        let mut state = self.state.lock();
        let slots: Vec<_> = state.slots.drain().collect();
        state.engine.reset();
        let front = state.backing.as_ref().map_or(0, |backing| backing.front);
        let emptied = state.engine.set_end(Zone::Stable, 0);
        let emptied = emptied.and_then(|()| state.engine.set_end(Zone::Dynamic, front));
        let mut unmapped = 0;
        if let Some(backing) = &mut state.backing {
            unmapped = std::mem::take(&mut backing.mapped);
            backing.gaps.clear();
            backing.cut_at(front);
        }
        state.sleep = Sleep::Awake;
        drop(state);
        // Returned after the memory is dropped: only then are the bytes available to other arenas.
        let returned = self.share.returned(unmapped);
        self.giving_back.take(arena.backups.into_stored());
        drop((slots, arena.views, arena.pieces));
        drop(returned);
        Ok(emptied?)
    }
}

/// Whether any of the sorted extents is in the piece.
fn is_needed(live: &[Extent], piece: Extent) -> bool {
    let first = live.partition_point(|extent| extent.end() <= piece.start);
    live.get(first).is_some_and(|extent| extent.start < piece.end())
}

impl<B: Backend> super::State<B> {
    /// Holds the parts of the range that are not restored.
    fn plan_wake(&mut self, pieces: &[SleepingPiece], live: &[Extent]) -> Result<Vec<BlockId>, Error> {
        let comes = |piece: &&SleepingPiece| piece.physical.is_some() || is_needed(live, piece.extent);
        let needed: u64 = pieces.iter().filter(comes).map(|piece| piece.extent.bytes).sum();
        let limit = self.backing.as_ref().map_or(u64::MAX, |backing| backing.limit);
        if needed > limit {
            return Err(BackendError::out_of_memory(needed, Some(limit)).into());
        }
        let mut gaps = Vec::new();
        for SleepingPiece { extent, .. } in pieces.iter().filter(|piece| !comes(piece)) {
            match self.engine.hold_at(extent.start, extent.bytes) {
                Ok(gap) => gaps.push(gap),
                Err(error) => {
                    for gap in gaps {
                        self.engine.put_back(gap);
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(gaps)
    }
}
