//! Keeps streams that share memory apart. A request prefers memory that its own stream used last. If another
//! stream still uses a candidate, the alternatives are, in this order: other free memory, newly mapped
//! memory, the earliest wait point.
//!
//! Only streams on the [timeline](super::timeline) have a known position. A program whose streams share no
//! block therefore gets the same placement in a growing arena as with one stream. A range of fixed size
//! prefers memory that needs no wait, because the other stream's work may depend on the thread that requests.

use super::ranges::StreamOrder;
use crate::arena::ArenaBuffer;
use crate::arena::core::ArenaCore;
use crate::arena::engine::{ArenaError, BlockId, FreeBlock, Zone};
use crate::arena::mapping::pages::{Extent, Growth, Stock};
use crate::arena::state::{State, Taken};
use crate::error::Error;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream, StreamId, logging};

/// The treatment of memory that needs a wait for another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::arena) enum Late {
    /// Not taken if the request [prefers](ArenaCore::rather_grows) new memory.
    Rather,
    /// Taken if nothing else is available.
    Any,
}

/// Most free blocks to examine, and most parts of them.
const PARTS: usize = 64;

/// As [`PARTS`], for a place that the stream itself used.
const OWN: usize = 24;

/// Later than any era.
const NOW: u64 = u64::MAX;

impl<B: Backend> ArenaCore<B> {
    /// Whether a request maps new memory instead of waiting for another stream.
    pub(in crate::arena) fn rather_grows(&self, state: &State<B>, request: (u64, u64)) -> bool {
        self.share.is_unlimited() && state.may_grow_without_wait(request)
    }

    /// Serves a request that would wait: from newly mapped memory if allowed, else from existing memory.
    /// Returns `None` if neither is available.
    #[cold]
    pub(in crate::arena) fn serve_without_wait(
        self: &Arc<Self>,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        if !self.rather_grows(&self.state.lock_with_deferred(), request) {
            return Ok(None);
        }
        // A thread that changes the arena may wait for a stream for long.
        if let Some(_alone) = self.changing.try_lock()
            && let Some(buffer) = self.grow_without_wait(request, stream)?
        {
            return Ok(Some(buffer));
        }
        self.serve_mapped(request, Stock::Plenty, Late::Any, stream)
    }

    /// Takes memory without a wait after another poll, or new memory. Returns `None` if neither is available.
    fn grow_without_wait(
        self: &Arc<Self>,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        let mut state = self.state.lock_with_deferred();
        if !state.timeline.is_empty() {
            state = self.note_done(state);
        }
        if !state.is_awake() || !self.rather_grows(&state, request) {
            return Ok(None);
        }
        if let Some(taken) = state.take_settled(request, Stock::Plenty, stream)? {
            return self.hand_out((state, Some(false)), taken, request, stream).map(Some);
        }
        let Some((place, growth)) = state.plan_without_wait(request.0, stream) else { return Ok(None) };
        let range = Arc::clone(&state.range);
        drop(state);
        let made = match self.make(&growth, &range, &[]) {
            Ok(made) => made,
            Err(mut unmade) => {
                let mut state = self.state.lock_with_deferred();
                state.keep_stuck(&growth, std::mem::take(&mut unmade.stuck));
                state.note_growth_refused();
                drop(state);
                logging::debug!("arena on {}: {}; a stream waits", self.id, unmade.into_error());
                return Ok(None);
            }
        };
        let mut state = self.state.lock_with_deferred();
        if state.engine.reserve_blocks(3).is_err() {
            drop(state);
            let stuck = self.unmake(&growth, &range, made.new);
            self.state.lock_with_deferred().keep_stuck(&growth, stuck);
            return Ok(None);
        }
        let _ = state.commit(growth, made, &[]);
        // Unless another thread took it first.
        match state.engine.allocate_at(place.start, place.bytes) {
            Ok(block) => self.hand_out((state, Some(false)), Taken::plain(block), request, stream).map(Some),
            Err(_) => Ok(None),
        }
    }
}

