//! Streams that share memory are kept apart: where one is not done yet with what another would get, that one gets other memory that is
//! free, or what is waited for up to the earliest point.
//!
//! Only streams that were [marked](super::marks) are known to be behind what they were given. So a program whose streams share no
//! block finds its memory as if there was one stream, each time at the same place.

use super::Shared;
use super::state::{State, Taken};
use crate::arena::{ArenaError, Block, Region};
use crate::sync::MutexGuard;
use smallvec::SmallVec;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, Event};

/// So many places are compared.
const PLACES: usize = 16;

/// Later than any era.
const NOW: u64 = u64::MAX;

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
        if state.marks.is_due() { self.note_done(state) } else { state }
    }

    /// Asks for each stream whether the first point of it is reached.
    #[cold]
    fn note_done<'a>(&'a self, state: MutexGuard<'a, State<B>>) -> MutexGuard<'a, State<B>> {
        let mut marks = state.marks.first_ones();
        drop(state);
        marks.retain(|mark| mark.event.is_complete() == Ok(true));
        let mut state = self.state.lock();
        if marks.is_empty() {
            return state;
        }
        let mut gone: SmallVec<[_; 4]> = SmallVec::new();
        for mark in &marks {
            state.unsettled.done(mark.stream, mark.era);
            gone.push(state.marks.take_until(mark));
        }
        self.is_marked.store(!state.marks.is_empty(), Ordering::Relaxed);
        // Any of these may be an event's last handle, whoever took the others.
        drop(state);
        drop((marks, gone));
        self.state.lock()
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
        let Self { engine, unsettled, marks, .. } = self;
        let (start, bytes) = engine.extent(block);
        // One without a mark is waited for as it is now. So is, if that can be, one that is captured.
        let point = |user, era| marks.behind(user, era).map_or(NOW, |mark| mark.era);
        let late = unsettled.latest(&(start..start + bytes), stream, NOW, point);
        if late.is_none() || engine.region(block)? != Region::Dynamic {
            return Ok(block);
        }
        // With these it is had again wherever it is to be, as it was at its own place.
        if engine.reserve_blocks(2).is_err() {
            return Ok(block);
        }
        engine.free(block)?;
        let mut holes = Vec::new();
        engine.holes(bytes, &mut holes);
        let places = holes.into_iter().filter(|&(_, room)| room >= bytes).flat_map(|(hole, room)| {
            let within = unsettled.starts_in(hole + 1..hole + room - bytes + 1);
            std::iter::once(hole).chain(within)
        });
        let mut best = (late, start);
        for place in places.take(PLACES) {
            let late = unsettled.latest(&(place..place + bytes), stream, best.0.unwrap_or(0), point);
            if late < best.0 && (late.is_none() || !is_captured) {
                best = (late, place);
            }
            if late.is_none() {
                break;
            }
        }
        engine.allocate_at(best.1, bytes)
    }
}
