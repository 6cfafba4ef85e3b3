//! The change from detached to attached.

use crate::error::Error;
use crate::heap::arena::detach::{Change, DetachedPiece, Mapping, Phase, Refusal, Right};
use crate::heap::arena::mapping::{Share, StitchedPart};
use crate::heap::arena::panics::caught;
use crate::heap::arena::{ArenaCore, DeviceArena, State};
use crate::heap::space::{BlockId, Extent, Zone};
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::spi::Grant;
use vrampool_backend::{AllocationRequest, Backend, BackendError, fork, logging};

impl<B: Backend> DeviceArena<B> {
    /// Takes physical memory for all live blocks, and maps it at their addresses. Its contents are undefined.
    ///
    /// Returns `None` if the arena is not detached. The bytes are granted by its limit and its
    /// [`Ledger`](crate::Ledger) before the first call of the device.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device fails; [`Error::OutOfMemory`] if it has too little memory, or if the limit or
    /// the ledger has no room. The arena is then detached, and a later call can succeed.
    pub fn attach(&self) -> Result<Option<Attaching<'_, B>>, Error> {
        fork::check()?;
        self.core.begin_attach().map_err(|error| self.explain(error, None))
    }
}

/// An arena that has memory again, and that no thread can use yet. A drop detaches it again.
#[derive(Debug)]
#[must_use = "a drop detaches the arena again"]
pub struct Attaching<'a, B: Backend> {
    core: &'a ArenaCore<B>,
    _right: Right<'a>,
    range: Arc<B::Memory>,
    /// `None` once the arena is attached, or detached again.
    change: Option<Change<B>>,
    /// Unneeded parts of the range, held, that become gaps.
    gaps: Vec<BlockId>,
    /// Indices of the pieces that need new memory; while memory is taken, of the pieces that have it.
    new: Vec<usize>,
    /// The grant of the bytes of these pieces.
    grant: Option<Grant>,
}

impl<B: Backend> Attaching<'_, B> {
    /// Returns the memory of the arena's range, of which only the [live](Self::live) extents may be used.
    ///
    /// Work on it must be complete before [`commit`](Self::commit), and before this object is dropped.
    #[must_use]
    pub fn memory(&self) -> &B::Memory {
        &self.range
    }

    /// Returns the extents of live blocks in [`memory`](Self::memory), bytes, by offset. A block can have several.
    #[must_use]
    pub fn live(&self) -> &[Range<u64>] {
        self.change.as_ref().map_or(&[], |change| &change.live)
    }

    /// Makes the arena usable, and returns the bytes that were taken from the device. Never fails.
    #[allow(clippy::must_use_candidate, reason = "it is called for its effect")]
    pub fn commit(mut self) -> u64 {
        let Some(change) = self.change.take() else { return 0 };
        let bytes = bytes_of(&change.pieces, &self.new);
        let mut state = self.core.state.lock();
        let state_now = &mut *state;
        let mut handles = Vec::with_capacity(change.views.len());
        if let Some(backing) = &mut state_now.backing {
            // Pieces that could not be released are among the pieces.
            backing.mapped = 0;
            for DetachedPiece { extent, physical } in change.pieces {
                if let Some(physical) = physical {
                    backing.add(extent, physical);
                }
            }
            for view in change.views {
                handles.push(Arc::clone(&view.memory));
                if view.is_range {
                    continue;
                }
                let mapped = view.mappings.iter().filter(|mapping| mapping.is_mapped());
                let part = |mapping: &Mapping| StitchedPart { offset: mapping.offset, piece: mapping.extent };
                let mapped: Vec<_> = mapped.map(part).collect();
                match view.age {
                    Some(age) if mapped.len() == view.mappings.len() => {
                        let pieces = mapped.into_iter().map(|part| part.piece).collect();
                        backing.put_stitched(age, view.memory, pieces);
                    }
                    _ => {
                        let bytes = mapped.iter().map(|part| part.piece.bytes).sum();
                        backing.put_partly_unmapped(view.memory, bytes, mapped);
                    }
                }
            }
            backing.gaps.append(&mut self.gaps);
            backing.join_gaps(&mut state_now.engine);
        }
        state.phase = Phase::Attached;
        drop(state);
        if let Some(grant) = self.grant.take() {
            self.core.share.keep(grant);
        }
        drop(handles);
        self.core.state.set_asleep(false);
        self.core.state.shared().notify_freed();
        logging::debug!("arena on {}: attached, {bytes} bytes taken", self.core.id);
        bytes
    }

    /// Allocates memory for all planned pieces, and maps all pieces.
    fn map(&mut self) -> Result<(), Error> {
        let (core, Some(change)) = (self.core, &mut self.change) else { return Ok(()) };
        let planned = std::mem::take(&mut self.new);
        let bytes = bytes_of(&change.pieces, &planned);
        core.share.reserve(bytes)?;
        self.grant = Some(core.share.split(bytes));
        let device = core.virtual_memory()?;
        for index in planned {
            let piece = &mut change.pieces[index];
            let request = AllocationRequest::new(piece.extent.bytes, core.kind);
            piece.physical = Some(core.timed(|| device.create_physical(&request))?);
            self.new.push(index);
        }
        Ok(core.map_views(&mut change.views, &change.pieces)?)
    }
}