impl<B: Backend> State<B> {
    fn may_grow_without_wait(&self, (bytes, alignment): (u64, u64)) -> bool {
        let Some(backing) = self.backing.as_ref().filter(|_| self.timeline.were_any()) else { return false };
        let size = bytes.checked_next_multiple_of(self.engine.alignment());
        size.is_some_and(|size| backing.grows_without_wait(&self.engine, size, alignment))
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
    /// streams.
    pub(in crate::arena) fn take_settled(
        &mut self,
        (bytes, alignment): (u64, u64),
        stock: Stock,
        stream: &B::Stream,
    ) -> Result<Option<Taken<B>>, Error> {
        let Some(taken) = self.take_mapped(bytes, alignment, stock)? else { return Ok(None) };
        let Self { engine, unsettled, .. } = self;
        let blocks = [taken.block]
            .into_iter()
            .chain(taken.stitched.iter().flat_map(|place| place.more.iter().copied()));
        let extent = |block| {
            let (offset, size) = engine.extent(block);
            offset..offset + size
        };
        if blocks.clone().all(|block| unsettled.is_nobody_elses(&extent(block), stream)) {
            return Ok(Some(taken));
        }
        let is_settled = blocks.clone().all(|block| unsettled.is_settled_for(&extent(block), stream));
        let size = blocks.clone().map(|block| engine.extent(block).1).sum();
        let is_anywhere = alignment <= engine.alignment() && engine.zone(taken.block) == Ok(Zone::Dynamic);
        blocks.for_each(|block| self.free_freed(block));
        if is_anywhere && let Some(block) = self.place_settled(size, stream) {
            return Ok(Some(Taken::plain(block)));
        }
        if is_settled { self.take_mapped(bytes, alignment, stock) } else { Ok(None) }
    }

    /// Plans the memory for a request that [prefers](ArenaCore::rather_grows) new memory, and its place.
    pub(in crate::arena) fn plan_without_wait(
        &mut self,
        bytes: u64,
        stream: &B::Stream,
    ) -> Option<(Extent, Growth)> {
        if !self.keep_unkept() {
            return None;
        }
        let Self { engine, backing: Some(backing), unsettled, .. } = self else { return None };
        let bytes = bytes.checked_next_multiple_of(engine.alignment())?;
        let (free_end, end) = (engine.free_end(Zone::Dynamic), engine.end(Zone::Dynamic));
        let start = if unsettled.is_settled_for(&(free_end..end), stream) { free_end } else { end };
        Some((Extent { start, bytes }, backing.plan_without_wait(engine, bytes, start)?))
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
        // In an arena of fixed size the whole range is already reserved, so memory without a wait has no extra
        // cost.
        let may_move = taken.stitched.is_none()
            && alignment <= self.engine.alignment()
            && (self.prefers_settled || is_captured.is_some() && !self.timeline.is_empty());
        if !may_move {
            return Ok(taken);
        }
        let (offset, size) = self.engine.extent(taken.block);
        if self.unsettled.is_settled_for(&(offset..offset + size), stream) {
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
        let reach = self.unsettled.reach(stream);
        let late = self.lateness(&(start..start + bytes), &reach).filter_map(|(_, late)| late).max();
        if late.is_none() || self.engine.zone(block)? != Zone::Dynamic {
            return Ok(block);
        }
        // With these reserved, allocating it again succeeds anywhere, also at the original place.
        if self.engine.reserve_blocks(2).is_err() {
            return Ok(block);
        }
        self.engine.free(block)?;
        let place = match is_captured {
            true => self.settled_place(bytes, &reach),
            false => self.earliest(bytes, &reach, late),
        };
        match place {
            Some((room, place)) => self.engine.allocate_in_free(room, place, bytes),
            None => self.engine.allocate_at(start, bytes),
        }
    }

    /// Allocates `size` bytes, a multiple of the alignment, for which `stream` need not wait. Places that no
    /// other stream used last come first: otherwise those streams would have to wait for them later.
    #[cold]
    pub(in crate::arena) fn place_settled(&mut self, size: u64, stream: &B::Stream) -> Option<BlockId> {
        let own = self.place_without(size, OWN, |user, _| user != stream.id());
        let (room, place) = own.or_else(|| self.settled_place(size, &self.unsettled.reach(stream)))?;
        self.engine.allocate_in_free(room, place, size).ok()
    }

    /// Finds a place that needs no wait, in one of the smallest sufficient rooms.
    fn settled_place(&self, bytes: u64, reach: &StreamOrder) -> Option<(FreeBlock, u64)> {
        self.place_without(bytes, PARTS, |user, era| !reach.covers(user, era))
    }

    /// Finds a place in one of the smallest sufficient rooms, or at the free end, without parts for which
    /// `is_in_the_way` holds. Examines at most `most` rooms, and skips at most `most` such parts in either.
    fn place_without(
        &self,
        bytes: u64,
        most: usize,
        is_in_the_way: impl Fn(StreamId, u64) -> bool,
    ) -> Option<(FreeBlock, u64)> {
        let (free_end, mut left) = (self.engine.free_end(Zone::Dynamic), most);
        for room in self.engine.fitting_blocks(bytes, most) {
            if room.offset == free_end {
                left = most;
            }
            let all = room.offset..room.offset + room.bytes;
            let mut place = all.start;
            for (part, is_in_the_way) in self.unsettled.parts_with(&all, &is_in_the_way) {
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

    /// Finds the place with the least lateness below `late`.
    fn earliest(&self, bytes: u64, reach: &StreamOrder, mut late: Option<u64>) -> Option<(FreeBlock, u64)> {
        let (mut best, mut left) = (None, PARTS);
        let mut rooms: SmallVec<[FreeBlock; 32]> = self.engine.fitting_blocks(bytes, PARTS).collect();
        rooms.sort_unstable_by_key(|room| room.offset);
        for room in rooms {
            let Range { start, mut end } = room.offset..room.offset + room.bytes;
            let parts: SmallVec<[_; 16]> = self.lateness(&(start..end), reach).take(left).collect();
            left -= parts.len();
            if left == 0 {
                // The lateness of parts beyond those is unknown.
                end = parts.last().map_or(end, |(part, _)| end.min(part.end));
            }
            // The start of a later part is never better than the end of the part before it.
            let places = std::iter::once(start).chain(parts.iter().map(|(part, _)| part.end));
            for place in places.take_while(|place| end.checked_sub(bytes).is_some_and(|last| *place <= last))
            {
                let is_in = |part: &Range<u64>| part.start < place + bytes && place < part.end;
                let of_this =
                    parts.iter().filter(|(part, _)| is_in(part)).filter_map(|(_, late)| *late).max();
                if of_this < late {
                    (late, best) = (of_this, Some((room, place)));
                }
                if late.is_none() {
                    return best;
                }
            }
            if left == 0 {
                break;
            }
        }
        best
    }

    /// Returns the parts of a range, each with the era of the point that a stream must wait for; `None` if it
    /// need not wait. A stream without a point, including a captured one, counts as [`NOW`].
    fn lateness(
        &self,
        range: &Range<u64>,
        reach: &StreamOrder,
    ) -> impl Iterator<Item = (Range<u64>, Option<u64>)> {
        let point = |user, era| self.timeline.behind(user, era).map_or(NOW, |point| point.era);
        self.unsettled.lateness(range, reach, point)
    }
}
