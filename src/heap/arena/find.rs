//! Finds the memory that serves a request, for arenas of fixed size and growing ones, with or without streams to wait
//! for.

use crate::error::Error;
use crate::heap::arena::hazards::Refused;
use crate::heap::arena::mapping::Budget;
use crate::heap::arena::{ArenaRequest, Candidate, State, TakenBlock};
use crate::heap::space::{Extent, FreeBlock, RoomRule, Zone};
use smallvec::{SmallVec, smallvec};
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
    /// Those of the engine for a size that cannot be; in an arena of fixed size, also if no memory serves.
    #[inline]
    pub(super) fn find(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
        waits: &Waits,
    ) -> Result<Option<TakenBlock<B>>, Error> {
        let candidate = self.candidate(request, budget, waits);
        let taken = candidate.and_then(|candidate| self.take(candidate, request.bytes));
        let is_final = self.backing.is_none() && matches!(waits, Waits::Allow);
        if taken.is_none() && (is_final || self.engine.round(request.bytes).is_none()) {
            return Err(self.engine.refusal((request.bytes, request.zone)).into());
        }
        Ok(taken)
    }

    /// The order of preference among mapped memory.
    #[inline]
    fn candidate(
        &mut self,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
        waits: &Waits,
    ) -> Option<Candidate> {
        match waits {
            Waits::Refuse(refused) => return self.clear_candidate(request, refused),
            Waits::Avoid => return self.unawaited(request, budget),
            Waits::Allow => {}
        }
        if !self.markers.is_empty()
            && self.zone_of(request) == Zone::Dynamic
            && let found @ Some(_) = self.unawaited(request, budget)
        {
            return found;
        }
        let first = self.first(request, budget)?;
        Some(self.with_shorter_wait(first, request))
    }

    /// Takes and counts mapped memory that needs no wait: mostly the first hole that serves is such.
    #[inline(always)]
    pub(super) fn take_at_once(&mut self, request: &ArenaRequest<'_, B::Stream>) -> Option<TakenBlock<B>> {
        let size = self.engine.round(request.bytes)?;
        if self.markers.is_empty()
            && let Some(room) = self.engine.room_by(size, self.room_rule(size, request))
        {
            let range = room.extent.first(size).range();
            if self.uses.needs_no_wait(&range, request.stream) {
                let block = self.engine.allocate_front(room, size);
                self.note_used(&range);
                return Some(TakenBlock::plain(block));
            }
        }
        self.take_unawaited(request)
    }

    /// As [`take_at_once`](Self::take_at_once), of all memory.
    #[cold]
    #[inline(never)]
    fn take_unawaited(&mut self, request: &ArenaRequest<'_, B::Stream>) -> Option<TakenBlock<B>> {
        let candidate = self.unawaited(request, Budget::Free)?;
        let taken = self.take(candidate, request.bytes)?;
        taken.blocks().for_each(|block| self.note_used(&self.engine.extent(block).range()));
        Some(taken)
    }

    /// Memory whatever the streams that used it: a hole of the part of the range that serves the request, else
    /// the oldest of the free end and the stitched ranges, if the request may be stitched.
    #[inline]
    fn first(&mut self, request: &ArenaRequest<'_, B::Stream>, budget: Budget) -> Option<Candidate> {
        let size = self.engine.round(request.bytes)?;
        match self.engine.room_by(size, self.room_rule(size, request)) {
            Some(room) => Some(Candidate::plain(room)),
            None => self.first_beyond(size, request, budget),
        }
    }

    #[inline(always)]
    fn room_rule(&self, size: u64, request: &ArenaRequest<'_, B::Stream>) -> RoomRule {
        match &self.backing {
            None => RoomRule::Smallest(request.zone),
            Some(backing) if backing.stitches(size) => RoomRule::LowestHole,
            Some(backing) => RoomRule::Smallest(backing.zone_of(request.bytes)),
        }
    }

    /// As [`first`](Self::first), if no hole serves.
    #[cold]
    fn first_beyond(
        &mut self,
        size: u64,
        request: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
    ) -> Option<Candidate> {
        let Self { engine, backing: Some(backing), .. } = self else { return None };
        let zone = backing.zone_of(request.bytes);
        // New memory is mapped instead: it stays at the end of its part, where the next such request finds it.
        if !backing.stitches(size) && backing.grows_for(engine, zone, size, budget) {
            return None;
        }
        if zone == Zone::Stable {
            // A small block that stayed there would divide the memory that a later pass needs.
            if !request.spills && budget == Budget::Free {
                return None;
            }
            if let Some(room) = engine.room_by(size, RoomRule::Smallest(Zone::Dynamic)) {
                return Some(Candidate::plain(room));
            }
        }
        backing.oldest(engine, size)
    }

    /// As [`first`](Self::first), for memory without a wait, preferably not last used by other streams that are busy.
    fn unawaited(&mut self, request: &ArenaRequest<'_, B::Stream>, budget: Budget) -> Option<Candidate> {
        let (size, stream) = (self.engine.round(request.bytes)?, request.stream);
        let first = self.first(request, budget)?;
        let extents = first.extents(size);
        let needs_none = self.needs_no_wait(&extents, stream);
        let is_own = || extents.iter().all(|extent| self.uses.has_no_other_user(&extent.range(), stream));
        let is_anywhere = extents.first().is_some_and(|at| self.engine.zone_at(at.start) == Zone::Dynamic);
        if needs_none && (self.markers.is_empty() || !is_anywhere || is_own()) {
            return Some(first);
        }
        let place = if is_anywhere { self.place_without_wait(size, stream) } else { None };
        place.or(needs_none.then_some(first))
    }

    /// Whether `stream` need not wait before it uses free memory.
    #[inline]
    fn needs_no_wait(&mut self, extents: &[Extent], stream: &B::Stream) -> bool {
        extents.iter().all(|extent| self.uses.needs_no_wait(&extent.range(), stream))
    }

    /// The candidate, or memory with a shorter wait. For a captured stream any memory without
    /// a wait will do, because the streams that it may wait for are unknown here.
    #[inline(always)]
    fn with_shorter_wait(&mut self, first: Candidate, request: &ArenaRequest<'_, B::Stream>) -> Candidate {
        let Candidate::Plain { start, .. } = first else { return first };
        if !(request.is_captured || self.are_several()) || self.engine.zone_at(start) != Zone::Dynamic {
            return first;
        }
        let range = start..start + self.engine.round(request.bytes).unwrap_or(0);
        if self.uses.needs_no_wait(&range, request.stream) {
            return first;
        }
        self.place_with_shorter_wait(&range, request.stream, request.is_captured).unwrap_or(first)
    }

    /// Allocates what a search offered.
    #[inline]
    fn take(&mut self, candidate: Candidate, bytes: u64) -> Option<TakenBlock<B>> {
        let Self { engine, backing, .. } = self;
        match candidate {
            Candidate::Plain { room, start } => {
                engine.allocate_in(room, start, engine.round(bytes)?).ok().map(TakenBlock::plain)
            }
            Candidate::Stitched { age, fit } => backing.as_mut()?.take_fit(engine, age, &fit),
        }
    }

    /// The part of the range that serves a request.
    pub(super) fn zone_of(&self, request: &ArenaRequest<'_, B::Stream>) -> Zone {
        self.backing.as_ref().map_or(request.zone, |backing| backing.zone_of(request.bytes))
    }
}

impl Candidate {
    fn plain(room: FreeBlock) -> Self {
        Self::Plain { start: room.extent.start, room }
    }

    /// Its extents in the arena's range.
    fn extents(&self, size: u64) -> SmallVec<[Extent; 4]> {
        match self {
            &Self::Plain { start, .. } => smallvec![Extent { start, bytes: size }],
            Self::Stitched { fit, .. } => fit.extents.clone(),
        }
    }
}
