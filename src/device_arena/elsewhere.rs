//! Other memory for a request that may not wait for the streams that used what it found first: a captured stream and one that is
//! not captured never wait for each other, so the next hole is tried, and then new memory.

use super::backing::{Extent, Growth};
use super::state::{State, Taken};
use super::{ArenaBuffer, Shared};
use crate::arena::{Block, Region, SpanState};
use crate::error::{Error, Forbidden};
use smallvec::SmallVec;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream, StreamId};

/// How often a place is looked for. Only a stream whose capture begins in between makes a place useless that was found.
const ATTEMPTS: u32 = 3;

impl<B: Backend> Shared<B> {
    /// What a request was served, or, where that was refused for a capture's sake, other memory: in that region, or in the dynamic
    /// one.
    ///
    /// # Errors
    /// The refusal where there is no other; [`Error::Backend`] when the device has no more memory.
    #[inline]
    pub(super) fn or_elsewhere(
        self: &Arc<Self>,
        served: Result<ArenaBuffer<B>, Error>,
        region: Region,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<ArenaBuffer<B>, Error> {
        match served {
            Err(refusal @ Error::Capture { forbidden: Forbidden::Wait, .. }) => {
                self.serve_elsewhere(region, request, stream)?.ok_or(refusal)
            }
            served => served,
        }
    }

    #[cold]
    fn serve_elsewhere(
        self: &Arc<Self>,
        region: Region,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        let is_captured = self.device.is_capturing(stream)?;
        for _ in 0..ATTEMPTS {
            let users = self.state.lock().users_of_free();
            let mut captured = SmallVec::<[StreamId; 4]>::new();
            for user in users.iter().filter(|user| user.id() != stream.id()) {
                if self.device.is_capturing(user)? {
                    captured.push(user.id());
                }
            }
            let mut state = self.state.lock();
            if !state.is_awake() {
                return Ok(None);
            }
            let is_refused = |user: &StreamId| is_captured || captured.contains(user);
            let Some(block) = state.place_clear(region, request, stream, is_captured, is_refused) else {
                break;
            };
            match self.hand_out((state, None), Taken::plain(block), request, stream) {
                Err(Error::Capture { .. }) => {}
                served => return served.map(Some),
            }
        }
        if is_captured { Ok(None) } else { self.grow_clear(request, stream) }
    }

    /// New memory, which nobody used; `None` for an arena that does not grow, or may not grow so far.
    fn grow_clear(
        self: &Arc<Self>,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        let _alone = self.changing.lock();
        let mut state = self.state.lock();
        let Some((place, growth)) = state.plan_clear(request) else { return Ok(None) };
        let range = Arc::clone(&state.range);
        drop(state);
        let made = match self.make(&growth, &range, &[]) {
            Ok(made) => made,
            Err(mut unmade) => {
                self.state.lock_with_deferred().keep_stuck(&growth, std::mem::take(&mut unmade.stuck));
                return Err(unmade.into_error().into());
            }
        };
        let mut state = self.state.lock_with_deferred();
        if let Err(error) = state.engine.reserve_blocks(3) {
            drop(state);
            let stuck = self.unmake(&growth, &range, made.new);
            self.state.lock_with_deferred().keep_stuck(&growth, stuck);
            return Err(error.into());
        }
        let _ = state.commit(growth, made, &[]);
        // Before anybody else has it.
        let block = state.engine.allocate_at(place.start, place.bytes)?;
        self.hand_out((state, None), Taken::plain(block), request, stream).map(Some)
    }
}

impl<B: Backend> State<B> {
    /// A block in the smallest hole that has room beside the parts of users that are refused, which this stream would have to
    /// wait for; if it is captured, for whatever they did, else for work without a [mark](super::marks).
    fn place_clear(
        &mut self,
        region: Region,
        (bytes, alignment): (u64, u64),
        stream: &B::Stream,
        is_captured: bool,
        is_refused: impl Fn(&StreamId) -> bool,
    ) -> Option<Block> {
        let Self { engine, unsettled, marks, .. } = &*self;
        let reach = unsettled.reach(stream);
        let is_in_the_way = |user: StreamId, era: u64| {
            is_refused(&user)
                && !reach.covers(user, era)
                && !unsettled.is_done(user, era)
                && (is_captured || marks.behind(user, era).is_none())
        };
        let size = bytes.checked_next_multiple_of(engine.alignment())?;
        let up = |offset: u64| offset.checked_next_multiple_of(alignment.max(engine.alignment()));
        let fits = |place: u64, end: u64| place.checked_add(size).is_some_and(|last| last <= end);
        let place_in = |start: u64, end: u64| {
            let mut place = up(start)?;
            for (part, is_in_the_way) in unsettled.parts_with(&(start..end), is_in_the_way) {
                if is_in_the_way && fits(place, part.start) {
                    return Some(place);
                }
                if is_in_the_way {
                    place = place.max(up(part.end)?);
                }
            }
            fits(place, end).then_some(place)
        };
        let mut holes: Vec<_> = engine
            .blocks()
            .filter(|span| matches!(span.state, SpanState::Free) && span.bytes >= size)
            .filter(|span| span.region == region || self.backing.is_some() && span.region == Region::Dynamic)
            .map(|span| (span.region != region, span.bytes, span.offset))
            .collect();
        holes.sort_unstable();
        let place = holes.into_iter().find_map(|(_, bytes, offset)| place_in(offset, offset + bytes))?;
        self.engine.allocate_at(place, size).ok()
    }

    /// What is to be made at the end of the range for a request, and where that is to be.
    fn plan_clear(&mut self, (bytes, alignment): (u64, u64)) -> Option<(Extent, Growth)> {
        let is_ready = self.is_awake() && self.keep_unkept();
        let Self { engine, backing: Some(backing), .. } = self else { return None };
        if !is_ready {
            return None;
        }
        let size = bytes.checked_next_multiple_of(engine.alignment())?;
        let place =
            engine.end(Region::Dynamic).checked_next_multiple_of(alignment.max(engine.alignment()))?;
        let growth = backing.plan_apart(engine, size, place)?;
        let added: u64 = growth.new.iter().map(|extent| extent.bytes).sum();
        let has_room = added <= backing.limit.saturating_sub(backing.mapped);
        let last = growth.new.last()?.end();
        let place = Extent { start: place, bytes: size };
        (has_room && last <= backing.addresses).then_some((place, growth))
    }
}
