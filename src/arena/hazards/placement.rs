//! Keeps streams that share no data side by side. Once several streams use an arena, a request prefers, in this
//! order: memory that needs no wait; the same after a poll of [markers](crate::streams::markers), and of streams
//! without one; newly mapped memory; the memory with the earliest marker.
//!
//! While no other stream is known to be busy, the choice among memory without a wait is that of a program with
//! one stream. Otherwise memory that the request's stream used last comes first, because the other streams
//! would have to wait for it later.

use super::ranges::Part;
use crate::arena::ArenaBuffer;
use crate::arena::core::ArenaCore;
use crate::arena::engine::{ArenaError, BlockId, FreeBlock, Zone};
use crate::arena::mapping::pages::Budget;
use crate::arena::state::{State, Taken};
use crate::error::Error;
use crate::streams::order::{Freed, Order};
use crate::streams::waits::StreamOrder;
use parking_lot::MutexGuard as LongMutexGuard;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream, logging};

/// The treatment of memory that needs a wait for another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::arena) enum WaitPolicy {
    /// Not taken if the request [prefers](State::prefers_growth) new memory.
    Avoid,
    /// Taken if nothing else is available.
    Allow,
}

/// Most free blocks to examine for a place without a wait, and most parts of them in the way.
const ROOMS: usize = 256;

/// Most free blocks to examine for the earliest wait, and most parts of them.
const PARTS: usize = 64;

/// As [`ROOMS`], for a place that the stream itself used.
const OWN: usize = 24;

/// Later than any tick.
const NOW: u64 = u64::MAX;

impl<B: Backend> ArenaCore<B> {
    /// Serves a request that would wait: from newly mapped memory if allowed, else from existing memory.
    /// Returns `None` if neither is available.
    #[cold]
    pub(in crate::arena) fn serve_without_wait(
        self: &Arc<Self>,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        if !self.state.lock().prefers_growth(request) {
            return Ok(None);
        }
        // A thread that changes the arena may wait for a stream for long.
        if let Some(alone) = self.changing.try_lock()
            && let Some(buffer) = self.grow_without_wait(request, stream, alone)?
        {
            return Ok(Some(buffer));
        }
        self.serve_mapped(request, Budget::Free, WaitPolicy::Allow, stream)
    }

    /// Takes memory without a wait after streams were asked, or new memory. Returns `None` if neither is
    /// available.
    fn grow_without_wait<'a>(
        self: &'a Arc<Self>,
        request: (u64, u64),
        stream: &'a B::Stream,
        alone: LongMutexGuard<'a, ()>,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        self.ask_unmarked(stream);
        let mut state = self.attached(request.0, || self.state.lock())?;
        if !state.markers.is_empty() {
            state = self.note_done(state);
        }
        // Without markers nobody is busy, and no memory needs a wait.
        if state.markers.is_empty() {
            return Ok(None);
        }
        state.uses.ticks.want_markers();
        if !state.prefers_growth(request) {
            return Ok(None);
        }
        if let Some(taken) = state.take_without_wait(request, Budget::Free, stream)? {
            return self.finish_allocation((state, Some(false)), taken, request, stream).map(Some);
        }
        drop(state);
        match self.grow_beside(request, stream, alone) {
            Ok(grown) => Ok(Some(grown)),
            Err(error) => {
                logging::debug!("arena on {}: {error}; a stream waits", self.id);
                Ok(None)
            }
        }
    }

    /// Asks the streams that used free memory without a marker whether they are idle. Records a marker on each
    /// other one, so that it is polled later.
    fn ask_unmarked(&self, stream: &B::Stream) {
        let mut state = self.state.lock();
        let is_unmarked = |user: &B::Stream, tick| {
            user.id() != stream.id() && state.markers.covering(user.id(), tick).is_none()
        };
        let users = state.users_of_free(is_unmarked);
        if users.is_empty() {
            return;
        }
        let tick = state.uses.ticks.begin();
        drop(state);
        let idle = self.ask(Freed { users, tick, bytes: 0 });
        let mut state = self.state.lock();
        idle.iter().for_each(|user| state.uses.ticks.done(user.id(), tick));
        drop(state);
    }
}

impl<B: Backend> State<B> {
    /// Whether a request maps new memory instead of waiting for another stream.
    pub(in crate::arena) fn prefers_growth(&self, (bytes, alignment): (u64, u64)) -> bool {
        let are_several = self.are_concurrent && self.uses.ticks.are_several();
        let Some(backing) = self.backing.as_ref().filter(|_| are_several) else { return false };
        let size = bytes.checked_next_multiple_of(self.engine.alignment());
        let needed = self.needed_with(size.unwrap_or(bytes));
        size.is_some_and(|size| backing.grows_without_wait(&self.engine, size, alignment, needed))
    }

