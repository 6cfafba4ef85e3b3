//! Keeps streams that share no data side by side. Once several streams use an arena, a request prefers, in this
//! order: memory that needs no wait; the same after a poll of [markers](crate::streams::markers), and of streams
//! without one; newly mapped memory; the memory with the earliest marker.
//!
//! While no other stream is known to be busy, the choice among memory without a wait is that of a program with
//! one stream. Otherwise memory that the request's stream used last comes first, because the other streams
//! would have to wait for it later.

use super::ranges::Part;
use crate::heap::arena::{ArenaRequest, Candidate, State};
use crate::heap::space::Zone;
use crate::streams::StreamOrder;
use smallvec::SmallVec;
use std::ops::Range;
use vrampool_backend::{Backend, Stream};

/// Most free blocks to examine for a place without a wait, and most parts to skip.
const ROOMS: usize = 256;

/// Most free blocks to examine for the earliest wait, and most parts of them.
const PARTS: usize = 64;

/// As [`ROOMS`], for a place that the stream itself used.
const OWN: usize = 24;

/// A value greater than any tick.
const NOW: u64 = u64::MAX;

impl<B: Backend> State<B> {
    /// Whether a request maps new memory instead of waiting for another stream.
    pub(in crate::heap::arena) fn prefers_growth(&self, request: &ArenaRequest<'_, B::Stream>) -> bool {
        let Some(backing) = self.backing.as_ref().filter(|_| self.are_several()) else { return false };
        self.engine.round(request.bytes).is_some_and(|size| {
            let needed = (self.engine.used() + self.uses.ticks.free_in_flight()).saturating_add(size);
            let peak = self.peaks.needed.max(self.engine.peak_used()).max(needed);
            backing.grows_without_wait(&self.engine, size, peak)
        })
    }

    /// Whether several streams, which may run concurrently, use the arena.
    #[inline]
    pub(in crate::heap::arena) fn are_several(&self) -> bool {
        self.uses.ticks.are_several() && self.are_concurrent
    }

    /// Offers a place in the dynamic zone with an earlier wait than `range`, for as many bytes; for a captured stream,
    /// one without a wait only.
    #[cold]
    pub(in crate::heap::arena) fn place_with_shorter_wait(
        &self,
        range: &Range<u64>,
        stream: &B::Stream,
        is_captured: bool,
    ) -> Option<Candidate> {
        let (bytes, reach) = (range.end - range.start, self.uses.ticks.reach(stream.id()));
        let last = self.uses.parts(range).filter_map(|part| self.wait_for(part, &reach)).max()?;
        match self.find_with_wait(bytes, ROOMS, None, &reach) {
            None if !is_captured => self.find_earliest(bytes, last, &reach),
            place => place,
        }
    }

    /// Offers `size` bytes, a multiple of the alignment, for which `stream` need not wait.
    ///
    /// Prefers places that no other stream used last.
    #[cold]
    pub(in crate::heap::arena) fn place_without_wait(
        &self,
        size: u64,
        stream: &B::Stream,
    ) -> Option<Candidate> {
        let own = self.place_without(size, OWN, |part| self.uses.is_anothers(part, stream.id()));
        own.or_else(|| self.find_with_wait(size, ROOMS, None, &self.uses.ticks.reach(stream.id())))
    }

    /// Finds the place with the earliest wait before `last`.
    fn find_earliest(&self, bytes: u64, last: u64, reach: &StreamOrder) -> Option<Candidate> {
        let rooms = self.engine.fitting_blocks(bytes, PARTS);
        let parts = rooms.flat_map(|room| self.uses.parts(&room.extent.range()));
        let mut waits: SmallVec<[u64; PARTS]> = parts
            .take(PARTS)
            .filter_map(|part| self.wait_for(part, reach))
            .filter(|wait| *wait < last)
            .collect();
        waits.sort_unstable();
        let place = |wait| self.find_with_wait(bytes, PARTS, Some(wait), reach);
        let earliest = waits.partition_point(|&wait| place(wait).is_none());
        place(*waits.get(earliest)?)
    }

    /// Finds a place with a wait up to that tick, or without one, in one of the smallest sufficient rooms.
    fn find_with_wait(
        &self,
        bytes: u64,
        most: usize,
        wait: Option<u64>,
        reach: &StreamOrder,
    ) -> Option<Candidate> {
        self.place_without(bytes, most, |part| self.wait_for(part, reach) > wait)
    }

    /// Returns the tick of the marker that the stream of `reach` must wait for before it uses a part; `None` if it need
    /// not wait. A stream without a marker, including a captured one, counts as [`NOW`].
    fn wait_for(&self, part: &Part, reach: &StreamOrder) -> Option<u64> {
        let mut last = None;
        part.has(|user, tick| {
            if !reach.covers(user, tick) {
                let marker = self.markers.covering(user, tick);
                last = last.max(Some(marker.map_or(NOW, |marker| marker.tick)));
            }
            false
        });
        last
    }

    /// Finds a place in one of the smallest sufficient rooms, or at the free end, without parts for which
    /// `is_in_the_way` holds. Examines at most `most` rooms, and skips at most `most` such parts in either.
    fn place_without(
        &self,
        bytes: u64,
        most: usize,
        is_in_the_way: impl Fn(&Part) -> bool,
    ) -> Option<Candidate> {
        let (free_end, mut left) = (self.engine.free_end(Zone::Dynamic), most);
        for room in self.engine.fitting_blocks(bytes, most) {
            let all = room.extent.range();
            if all.start == free_end {
                left = most;
            }
            let mut place = all.start;
            for part in self.uses.parts(&all) {
                let is_in_the_way = is_in_the_way(part);
                let free_until = if is_in_the_way { part.start } else { part.end.min(all.end) };
                if free_until.saturating_sub(place) >= bytes {
                    return Some(Candidate::Plain { room, start: place });
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
                return Some(Candidate::Plain { room, start: place });
            }
        }
        None
    }
}
