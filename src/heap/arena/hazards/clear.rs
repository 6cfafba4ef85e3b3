//! Memory for a request that must not wait for some streams: the smallest hole that they did not use, a stitched range,
//! or new memory and ranges stitched of such holes. The search is exhaustive.

use crate::heap::arena::mapping::{Budget, Growth, Holes};
use crate::heap::arena::{ArenaRequest, Candidate, State};
use crate::heap::space::{ArenaError, FreeBlock, Zone};
use smallvec::SmallVec;
use vrampool_backend::{Backend, Stream, StreamId};

/// Streams that a request must not wait for.
#[derive(Debug)]
pub(in crate::heap::arena) enum Refused {
    /// Captured streams, for an uncaptured stream: neither waits for the other.
    Captured(SmallVec<[StreamId; 4]>),
    /// All streams: memory must need no wait.
    All,
}

impl Refused {
    fn has(&self, user: StreamId) -> bool {
        if let Self::Captured(captured) = self { captured.contains(&user) } else { true }
    }
}

/// A *clear* part of a hole: the request's stream need not wait for any of the refused streams before it uses it.
#[derive(Debug, Clone, Copy)]
struct Clear {
    zone: Zone,
    start: u64,
    bytes: u64,
}

impl<B: Backend> State<B> {
    /// Offers mapped memory that is [clear](Clear): the part of the smallest sufficient hole, else a stitched range.
    pub(in crate::heap::arena) fn clear_candidate(
        &self,
        request: &ArenaRequest<'_, B::Stream>,
        refused: &Refused,
    ) -> Option<Candidate> {
        let (size, zone) = (self.engine.round(request.bytes)?, self.zone_of(request));
        let clear = self.clear_parts(request.stream, refused);
        let smallest = clear
            .iter()
            .filter(|part| part.zone == zone || self.backing.is_some() && part.zone == Zone::Dynamic)
            .filter(|part| part.bytes >= size)
            .min_by_key(|part| (part.zone != zone, part.bytes, part.start));
        if let Some(&Clear { start, bytes, .. }) = smallest {
            return Some(Candidate::Plain { room: FreeBlock::unnamed(start, bytes), start });
        }
        let backing = self.backing.as_ref()?;
        backing.oldest_around(&holes_of(&clear, backing.granularity, false), size)
    }

    /// Plans the memory for a request that no [clear](Clear) hole serves: new memory, or a range that is
    /// stitched of clear parts. The existing parts are held.
    ///
    /// # Errors
    /// [`ArenaError::NoSpace`] if neither fits within the limit.
    pub(in crate::heap::arena) fn plan_clear(
        &mut self,
        &ArenaRequest { bytes, stream, .. }: &ArenaRequest<'_, B::Stream>,
        budget: Budget,
        refused: &Refused,
    ) -> Result<Growth, ArenaError> {
        let clear = self.clear_parts(stream, refused);
        // Memory that the stream itself freed serves it.
        let others = self.uses.ticks.free_in_flight_of_others(stream.id());
        let needed = self.engine.used().saturating_add(others).saturating_add(bytes);
        let Self { engine, backing, .. } = self;
        let size = bytes.checked_next_multiple_of(engine.alignment());
        let planned = size.zip(backing.as_mut()).and_then(|(size, backing)| {
            let plain = backing.plan_end(engine, size, budget);
            let holes = |least, of_both| holes_of(&clear, least, of_both);
            let stitched = || backing.plan_around(engine, size, budget, holes);
            match plain {
                Some(growth) if budget == Budget::Free && backing.is_tight(needed, growth.added()) => {
                    Some(growth)
                }
                // A range that needs as much new memory costs calls for each of its pieces, and saves nothing.
                plain => [plain, stitched()].into_iter().flatten().min_by_key(Growth::added),
            }
        });
        let growth = planned.ok_or_else(|| ArenaError::NoSpace {
            bytes,
            zone: Zone::Dynamic,
            available_bytes: clear.iter().map(|part| part.bytes).sum(),
            largest_bytes: clear.iter().map(|part| part.bytes).max().unwrap_or(0),
        })?;
        growth.hold(&mut self.engine)
    }

    /// Returns the parts of holes that `stream` can use at once, or after streams that are not refused, by
    /// offset. An uncaptured stream can wait for the [marker](crate::streams::markers) of a stream that is captured.
    fn clear_parts(&self, stream: &B::Stream, refused: &Refused) -> Vec<Clear> {
        let Self { engine, uses, markers, .. } = self;
        let reach = uses.ticks.reach(stream.id());
        let is_refused = |user: StreamId, tick: u64| {
            let is_ordered = || match refused {
                Refused::Captured(_) => markers.covering(user, tick).is_some(),
                Refused::All => false,
            };
            refused.has(user) && !reach.covers(user, tick) && !is_ordered()
        };
        let mut clear = Vec::new();
        for free in engine.free_by_offset() {
            let (mut start, end) = (free.offset, free.offset + free.bytes);
            let zone = engine.zone_at(start);
            let mut add = |start: u64, end: u64| {
                if start < end {
                    clear.push(Clear { zone, start, bytes: end - start });
                }
            };
            for part in uses.parts(&(start..end)) {
                if part.has(is_refused) {
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
