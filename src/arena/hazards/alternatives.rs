//! Alternatives for a request that must not wait for the streams that used the first place found.
//!
//! A captured stream and an uncaptured stream never wait for each other. The order is: the smallest hole that
//! those streams did not use; a stitched range; for an uncaptured stream, new memory or a range stitched of
//! such holes.

use crate::arena::ArenaBuffer;
use crate::arena::core::ArenaCore;
use crate::arena::engine::{ArenaError, BlockId, SpanState, Zone};
use crate::arena::mapping::pages::{Budget, Growth, Holes};
use crate::arena::state::{State, Taken};
use crate::error::{Error, Forbidden};
use smallvec::SmallVec;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream, StreamId};

/// Most searches for a place: one becomes useless only if a stream's capture begins after the search.
const ATTEMPTS: u32 = 3;

impl<B: Backend> ArenaCore<B> {
    /// Returns the served block, or, if a capture forbids it, other memory of that zone or the dynamic one.
    ///
    /// # Errors
    /// The original error if there is no other memory.
    // Inlined, so that a served buffer is not moved.
    #[inline(always)]
    pub(in crate::arena) fn or_elsewhere(
        self: &Arc<Self>,
        served: Result<ArenaBuffer<B>, Error>,
        zone: Zone,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<ArenaBuffer<B>, Error> {
        match served {
            Err(refusal @ Error::Capture { forbidden: Forbidden::Wait, .. }) => {
                self.serve_elsewhere(zone, request, stream)?.ok_or(refusal)
            }
            served => served,
        }
    }

    #[cold]
    fn serve_elsewhere(
        self: &Arc<Self>,
        zone: Zone,
        request: (u64, u64),
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        let is_captured = self.device.is_capturing(stream)?;
        let mut refused = Refused { is_captured, is_own: false, captured: SmallVec::new() };
        for _ in 0..ATTEMPTS {
            refused.captured = self.captured_users_of_free(stream)?;
            let mut state = self.attached(request.0, || self.state.lock())?;
            let Some(taken) = state.take_clear(zone, request, stream, &refused) else {
                break;
            };
            match self.finish_allocation((state, None), taken, request, stream) {
                Err(Error::Capture { .. }) => {}
                served => return served.map(Some),
            }
        }
        if is_captured || self.state.lock().backing.is_none() {
            return Ok(None);
        }
        match self.grow(request, stream, Some(&refused)) {
            // Memory is free behind a capture, so the caller returns the capture's error.
            Err(error) if error.is_out_of_memory() => Ok(None),
            grown => grown.map(Some),
        }
    }

    /// Returns captured streams, other than this one, that used free memory.
    fn captured_users_of_free(&self, stream: &B::Stream) -> Result<SmallVec<[StreamId; 4]>, Error> {
        let users = self.state.lock().users_of_free(|user, _| user.id() != stream.id());
        let mut captured = SmallVec::new();
        for user in &users {
            if self.device.is_capturing(user)? {
                captured.push(user.id());
            }
        }
        Ok(captured)
    }
}

/// Streams that a request must not wait for.
#[derive(Debug)]
pub(in crate::arena) struct Refused {
    /// Whether the stream of the request is captured, and so cannot wait for any stream.
    is_captured: bool,
    /// Whether memory that another stream used last is refused although its work is complete.
    is_own: bool,
    captured: SmallVec<[StreamId; 4]>,
}

impl Refused {
    /// All streams: memory must need no wait.
    pub(in crate::arena) fn all() -> Self {
        Self { is_captured: true, is_own: false, captured: SmallVec::new() }
    }

    /// As [`all`](Self::all), and memory must not have been used by another stream last.
    pub(in crate::arena) fn all_but_own() -> Self {
        Self { is_own: true, ..Self::all() }
    }

    pub(in crate::arena) fn is_own(&self) -> bool {
        self.is_own
    }

    fn has(&self, user: StreamId) -> bool {
        self.is_captured || self.captured.contains(&user)
    }
}

/// A part of a hole without a wait, or with waits only for allowed streams.
#[derive(Debug, Clone, Copy)]
struct Clear {
    zone: Zone,
    start: u64,
    bytes: u64,
}

impl<B: Backend> State<B> {
    /// Takes mapped memory [clear](Clear) of refused streams: the smallest hole's part, else a stitched
    /// range.
    pub(in crate::arena) fn take_clear(
        &mut self,
        zone: Zone,
        (bytes, alignment): (u64, u64),
        stream: &B::Stream,
        refused: &Refused,
    ) -> Option<Taken<B>> {
        let size = bytes.checked_next_multiple_of(self.engine.alignment())?;
        let clear = self.clear_parts(stream, refused);
        let place = |part: &Clear| {
            let place = part.start.checked_next_multiple_of(alignment.max(self.engine.alignment()))?;
            (place.checked_add(size)? <= part.start + part.bytes).then_some(place)
        };
        let smallest = clear
            .iter()
            .filter(|part| part.zone == zone || self.backing.is_some() && part.zone == Zone::Dynamic)
            .filter_map(|part| Some((part.zone != zone, part.bytes, place(part)?)))
            .min();
        if let Some((_, _, place)) = smallest {
            return self.engine.allocate_at(place, size).ok().map(Taken::plain);
        }
        if alignment > self.engine.alignment() {
            return None;
        }
        let Self { engine, backing: Some(backing), .. } = self else { return None };
        let (memory, fit) = backing.oldest_around(&holes_of(&clear, backing.granularity, false), size)?;
        let mut blocks = Vec::with_capacity(fit.extents.len());
        for extent in &fit.extents {
            match engine.allocate_at(extent.start, extent.bytes) {
                Ok(block) => blocks.push(block),
                Err(_) => {
                    blocks.iter().for_each(|&block: &BlockId| _ = engine.free(block));
                    return None;
                }
            }
        }
        Taken::stitched(blocks, memory, fit.offset)
    }

