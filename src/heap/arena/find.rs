//! Finds the memory that serves a request, for arenas of fixed size and growing ones, with or without streams to wait
//! for.

use super::hazards::clear::Refused;
use super::mapping::pages::{Budget, Way, take_extents};
use super::request::ArenaRequest;
use super::state::{State, TakenBlock};
use crate::error::Error;
use crate::heap::space::{ArenaError, BlockId, Zone};
use vrampool_backend::Backend;

/// Whether a request may take memory that needs a wait for another stream.
#[derive(Debug)]
pub(super) enum Waits {
    /// Waits if no other memory serves.
    Allow,
    /// Takes memory that needs no wait, from a bounded search.
    Avoid,
    /// Takes memory for which the stream need not wait for any of the [refused](Refused) streams, by an exhaustive
    /// search.
    Refuse(Refused),
}

impl<B: Backend> State<B> {
    /// Takes mapped memory. Returns `None` if none serves, or if making memory is better.
    ///
    /// # Errors
    /// Errors of the engine: in an arena of fixed size, also if no memory serves.
    #[inline]
    pub(super) fn find(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
        waits: &Waits,
    ) -> Result<Option<TakenBlock<B>>, Error> {
        match waits {
            Waits::Refuse(refused) => return Ok(self.find_clear(request, refused)),
            Waits::Avoid => return self.find_unawaited(request, budget),
            Waits::Allow => {}
        }
        if !self.markers.is_empty()
            && self.is_large(request.bytes)
            && let taken @ Some(_) = self.find_unawaited(request, budget)?
        {
            return Ok(taken);
        }
        match self.find_any(request, budget)? {
            Some(taken) => Ok(Some(self.exchange(taken, request)?)),
            None => Ok(None),
        }
    }

    /// Takes a block that needs no wait if the [first choice](Self::first_choice) is one, as it mostly is. Returns it with
    /// its offset and size.
    #[inline(always)]
    pub(super) fn find_at_once(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
    ) -> Option<(BlockId, u64, u64)> {
        if !self.markers.is_empty() {
            return None;
        }
        let block = self.first_choice(request).ok()??;
        let (offset, size) = self.engine.extent(block);
        if !self.uses.needs_no_wait(&(offset..offset + size), request.stream) {
            self.free_freed(block);
            return None;
        }
        self.note_used(&(offset..offset + size));
        Some((block, offset, size))
    }