    /// The peak of live bytes and bytes in flight, including a request of `bytes`.
    pub(in crate::arena) fn needed_with(&self, bytes: u64) -> u64 {
        let now = self.engine.used() + self.uses.ticks.in_flight();
        self.peak_needed.max(self.engine.peak_used()).max(now.saturating_add(bytes))
    }

    /// Records that the device refused to map memory.
    pub(in crate::arena) fn note_growth_refused(&mut self) {
        if let Some(backing) = &mut self.backing {
            backing.note_growth_refused();
        }
    }

    /// Whether a block of so many bytes belongs in the zone of large blocks.
    #[inline]
    pub(in crate::arena) fn is_large(&self, bytes: u64) -> bool {
        self.backing.as_ref().is_none_or(|backing| backing.zone_of(bytes) == Zone::Dynamic)
    }

    /// As [`take_mapped`](Self::take_mapped), for memory without a wait, preferably not last used by other
    /// streams that are busy.
    pub(in crate::arena) fn take_without_wait(
        &mut self,
        (bytes, alignment): (u64, u64),
        budget: Budget,
        stream: &B::Stream,
    ) -> Result<Option<Taken<B>>, Error> {
        let Some(taken) = self.take_mapped(bytes, alignment, budget)? else { return Ok(None) };
        let is_anyones = self.markers.is_empty();
        let Self { engine, uses, .. } = self;
        let blocks = [taken.block]
            .into_iter()
            .chain(taken.stitched.iter().flat_map(|place| place.more.iter().copied()));
        let extent = |block| {
            let (offset, size) = engine.extent(block);
            offset..offset + size
        };
        let needs_none = blocks.clone().all(|block| uses.needs_no_wait(&extent(block), stream));
        let is_own = || blocks.clone().all(|block| uses.is_nobody_elses(&extent(block), stream));
        if needs_none && (is_anyones || is_own()) {
            return Ok(Some(taken));
        }
        let size = blocks.clone().map(|block| engine.extent(block).1).sum();
        let is_anywhere = alignment <= engine.alignment() && engine.zone(taken.block) == Ok(Zone::Dynamic);
        blocks.for_each(|block| self.free_freed(block));
        if is_anywhere && let Some(block) = self.place_without_wait(size, stream) {
            return Ok(Some(Taken::plain(block)));
        }
        if needs_none && !self.has_own(size, stream) {
            self.take_mapped(bytes, alignment, budget)
        } else {
            Ok(None)
        }
    }

