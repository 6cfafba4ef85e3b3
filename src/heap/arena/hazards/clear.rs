//! Memory for a request that must not wait for some streams: the smallest hole that they did not use, a stitched range,
//! or new memory and ranges stitched of such holes. The search is exhaustive.

use crate::heap::arena::mapping::{Budget, Growth, Holes};
use crate::heap::arena::{ArenaRequest, Candidate, State};
use crate::heap::space::{Arena, ArenaError, Extent, FreeBlock, Zone};
use smallvec::SmallVec;
use std::ops::Range;
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

impl<B: Backend> State<B> {
    /// Offers mapped memory that is [clear](Self::clear_parts): the smallest sufficient part, else a stitched range.
    pub(in crate::heap::arena) fn clear_candidate(
        &self,
        request: &ArenaRequest<'_, B::Stream>,
        refused: &Refused,
    ) -> Option<Candidate> {
        let (size, zone) = (self.engine.round(request.bytes)?, self.zone_of(request));
        let clear = self.clear_parts(request.stream, refused);
        let zone_of = |part: &Extent| self.engine.zone_at(part.start);
        let is_of_part = |other| other == zone || self.backing.is_some() && other == Zone::Dynamic;
        let sufficient = clear.iter().filter(|part| part.bytes >= size && is_of_part(zone_of(part)));
        if let Some(&part) = sufficient.min_by_key(|part| (zone_of(part) != zone, part.bytes, part.start)) {
            return Some(Candidate::Plain { room: FreeBlock::unnamed(part), start: part.start });
        }
        let backing = self.backing.as_ref()?;
        let holes = holes_of(&clear, &self.engine, backing.granularity, false);
        backing.oldest_around(&holes, size, usize::MAX, u64::MAX)
    }

    /// Plans the memory for a request that no [clear](Self::clear_parts) part serves: new memory, or a range that is
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
            let holes = |least, of_both| holes_of(&clear, engine, least, of_both);
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

    /// Returns the *clear* parts of holes, which `stream` can use at once, or after streams that are not refused, by
    /// offset. An uncaptured stream can wait for the [marker](crate::streams::markers) of a stream that is captured.
    fn clear_parts(&self, stream: &B::Stream, refused: &Refused) -> Vec<Extent> {
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
            let Range { mut start, end } = free.extent.range();
            let mut add = |start: u64, end: u64| {
                if start < end {
                    clear.push(Extent { start, bytes: end - start });
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
fn holes_of(clear: &[Extent], engine: &Arena, least: u64, of_both: bool) -> Holes {
    let is_of_part = |part: &Extent| of_both || engine.zone_at(part.start) == Zone::Dynamic;
    Holes::of(clear.iter().copied().filter(|part| part.bytes >= least && is_of_part(part)))
}
