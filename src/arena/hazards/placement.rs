//! Keeps streams that share memory apart. A request prefers memory that its own stream used last. If another
//! stream still uses a candidate, the alternatives are, in this order: other free memory, newly mapped
//! memory, the earliest wait point.
//!
//! Only streams on the [timeline](super::timeline) have a known position. A program whose streams share no
//! block therefore gets the same placement in a growing arena as with one stream. A range of fixed size
//! prefers memory that needs no wait, because the other stream's work may depend on the thread that requests.

use super::ranges::StreamOrder;
use crate::arena::engine::{ArenaError, BlockId, FreeBlock, Zone};
use crate::arena::mapping::pages::{Extent, Growth, Stock};
use crate::arena::state::{State, Taken};
use crate::arena::{ArenaBuffer, ArenaCore};
use crate::error::Error;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream, StreamId};

/// What a request may get that would have to wait for another stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::arena) enum Late {
    /// Nothing, if it [rather](ArenaCore::rather_grows) gets new memory.
    Rather,
    /// Whatever there is.
    Any,
}

/// So many free blocks are looked at, and so many parts of them.
const PARTS: usize = 64;

/// As [`PARTS`], for a place that was the stream's own.
const OWN: usize = 24;

/// Later than any era.
const NOW: u64 = u64::MAX;

impl<B: Backend> ArenaCore<B> {
    /// Whether a request gets new memory where it would have to wait for another stream.
    pub(in crate::arena) fn rather_grows(&self, state: &State<B>, request: (u64, u64)) -> bool {
        self.share.is_unlimited() && state.may_grow_without_wait(request)
    }

    /// For a request that would wait: memory that is mapped for it, if that may be, else what is there. None
    /// if nothing is.
    #[cold]
    pub(in crate::arena) fn serve_without_wait(
        self: &Arc<Self>,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        if !self.rather_grows(&self.state.lock_with_deferred(), request) {
            return Ok(None);
        }
        // Who changes the arena may wait for a stream, for long.
        if let Some(_alone) = self.changing.try_lock()
            && let Some(buffer) = self.grow_without_wait(request, stream)?
        {
            return Ok(Some(buffer));
        }
        self.serve_mapped(request, Stock::Plenty, Late::Any, stream)
    }

    /// What takes no wait after another look, or new memory; none if that cannot be had.
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
                log::debug!("arena on {}: {}; a stream waits", self.id, unmade.into_error());
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
        // Unless somebody was there first.
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

    /// The device refused that.
    pub(in crate::arena) fn note_growth_refused(&mut self) {
        if let Some(backing) = &mut self.backing {
            backing.note_growth_refused();
        }
    }

    /// Whether a block of so many bytes has its place among the large ones.
    #[inline]
    pub(in crate::arena) fn is_large(&self, bytes: u64) -> bool {
        self.backing.as_ref().is_none_or(|backing| backing.zone_of(bytes) == Zone::Dynamic)
    }

    /// As [`take_mapped`](Self::take_mapped), of what a stream need not wait for, and rather not of what
    /// others had last.
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

    /// What is to be made for a request that [rather](ArenaCore::rather_grows) gets new memory, and its place
    /// there.
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

    /// What was taken for a stream, or other bytes that it waits less for; if it is captured, that it does
    /// not wait for: whom else it may wait for is not known here.
    ///
    /// # Errors
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`]; nothing is taken then.
    pub(in crate::arena) fn keep_without_wait(
        &mut self,
        taken: Taken<B>,
        alignment: u64,
        (stream, is_captured): (&B::Stream, Option<bool>),
    ) -> Result<Taken<B>, ArenaError> {
        let is_anywhere = taken.stitched.is_none() && alignment <= self.engine.alignment();
        match is_captured {
            Some(is_captured) if is_anywhere && !self.timeline.is_empty() => {
                Ok(Taken::plain(self.move_without_wait(taken.block, stream, is_captured)?))
            }
            // All of the range is there already: what waits for nothing costs nothing.
            _ if is_anywhere && self.prefers_settled => {
                Ok(Taken::plain(self.move_without_wait(taken.block, stream, is_captured == Some(true))?))
            }
            _ => Ok(taken),
        }
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
        // With these it is had again wherever it is to be, as it was at its own place.
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

    /// A block of `size` bytes, a multiple of the alignment, for which a stream need not wait: where no other
    /// stream was last, if there is such a place. What others had is left to them: from then on they would
    /// have to wait for it.
    #[cold]
    pub(in crate::arena) fn place_settled(&mut self, size: u64, stream: &B::Stream) -> Option<BlockId> {
        let own = self.place_without(size, OWN, |user, _| user != stream.id());
        let (room, place) = own.or_else(|| self.settled_place(size, &self.unsettled.reach(stream)))?;
        self.engine.allocate_in_free(room, place, size).ok()
    }

    /// A place for which a stream of that reach need not wait, in one of the smallest rooms.
    fn settled_place(&self, bytes: u64, reach: &StreamOrder) -> Option<(FreeBlock, u64)> {
        self.place_without(bytes, PARTS, |user, era| !reach.covers(user, era))
    }

    /// A place in one of the smallest rooms, or at the free end, without parts of such a user and era. Of
    /// either no more of those are passed by than so many.
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
                    // With none left what is behind it is not looked at.
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

    /// The place for which a stream of that reach would be less late than so, and least of all of them.
    fn earliest(&self, bytes: u64, reach: &StreamOrder, mut late: Option<u64>) -> Option<(FreeBlock, u64)> {
        let (mut best, mut left) = (None, PARTS);
        let mut rooms: SmallVec<[FreeBlock; 32]> = self.engine.fitting_blocks(bytes, PARTS).collect();
        rooms.sort_unstable_by_key(|room| room.offset);
        for room in rooms {
            let Range { start, mut end } = room.offset..room.offset + room.bytes;
            let parts: SmallVec<[_; 16]> = self.lateness(&(start..end), reach).take(left).collect();
            left -= parts.len();
            if left == 0 {
                // What is behind those is not known.
                end = parts.last().map_or(end, |(part, _)| end.min(part.end));
            }
            // From where another part begins none is less late than from where the one before it ends.
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

    /// The parts of a range, and how late a stream of that reach would be behind those who freed each: an
    /// era, or none if it need not wait. One without a point is waited for as it is now; so is, if that can
    /// be, one that is captured.
    fn lateness(
        &self,
        range: &Range<u64>,
        reach: &StreamOrder,
    ) -> impl Iterator<Item = (Range<u64>, Option<u64>)> {
        let point = |user, era| self.timeline.behind(user, era).map_or(NOW, |point| point.era);
        self.unsettled.lateness(range, reach, point)
    }
}
