//! Finds the memory that serves a request, for arenas of fixed size and growing ones, with or without streams to wait
//! for.

use crate::error::Error;
use crate::heap::arena::hazards::Refused;
use crate::heap::arena::mapping::{Budget, Way};
use crate::heap::arena::{ArenaRequest, State, StitchedPlace, TakenBlock};
use crate::heap::space::{ArenaError, BlockId, Zone};
use vrampool_backend::Backend;

/// A block with its offset and size, and the stitched range if it is one.
type Unawaited<B> = ((BlockId, u64, u64), Option<StitchedPlace<B>>);

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

    /// Takes a hole that needs no wait, if the first that serves is such, as it mostly is, and no stream has markers.
    /// Returns it with its offset and size.
    #[inline(always)]
    pub(super) fn take_hole(&mut self, request: &ArenaRequest<'_, B::Stream>) -> Option<(BlockId, u64, u64)> {
        if !self.markers.is_empty() {
            return None;
        }
        let block = self.find_hole(request).ok()??;
        let (offset, size) = self.engine.extent(block);
        let range = offset..offset + size;
        if !self.uses.needs_no_wait(&range, request.stream) {
            self.free_freed(block);
            return None;
        }
        self.note_used(&range);
        Some((block, offset, size))
    }

    /// As [`take_hole`](Self::take_hole), of all memory.
    #[cold]
    #[inline(never)]
    pub(super) fn take_unawaited(&mut self, request: &ArenaRequest<'_, B::Stream>) -> Option<Unawaited<B>> {
        let TakenBlock { block, stitched } = self.find_unawaited(request, Budget::Free).ok()??;
        let more = stitched.as_ref().map_or(&[][..], |place| &place.more);
        let (offset, size) = self.note_taken(block, more);
        Some(((block, offset, size), stitched))
    }

    /// Takes memory whatever the streams that used it: of a hole of the part of the range that serves the request, else
    /// the oldest of the free end and the stitched ranges, if the request may be stitched.
    #[inline]
    fn find_any(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
    ) -> Result<Option<TakenBlock<B>>, ArenaError> {
        match self.find_hole(request)? {
            Some(block) => Ok(Some(TakenBlock::plain(block))),
            None => self.find_beyond(request, budget),
        }
    }

    #[inline(always)]
    fn find_hole(&mut self, request: &ArenaRequest<'_, B::Stream>) -> Result<Option<BlockId>, ArenaError> {
        let (bytes, Self { engine, backing, .. }) = (request.bytes, self);
        let Some(backing) = backing else { return engine.allocate(bytes, request.zone).map(Some) };
        let size = bytes.checked_next_multiple_of(engine.alignment());
        match size.is_some_and(|size| backing.stitches(size)) {
            true => Ok(engine.allocate_in_hole(bytes)),
            false => match engine.allocate(bytes, backing.zone_of(bytes)) {
                Err(error) if error.is_out_of_memory() => Ok(None),
                found => found.map(Some),
            },
        }
    }

    /// As [`find_any`](Self::find_any), if no hole serves.
    #[cold]
    fn find_beyond(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
    ) -> Result<Option<TakenBlock<B>>, ArenaError> {
        let Self { engine, backing: Some(backing), .. } = self else { return Ok(None) };
        let (bytes, zone) = (request.bytes, backing.zone_of(request.bytes));
        let Some(size) = bytes.checked_next_multiple_of(engine.alignment()) else { return Ok(None) };
        // New memory is mapped instead: it stays at the end of its part, where the next such request finds it.
        if !backing.stitches(size) && backing.grows_for(engine, zone, size, budget) {
            return Ok(None);
        }
        if zone == Zone::Stable {
            // A small block that stayed there would divide the memory that a later pass needs.
            if !request.spills && budget == Budget::Free {
                return Ok(None);
            }
            match engine.allocate(bytes, Zone::Dynamic) {
                // There is room in the part for large requests.
                Ok(block) => return Ok(Some(TakenBlock::plain(block))),
                Err(error) if error.is_out_of_memory() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(match backing.take_oldest(engine, size)? {
            Way::Nothing => None,
            Way::End(block) => Some(TakenBlock::plain(block)),
            Way::Stitched(memory, offset, blocks) => TakenBlock::stitched(blocks, memory, offset),
        })
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
        let needs_none = self.needs_no_wait(&taken, stream);
        let is_own = || taken.blocks().all(|block| self.uses.has_no_other_user(&self.extent(block), stream));
        let is_anywhere = self.engine.zone_at(self.engine.extent(taken.block).0) == Zone::Dynamic;
        if needs_none && (is_anyones || !is_anywhere || is_own()) {
            return Ok(Some(taken));
        }
        let size = taken.blocks().map(|block| self.engine.extent(block).1).sum();
        self.put_back(&taken);
        if is_anywhere && let Some(block) = self.place_without_wait(size, stream) {
            return Ok(Some(TakenBlock::plain(block)));
        }
        let again = if needs_none { self.find_any(request, budget)? } else { None };
        let Some(taken) = again else { return Ok(None) };
        // Of holes of one size it may be another one.
        if self.needs_no_wait(&taken, stream) {
            return Ok(Some(taken));
        }
        self.put_back(&taken);
        Ok(None)
    }

    /// Whether `stream` need not wait before it uses taken memory.
    #[inline]
    fn needs_no_wait(&mut self, taken: &TakenBlock<B>, stream: &B::Stream) -> bool {
        taken.blocks().all(|block| {
            let range = self.extent(block);
            self.uses.needs_no_wait(&range, stream)
        })
    }

    /// Frees taken memory that no stream used.
    fn put_back(&mut self, taken: &TakenBlock<B>) {
        taken.blocks().for_each(|block| self.free_freed(block));
    }

    /// Keeps the taken memory, or exchanges it for memory with a shorter wait. For a captured stream any memory without
    /// a wait will do, because the streams that it may wait for are unknown here.
    ///
    /// # Errors
    /// Those of the engine; nothing is taken then.
    #[inline(always)]
    fn exchange(
        &mut self,
        taken: TakenBlock<B>,
        request: &ArenaRequest<'_, B::Stream>,
    ) -> Result<TakenBlock<B>, ArenaError> {
        let avoids_waits = self.are_concurrent && self.uses.ticks.are_several();
        if taken.stitched.is_some() || !(request.is_captured || avoids_waits) {
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