    /// Keeps the taken memory, or exchanges it for memory with a shorter wait. A captured stream gets memory
    /// without a wait only, because the streams that it may wait for are unknown here.
    ///
    /// # Errors
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`]; nothing is taken then.
    #[inline(always)]
    pub(in crate::arena) fn keep_without_wait(
        &mut self,
        taken: Taken<B>,
        alignment: u64,
        (stream, is_captured): (&B::Stream, Option<bool>),
    ) -> Result<Taken<B>, ArenaError> {
        let avoids_waits = self.are_concurrent && self.uses.ticks.are_several();
        let may_move = taken.stitched.is_none()
            && alignment <= self.engine.alignment()
            && is_captured.is_some_and(|is_captured| is_captured || avoids_waits);
        if !may_move {
            return Ok(taken);
        }
        let (offset, size) = self.engine.extent(taken.block);
        if self.uses.needs_no_wait(&(offset..offset + size), stream) {
            return Ok(taken);
        }
        Ok(Taken::plain(self.move_without_wait(taken.block, stream, is_captured == Some(true))?))
    }

    #[cold]
    fn move_without_wait(
        &mut self,
        block: BlockId,
        stream: &B::Stream,
        is_captured: bool,
    ) -> Result<BlockId, ArenaError> {
        let (start, bytes) = self.engine.extent(block);
        let reach = self.uses.ticks.reach(stream.id());
        let last = self.last_waits(&(start..start + bytes), &reach).filter_map(|(_, last)| last).max();
        if last.is_none() || self.engine.zone(block)? != Zone::Dynamic {
            return Ok(block);
        }
        // With these reserved, allocating it again succeeds anywhere, also at the original place.
        if self.engine.reserve_blocks(2).is_err() {
            return Ok(block);
        }
        self.engine.free(block)?;
        let place = match self.find_without_wait(bytes, &reach) {
            None if !is_captured => self.earliest(bytes, &reach, last),
            place => place,
        };
        match place {
            Some((room, place)) => self.engine.allocate_in_free(room, place, bytes),
            None => self.engine.allocate_at(start, bytes),
        }
    }

    /// Allocates `size` bytes, a multiple of the alignment, for which `stream` need not wait. Places that no
    /// other stream used last come first, and alone count while such memory would serve in parts: otherwise
    /// those streams would have to wait for theirs later.
    #[cold]
    pub(in crate::arena) fn place_without_wait(&mut self, size: u64, stream: &B::Stream) -> Option<BlockId> {
        let own = self.place_without(size, OWN, |part| self.uses.is_anothers(part, stream.id()));
        let (room, place) = match own {
            Some(place) => place,
            None if self.has_own(size, stream) => return None,
            None => self.find_without_wait(size, &self.uses.ticks.reach(stream.id()))?,
        };
        self.engine.allocate_in_free(room, place, size).ok()
    }

    /// Finds a place that needs no wait, in one of the smallest sufficient rooms.
    fn find_without_wait(&self, bytes: u64, reach: &StreamOrder) -> Option<(FreeBlock, u64)> {
        self.place_without(bytes, ROOMS, |part| part.has(|user, tick| !reach.covers(user, tick)))
    }

    /// Finds a place in one of the smallest sufficient rooms, or at the free end, without parts for which
    /// `is_in_the_way` holds. Examines at most `most` rooms, and skips at most `most` such parts in either.
    fn place_without(
        &self,
        bytes: u64,
        most: usize,
        is_in_the_way: impl Fn(&Part<B::Stream>) -> bool,
    ) -> Option<(FreeBlock, u64)> {
        let (free_end, mut left) = (self.engine.free_end(Zone::Dynamic), most);
        for room in self.engine.fitting_blocks(bytes, most) {
            if room.offset == free_end {
                left = most;
            }
            let all = room.offset..room.offset + room.bytes;
            let mut place = all.start;
            for part in self.uses.parts(&all) {
                let is_in_the_way = is_in_the_way(part);
                let free_until = if is_in_the_way { part.start } else { part.end.min(all.end) };
                if free_until.saturating_sub(place) >= bytes {
                    return Some((room, place));
                }
                if is_in_the_way {
                    // When the budget is used up, the rest of the room is not examined.
                    place = if left > 0 { part.end } else { all.end };
                    left = left.saturating_sub(1);
                }
                if place >= all.end {
                    break;
                }
            }
            if all.end.saturating_sub(place) >= bytes {
                return Some((room, place));
            }
        }
        None
    }

    /// Finds the place with the earliest wait before `last`.
    fn earliest(&self, bytes: u64, reach: &StreamOrder, mut last: Option<u64>) -> Option<(FreeBlock, u64)> {
        let (mut best, mut left) = (None, PARTS);
        let mut rooms: SmallVec<[FreeBlock; 32]> = self.engine.fitting_blocks(bytes, PARTS).collect();
        rooms.sort_unstable_by_key(|room| room.offset);
        for room in rooms {
            let Range { start, mut end } = room.offset..room.offset + room.bytes;
            let parts: SmallVec<[_; 16]> = self.last_waits(&(start..end), reach).take(left).collect();
            left -= parts.len();
            if left == 0 {
                // The wait of parts beyond those is unknown.
                end = parts.last().map_or(end, |(part, _)| end.min(part.end));
            }
            // The start of a later part is never better than the end of the part before it.
            let places = std::iter::once(start).chain(parts.iter().map(|(part, _)| part.end));
            for place in places.take_while(|place| end.checked_sub(bytes).is_some_and(|last| *place <= last))
            {
                let is_in = |part: &Range<u64>| part.start < place + bytes && place < part.end;
                let of_this =
                    parts.iter().filter(|(part, _)| is_in(part)).filter_map(|(_, last)| *last).max();
                if of_this < last {
                    (last, best) = (of_this, Some((room, place)));
                }
                if last.is_none() {
                    return best;
                }
            }
            if left == 0 {
                break;
            }
        }
        best
    }

    /// Returns the parts of a range, each with the tick of the point that a stream must wait for; `None` if it
    /// need not wait. A stream without a point, including a captured one, counts as [`NOW`].
    fn last_waits(
        &self,
        range: &Range<u64>,
        reach: &StreamOrder,
    ) -> impl Iterator<Item = (Range<u64>, Option<u64>)> {
        let point = |user, tick| self.markers.covering(user, tick).map_or(NOW, |point| point.tick);
        self.uses.last_waits(range, reach, point)
    }
}