impl<B: Backend> Drop for Attaching<'_, B> {
    fn drop(&mut self) {
        let Some(mut change) = self.change.take() else { return };
        let mut unused = Vec::new();
        let (unmapped, panic) = caught(|| self.core.unmap_views(&mut change.views));
        match unmapped {
            Ok(()) => {
                for &index in &self.new {
                    unused.extend(change.pieces[index].physical.take());
                }
            }
            // Mapped pieces keep their memory for the next attachment.
            Err(error) => {
                logging::warn!("arena on {}: detached with memory, because {error}", self.core.id);
                if let Some(grant) = &mut self.grant {
                    self.core.share.keep(grant.split(bytes_of(&change.pieces, &self.new)));
                }
            }
        }
        let mut state = self.core.state.lock();
        for gap in self.gaps.drain(..) {
            state.engine.release(gap);
        }
        drop(state);
        // Nothing that was mapped before is unmapped now.
        drop(self.core.finish_detached(change));
        // Returned after the memory is dropped: only then are the bytes available to other arenas.
        drop(unused);
        self.grant = None;
        self.core.state.shared().notify_freed();
        panic.go_on();
    }
}

impl<B: Backend> ArenaCore<B> {
    pub(super) fn begin_attach(&self) -> Result<Option<Attaching<'_, B>>, Error> {
        let alone = self.changing.lock();
        let mut state = self.state.lock();
        let Some(mut change) = take_detached(&mut state) else { return Ok(None) };
        let freed: Vec<_> = change.views.extract_if(.., |view| !view.is_used()).collect();
        let mut gaps = Vec::new();
        let planned = plan_attachment(&mut state, &change, &mut gaps, &self.share);
        let range = Arc::clone(&state.range);
        drop(state);
        drop(freed);
        let (change, new) = (Some(change), Vec::new());
        // From here on a drop reverses everything.
        let mut attaching =
            Attaching { core: self, _right: (alone, Refusal::new()), range, change, gaps, new, grant: None };
        attaching.new = planned?;
        attaching.map()?;
        Ok(Some(attaching))
    }

    /// Forgets the blocks of a detached arena: it is attached and empty. Returns false if it is not detached.
    /// The caller holds the lock of changes.
    pub(crate) fn attach_empty(&self) -> Result<bool, Error> {
        let mut state = self.state.lock();
        let Some(mut change) = take_detached(&mut state) else { return Ok(false) };
        drop(state);
        let (unmapped, panic) = caught(|| self.unmap_views(&mut change.views));
        if let Err(error) = unmapped {
            drop(self.finish_detached(change));
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
        state.phase = Phase::Attached;
        drop(state);
        // Returned after the memory is dropped: only then are the bytes available to other arenas.
        let returned = self.share.split(unmapped);
        drop((slots, change.views, change.pieces));
        drop(returned);
        change.on_free.call(&change.live);
        emptied?;
        Ok(true)
    }
}

/// Bytes of the pieces with these indices.
fn bytes_of(pieces: &[DetachedPiece], indices: &[usize]) -> u64 {
    indices.iter().map(|&index| pieces[index].extent.bytes).sum()
}

/// Whether any of the sorted extents is in the piece.
fn is_needed(live: &[Range<u64>], piece: Extent) -> bool {
    let first = live.partition_point(|extent| extent.end <= piece.start);
    live.get(first).is_some_and(|extent| extent.start < piece.end())
}

/// Begins a change of a detached arena. Returns `None` if it is not detached.
fn take_detached<B: Backend>(state: &mut State<B>) -> Option<Change<B>> {
    let phase = std::mem::replace(&mut state.phase, Phase::Changing);
    let Phase::Detached(mut change) = phase else {
        state.phase = phase;
        return None;
    };
    change.live = state.slots.extents(&state.engine);
    Some(*change)
}

/// Returns the indices of pieces that need new memory. Adds to `gaps` the parts of the range that need none, held.
fn plan_attachment<B: Backend>(
    state: &mut State<B>,
    change: &Change<B>,
    gaps: &mut Vec<BlockId>,
    share: &Share,
) -> Result<Vec<usize>, Error> {
    let (mut new, mut needed) = (Vec::new(), 0);
    let is_private = state.backing.as_ref().is_some_and(|backing| backing.is_private);
    for (index, DetachedPiece { extent, physical }) in change.pieces.iter().enumerate() {
        match (is_private || is_needed(&change.live, *extent), physical) {
            (false, None) => {
                gaps.push(state.engine.hold_at(extent.start, extent.bytes)?);
                continue;
            }
            (true, None) => new.push(index),
            (_, Some(_)) => {}
        }
        needed += extent.bytes;
    }
    let limit = state.backing.as_ref().map_or(u64::MAX, |backing| backing.limit);
    if needed > limit {
        return Err(BackendError::lacks(needed, share.limit(limit, 0)).into());
    }
    Ok(new)
}