    /// Plans the memory for a request that no [clear](Clear) hole serves: new memory, or a range that is
    /// stitched of clear parts. The existing parts are held.
    ///
    /// # Errors
    /// [`ArenaError::NoSpace`] if neither fits within the limit.
    pub(in crate::arena) fn plan_clear(
        &mut self,
        (bytes, alignment): (u64, u64),
        budget: Budget,
        stream: &B::Stream,
        refused: &Refused,
    ) -> Result<(Growth, Vec<Option<BlockId>>), ArenaError> {
        let clear = self.clear_parts(stream, refused);
        // What the stream itself freed serves it.
        let others = self.uses.ticks.in_flight_of_others(stream.id());
        let needed = self.engine.used().saturating_add(others).saturating_add(bytes);
        let Self { engine, backing: Some(backing), .. } = self else { return Err(ArenaError::HostMemory) };
        let size = bytes.checked_next_multiple_of(engine.alignment());
        let planned = size.and_then(|size| {
            let place = engine.end(Zone::Dynamic).checked_next_multiple_of(alignment);
            let plain = || backing.plan_end(engine, size, place?, budget);
            let stitched = || {
                let holes = |least, of_both| holes_of(&clear, least, of_both);
                (alignment <= engine.alignment()).then(|| backing.plan_around(engine, size, budget, holes))?
            };
            match plain() {
                Some(growth) if budget == Budget::Free && !backing.is_loose(&growth, needed) => Some(growth),
                // The one that needs less new memory first.
                plain => stitched().or(plain),
            }
        });
        let growth = planned.ok_or_else(|| ArenaError::NoSpace {
            bytes,
            alignment,
            zone: Zone::Dynamic,
            available_bytes: clear.iter().map(|part| part.bytes).sum(),
            largest_bytes: clear.iter().map(|part| part.bytes).max().unwrap_or(0),
        })?;
        self.hold_parts(growth)
    }

    /// Whether free memory that no other stream used last would serve a request, in parts.
    pub(in crate::arena) fn has_own(&self, bytes: u64, stream: &B::Stream) -> bool {
        let Self { engine, uses, backing: Some(_), .. } = self else { return false };
        let mut missing = bytes;
        for span in engine.blocks().filter(|span| matches!(span.state, SpanState::Free)) {
            if span.zone != Zone::Dynamic {
                continue;
            }
            let all = span.offset..span.offset + span.bytes;
            let others = uses.parts(&all).filter(|part| uses.is_anothers(part, stream.id()));
            let of_others: u64 = others.map(|part| part.end.min(all.end) - part.start.max(all.start)).sum();
            missing = missing.saturating_sub(span.bytes - of_others);
            if missing == 0 {
                return true;
            }
        }
        false
    }

    /// Returns the parts of holes that `stream` can use at once, or after streams that are not refused, by
    /// offset. Work of refused streams that a [point](crate::streams::markers) follows is in the way only of a
    /// captured stream.
    fn clear_parts(&self, stream: &B::Stream, refused: &Refused) -> Vec<Clear> {
        let Self { engine, uses, markers, .. } = self;
        let reach = uses.ticks.reach(stream.id());
        let is_refused = |user: StreamId, tick: u64| {
            refused.has(user)
                && !reach.covers(user, tick)
                && (refused.is_captured || markers.covering(user, tick).is_none())
        };
        let mut clear = Vec::new();
        for span in engine.blocks().filter(|span| matches!(span.state, SpanState::Free)) {
            let (mut start, end) = (span.offset, span.offset + span.bytes);
            let mut add = |start: u64, end: u64| {
                if start < end {
                    clear.push(Clear { zone: span.zone, start, bytes: end - start });
                }
            };
            for part in uses.parts(&(start..end)) {
                if part.has(is_refused) || refused.is_own && uses.is_anothers(part, stream.id()) {
                    add(start, part.start.min(end));
                    start = start.max(part.end);
                }
            }
            add(start, end);
        }
        clear
    }
}

/// The parts of at least `least` bytes, in the range's second part or in both.
fn holes_of(clear: &[Clear], least: u64, of_both: bool) -> Holes {
    let is_such = |part: &&Clear| part.bytes >= least && (of_both || part.zone == Zone::Dynamic);
    Holes::of(clear.iter().filter(is_such).map(|part| (part.start, part.bytes)))
}
