//! Streams that share memory are kept apart: where one is not done yet with what another would get, that one gets other memory that is
//! free, or what is waited for up to the earliest point.
//!
//! Only streams that were [marked](super::marks) are known to be behind what they were given. So a program whose streams share no
//! block finds its memory as if there was one stream, each time at the same place.

use super::marks::{OF_A_STREAM, Passed};
use super::state::{State, Taken};
use super::unsettled::Reach;
use super::{DeviceArena, Shared};
use crate::arena::{ArenaError, Block, Region, Room};
use crate::sync::MutexGuard;
use smallvec::SmallVec;
use std::mem;
use std::ops::Range;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, Event};

/// So many free blocks are looked at, and so many parts of them.
const PARTS: usize = 64;

/// Later than any era.
const NOW: u64 = u64::MAX;

impl<B: Backend> DeviceArena<B> {
    /// Looks how far streams are, if some were marked and it is time. Answers whether it did.
    pub(crate) fn look(&self) -> bool {
        if !self.shared.is_marked.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.shared.state.lock();
        let is_due = state.marks.is_due();
        if is_due {
            drop(self.shared.note_done(state));
        }
        is_due
    }
}

impl<B: Backend> Shared<B> {
    /// Whether a request's own stream is captured, if that may matter. To be asked without the lock.
    #[inline]
    pub(super) fn is_captured(&self, stream: &B::Stream) -> Option<bool> {
        // Relaxed: who does not see a mark finds its memory as if there was none.
        self.is_marked.load(Ordering::Relaxed).then(|| self.device.is_capturing(stream) != Ok(false))
    }

    /// The state, for a request: with what streams are known to be done with.
    #[inline]
    pub(super) fn lock_for_request(&self) -> MutexGuard<'_, State<B>> {
        let mut state = self.state.lock();
        if state.marks.is_due() {
            return self.note_done(state);
        }
        state.marks.pass();
        state
    }

    /// Asks for each stream whether the first point of it is reached, and if it is whether a later one is.
    #[cold]
    fn note_done<'a>(&'a self, mut state: MutexGuard<'a, State<B>>) -> MutexGuard<'a, State<B>> {
        let mut marks = state.marks.first_ones();
        // Not for as long as others add some.
        for rounds_left in (0..OF_A_STREAM).rev() {
            drop(state);
            marks.retain(|mark| mark.event.is_complete() == Ok(true));
            state = self.state.lock();
            if marks.is_empty() {
                break;
            }
            let (mut gone, mut next) = (Passed::new(), Passed::new());
            for mark in &marks {
                state.unsettled.done(mark.stream, mark.era);
                next.extend(state.marks.take_until(mark, &mut gone));
            }
            if rounds_left == 0 {
                gone.append(&mut next);
            }
            self.is_marked.store(!state.marks.is_empty(), Ordering::Relaxed);
            // Any of these may be an event's last handle, whoever took the others.
            drop(state);
            drop((mem::replace(&mut marks, next), gone));
            state = self.state.lock();
            if marks.is_empty() {
                break;
            }
        }
        state
    }
}

impl<B: Backend> State<B> {
    /// What was taken for a stream, or other bytes that it waits less for; if it is captured, that it does not wait for: whom else it
    /// may wait for is not known here.
    ///
    /// # Errors
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`]; nothing is taken then.
    pub(super) fn keep_apart(
        &mut self,
        taken: Taken<B>,
        alignment: u64,
        (stream, is_captured): (&B::Stream, Option<bool>),
    ) -> Result<Taken<B>, ArenaError> {
        let is_anywhere = taken.stitched.is_none() && alignment <= self.engine.alignment();
        match is_captured {
            Some(is_captured) if is_anywhere && !self.marks.is_empty() => {
                Ok(Taken::plain(self.place_apart(taken.block, stream, is_captured)?))
            }
            _ => Ok(taken),
        }
    }

    #[cold]
    fn place_apart(
        &mut self,
        block: Block,
        stream: &B::Stream,
        is_captured: bool,
    ) -> Result<Block, ArenaError> {
        let (start, bytes) = self.engine.extent(block);
        let reach = self.unsettled.reach(stream);
        let late = self.lateness(&(start..start + bytes), &reach).filter_map(|(_, late)| late).max();
        if late.is_none() || self.engine.region(block)? != Region::Dynamic {
            return Ok(block);
        }
        // With these it is had again wherever it is to be, as it was at its own place.
        if self.engine.reserve_blocks(2).is_err() {
            return Ok(block);
        }
        self.engine.free(block)?;
        match self.earliest(bytes, &reach, late, is_captured) {
            Some((room, place)) => self.engine.allocate_in_room(room, place, bytes),
            None => self.engine.allocate_at(start, bytes),
        }
    }

    /// A block for a stream in place of one that it would have to wait for: one of which it need not wait for anything. That one is
    /// free then.
    #[cold]
    pub(super) fn place_settled(&mut self, block: Block, stream: &B::Stream) -> Option<Block> {
        let (_, bytes) = self.engine.extent(block);
        let is_anywhere = self.marks.were_any() && self.engine.region(block) == Ok(Region::Dynamic);
        self.engine.free(block).ok()?;
        // Whoever has the lock of a pool cannot look. He lets that go, looks, and asks again.
        if !is_anywhere || self.marks.is_due() {
            return None;
        }
        self.marks.pass();
        let (room, place) = self.earliest(bytes, &self.unsettled.reach(stream), Some(0), true)?;
        self.engine.allocate_in_room(room, place, bytes).ok()
    }

    /// The place for which a stream of that reach would be less late than so, and least of all of them; if `is_settled`, one for which
    /// it need not wait.
    fn earliest(
        &self,
        bytes: u64,
        reach: &Reach,
        mut late: Option<u64>,
        is_settled: bool,
    ) -> Option<(Room, u64)> {
        let (mut best, mut looks) = (None, PARTS);
        let mut rooms: SmallVec<[Room; 32]> = self.engine.rooms(bytes).take(PARTS).collect();
        rooms.sort_unstable_by_key(|room| room.offset);
        for room in rooms {
            let Range { start, mut end } = room.offset..room.offset + room.bytes;
            let parts: SmallVec<[_; 16]> = self.lateness(&(start..end), reach).take(looks).collect();
            looks -= parts.len();
            if looks == 0 {
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
                if of_this < late && (of_this.is_none() || !is_settled) {
                    (late, best) = (of_this, Some((room, place)));
                }
                if late.is_none() {
                    return best;
                }
            }
            if looks == 0 {
                break;
            }
        }
        best
    }

    /// The parts of a range, and how late a stream of that reach would be behind those who freed each: an era, or none if it need not
    /// wait. One without a mark is waited for as it is now; so is, if that can be, one that is captured.
    fn lateness(&self, range: &Range<u64>, reach: &Reach) -> impl Iterator<Item = (Range<u64>, Option<u64>)> {
        let point = |user, era| self.marks.behind(user, era).map_or(NOW, |mark| mark.era);
        self.unsettled.lateness(range, reach, point)
    }
}