    /// Takes a block of the part of the range that serves a request: of a hole, or of the free end if no stitched range is
    /// older, if the request may be stitched. Returns `None` if a growing arena has none.
    #[inline(always)]
    fn first_choice(
        &mut self,
        &ArenaRequest { bytes, alignment, zone, .. }: &ArenaRequest<'_, B::Stream>,
    ) -> Result<Option<BlockId>, ArenaError> {
        let Self { engine, backing, .. } = self;
        let Some(backing) = backing else {
            return engine.allocate_aligned(bytes, alignment, zone).map(Some);
        };
        let is_plain = alignment > engine.alignment() || !alignment.is_power_of_two();
        let size = bytes.checked_next_multiple_of(engine.alignment());
        if let Some(size) = size.filter(|&size| !is_plain && backing.stitches(size)) {
            return Ok(match engine.allocate_in_hole(bytes) {
                None if backing.end_is_oldest(engine, size) => engine.allocate_at_end(bytes),
                found => found,
            });
        }
        let zone = backing.zone_of(bytes);
        match engine.allocate_aligned(bytes, alignment, zone) {
            Err(error) if error.is_out_of_memory() => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Takes memory whatever the streams that used it.
    fn find_any(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
    ) -> Result<Option<TakenBlock<B>>, ArenaError> {
        if let Some(block) = self.first_choice(request)? {
            return Ok(Some(TakenBlock::plain(block)));
        }
        let Self { engine, backing: Some(backing), .. } = self else { return Ok(None) };
        let &ArenaRequest { bytes, alignment, .. } = request;
        let zone = backing.zone_of(bytes);
        let Some(size) = bytes.checked_next_multiple_of(engine.alignment()) else { return Ok(None) };
        let is_plain = alignment > engine.alignment() || !alignment.is_power_of_two();
        let stitches = backing.stitches(size) && !is_plain;
        // New memory is mapped instead: it stays at the end of its part, where the next such request finds it.
        if !stitches && backing.grows_for(engine, zone, (size, alignment), budget) {
            return Ok(None);
        }
        if zone == Zone::Stable {
            // A small block that stayed there would divide the memory that a later pass needs.
            if !request.spills && budget == Budget::Free {
                return Ok(None);
            }
            match engine.allocate_aligned(bytes, alignment, Zone::Dynamic) {
                // There is room in the part for large requests.
                Ok(block) => return Ok(Some(TakenBlock::plain(block))),
                Err(error) if error.is_out_of_memory() => {}
                Err(error) => return Err(error),
            }
        }
        if is_plain {
            return Ok(None);
        }
        match backing.oldest(engine, size) {
            Way::Nothing => Ok(None),
            Way::End => Ok(engine.allocate_at_end(bytes).map(TakenBlock::plain)),
            Way::Stitched(memory, fit) => {
                let blocks = take_extents(engine, &fit.extents, |extent| backing.room_of(extent))?;
                Ok(TakenBlock::stitched(blocks, memory, fit.offset))
            }
        }
    }

    /// As [`find_any`](Self::find_any), for memory without a wait, preferably not last used by other streams that are
    /// busy.
    fn find_unawaited(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
    ) -> Result<Option<TakenBlock<B>>, Error> {
        let Some(taken) = self.find_any(request, budget)? else { return Ok(None) };
        let (stream, is_anyones) = (request.stream, self.markers.is_empty());
        let Self { engine, uses, .. } = self;
        let blocks = [taken.block]
            .into_iter()
            .chain(taken.stitched.iter().flat_map(|place| place.more.iter().copied()));
        let extent = |block| {
            let (offset, size) = engine.extent(block);
            offset..offset + size
        };
        let needs_none = blocks.clone().all(|block| uses.needs_no_wait(&extent(block), stream));
        let is_own = || blocks.clone().all(|block| uses.has_no_other_user(&extent(block), stream));
        if needs_none && (is_anyones || is_own()) {
            return Ok(Some(taken));
        }
        let size = blocks.clone().map(|block| engine.extent(block).1).sum();
        let is_anywhere =
            request.alignment <= engine.alignment() && engine.zone(taken.block) == Ok(Zone::Dynamic);
        blocks.for_each(|block| self.free_freed(block));
        if is_anywhere && let Some(block) = self.place_without_wait(size, stream) {
            return Ok(Some(TakenBlock::plain(block)));
        }
        // It was free a moment ago, so this finds the same memory.
        if needs_none { Ok(self.find_any(request, budget)?) } else { Ok(None) }
    }

    /// Keeps the taken memory, or exchanges it for memory with a shorter wait. A captured stream gets memory without a
    /// wait only, because the streams that it may wait for are unknown here.
    ///
    /// # Errors
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`]; nothing is taken then.
    #[inline(always)]
    fn exchange(
        &mut self,
        taken: TakenBlock<B>,
        request: &ArenaRequest<'_, B::Stream>,
    ) -> Result<TakenBlock<B>, ArenaError> {
        let avoids_waits = self.are_concurrent && self.uses.ticks.are_several();
        let may_move = taken.stitched.is_none()
            && request.alignment <= self.engine.alignment()
            && (request.is_captured || avoids_waits);
        if !may_move {
            return Ok(taken);
        }
        let (offset, size) = self.engine.extent(taken.block);
        if self.uses.needs_no_wait(&(offset..offset + size), request.stream) {
            return Ok(taken);
        }
        self.move_without_wait(taken.block, request.stream, request.is_captured).map(TakenBlock::plain)
    }

    /// The part of the range that serves a request.
    pub(super) fn zone_of(&self, request: &ArenaRequest<'_, B::Stream>) -> Zone {
        self.backing.as_ref().map_or(request.zone, |backing| backing.zone_of(request.bytes))
    }
}
