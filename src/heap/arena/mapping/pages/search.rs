//! Searches the free end and the stitched ranges when no hole fits.

use super::Backing;
use super::cover::{Extent, Holes};
use super::last_search::Search;
use super::stitch;
use super::stitch::Fit;
use super::stitched_range::Reach;
use crate::heap::space::{Arena, FreeBlock, Zone};
use std::mem;
use std::sync::Arc;
use vrampool_backend::Backend;

/// Memory that serves a request without a device call.
#[derive(Debug)]
pub(crate) enum Way<B: Backend> {
    /// The free end of the range's second part.
    End,
    Stitched(Arc<B::Memory>, Fit),
    Nothing,
}

impl<B: Backend> Backing<B> {
    /// Whether [`oldest`](Self::oldest) would return the free end.
    pub(crate) fn end_is_oldest(&mut self, engine: &Arena, bytes: u64) -> bool {
        let (end_age, older) = self.older_than_end(engine, bytes);
        end_age.is_some() && self.search(engine, bytes, older).is_none()
    }

    /// Returns the oldest mapped memory that holds `bytes`, which no hole does.
    pub(crate) fn oldest(&mut self, engine: &Arena, bytes: u64) -> Way<B> {
        let (end_age, older) = self.older_than_end(engine, bytes);
        let found = self.search(engine, bytes, older);
        let now = self.next_age();
        let Self { stitched, search, .. } = self;
        let fit = found.and_then(|(oldest, first)| {
            let range = stitched.get_mut(oldest)?;
            let (before, pieces) = range.pieces.split_at_checked(first)?;
            let mut fit = stitch::fit(pieces, &search.holes, bytes, &[])?;
            fit.offset += before.iter().map(|piece| piece.bytes).sum::<u64>();
            range.used = now;
            Some((Arc::clone(&range.memory), fit))
        });
        match (fit, end_age) {
            (Some((memory, fit)), _) => Way::Stitched(memory, fit),
            (None, Some(_)) => Way::End,
            (None, None) => Way::Nothing,
        }
    }

    /// Returns the oldest stitched range with `bytes` free in a row in the holes, if it may be used for them.
    pub(crate) fn oldest_around(&mut self, holes: &Holes, bytes: u64) -> Option<(Arc<B::Memory>, Fit)> {
        let now = self.next_age();
        self.stitched.iter_mut().filter(|range| range.bytes >= bytes).find_map(|range| {
            let fit = stitch::fit(&range.pieces, holes, bytes, &[])?;
            let (used, _) = stitch::trim(range.pieces.to_vec(), fit.clone(), bytes);
            if !range.serves(&used) {
                return None;
            }
            range.used = now;
            Some((Arc::clone(&range.memory), fit))
        })
    }

    /// Returns the free block that contained an extent of the last [result](Self::oldest).
    pub(crate) fn room_of(&self, extent: Extent) -> FreeBlock {
        let room = self.search.holes.room_at(extent.start).copied();
        room.unwrap_or(FreeBlock::unnamed(extent.start, extent.bytes))
    }

    /// Returns the age of the free end, if it holds `bytes`, and the number of older stitched ranges.
    fn older_than_end(&self, engine: &Arena, bytes: u64) -> (Option<u64>, usize) {
        let end = engine.free_end(Zone::Dynamic).saturating_add(bytes);
        let age = self.ends.get(self.ends.partition_point(|&(other, _)| other < end)).map(|&(_, age)| age);
        (age, self.stitched.partition_point(|range| age.is_none_or(|age| range.age < age)))
    }

    /// Returns the oldest of `ranges` ranges in which `bytes` fit, and its first piece used.
    fn search(&mut self, engine: &Arena, bytes: u64, ranges: usize) -> Option<(usize, usize)> {
        let now = engine.moment();
        if ranges > 0 && !self.search.answers(now, bytes, ranges) {
            let mut holes = mem::take(&mut self.search.holes);
            let (oldest, is_spared) = match self.reach(engine, bytes, ranges) {
                Some(reach) => {
                    holes.find(engine, self.granularity, false);
                    self.oldest_with(&holes, bytes, ranges, reach)
                }
                None => (None, false),
            };
            self.search = Search { moment: Some(now), holes, bytes, ranges, oldest, is_spared };
        }
        self.search.oldest.filter(|_| ranges > 0)
    }

    /// Returns the last end of those `ranges`; `None` if no range can have as many bytes free.
    fn reach(&self, engine: &Arena, bytes: u64, ranges: usize) -> Option<u64> {
        let Reach { most_bytes, last_end } = self.stitched[..ranges].last()?.reach;
        let end = engine.free_end(Zone::Dynamic);
        // A range that ends before the free end has holes alone.
        let in_holes = engine.available(Zone::Dynamic) - (engine.end(Zone::Dynamic) - end);
        (most_bytes >= bytes && (last_end > end || in_holes >= bytes)).then_some(last_end)
    }

    /// Finds the oldest range in which `bytes` continue from the free back of one piece to the next, because
    /// no hole holds them. The ranges end at `reach` or before. Mostly no hole reaches the end of a piece, and no
    /// range is examined. Also returns whether a range was spared because a block of so few bytes would occupy too
    /// much of it.
    fn oldest_with(
        &self,
        holes: &Holes,
        bytes: u64,
        ranges: usize,
        reach: u64,
    ) -> (Option<(usize, usize)>, bool) {
        // The free end extends beyond all ranges.
        let pieces = &self.extents[..self.extents.partition_point(|piece| piece.start < reach)];
        // The first piece of a range: the row of the request for which the range was made.
        let (mut oldest, mut is_spared) = ((ranges, 0), false);
        for (place, hole) in holes.backs(pieces) {
            for &(range, number) in &self.parts_of[place] {
                let (range, number) = (range as usize, number as usize);
                if range > oldest.0 || range >= ranges {
                    break;
                }
                if (range, number) >= oldest {
                    continue;
                }
                let stitched = &self.stitched[range];
                if stitched.bytes < bytes {
                    continue;
                }
                let count = stitch::goes_on_from(number, &stitched.pieces, hole, bytes, holes);
                if count > 0 && stitched.serves(&stitched.pieces[number..number + count]) {
                    oldest = (range, number);
                } else {
                    is_spared |= count > 0;
                }
            }
        }
        ((oldest.0 < ranges).then_some(oldest), is_spared)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::arena::mapping::pages::Extent;
    use crate::heap::space::ArenaLayout;
    use proptest::prelude::*;

    const PIECE: u64 = 8;
    const PIECES: u64 = 6;

    /// Unused ranges are dropped after a sleep, although no memory need become free in it.
    #[cfg(feature = "host")]
    #[test]
    fn it_says_nothing_of_ranges_that_come_after_a_sleep() -> Result<(), Box<dyn std::error::Error>> {
        use crate::host::HostDevice;
        use vrampool_backend::{AllocationRequest, MemoryKind, Physical};

        let device = HostDevice::new();
        let mut arena = Arena::new(ArenaLayout::new(PIECE * PIECES).alignment(1))?;
        // The back of the first piece and the fourth piece are free.
        for (place, bytes) in [(0, 1), (PIECE, 2 * PIECE), (4 * PIECE, 2 * PIECE)] {
            arena.allocate_at(place, bytes)?;
        }
        let mut backing = Backing::<HostDevice>::new(1, (u64::MAX, u64::MAX), PIECE, (0, PIECE * PIECES));
        let piece = |number| Extent { start: number * PIECE, bytes: PIECE };
        for (pieces, fits) in [([1, 2], false), ([0, 3], true)] {
            drop(backing.take_all());
            (0..PIECES).for_each(|number| backing.add(piece(number), Physical::new(PIECE, ())));
            let memory = device.allocate(&AllocationRequest::new(2 * PIECE, MemoryKind::default()))?;
            backing.add_stitched(Arc::new(memory), pieces.map(piece).to_vec());
            let way = backing.oldest(&arena, PIECE + 2);
            assert_eq!(matches!(way, Way::Stitched(..)), fits, "{way:?}");
        }
        Ok(())
    }

    proptest! {
        /// A result is valid as long as the search assumes it is.
        #[test]
        fn it_answers_what_another_search_would_find(
            steps in prop::collection::vec((0..4, 0..PIECE * PIECES, 1..2 * PIECE), 1..80),
            pieces in Just((0..PIECES).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            // The free end extends beyond all pieces.
            let mut arena = Arena::new(ArenaLayout::new(PIECE * (PIECES + 1)).alignment(1))?;
            let pieces: Vec<_> =
                pieces.iter().map(|piece| Extent { start: piece * PIECE, bytes: PIECE }).collect();
            let (mut blocks, mut search) = (Vec::new(), Search::default());
            for (step, place, bytes) in steps {
                match step {
                    0 if !blocks.is_empty() => arena.free(blocks.swap_remove(place as usize % blocks.len()))?,
                    1 if !blocks.is_empty() => {
                        _ = arena.resize_in_place(blocks[place as usize % blocks.len()], bytes);
                    }
                    2 => blocks.extend(arena.allocate_at(place, bytes)),
                    _ => {}
                }
                let holes = Holes::in_arena(&arena, 1, false);
                let fit = |holes| stitch::fit(&pieces, holes, bytes, &[]);
                let oldest = fit(&holes).map(|_| (0, 0));
                let now = arena.moment();
                if search.answers(now, bytes, 1) {
                    prop_assert_eq!(search.oldest, oldest);
                    prop_assert!(oldest.is_none() || fit(&search.holes) == fit(&holes));
                } else {
                    search =
                        Search { moment: Some(now), holes, bytes, ranges: 1, oldest, is_spared: false };
                }
                if place == 0 {
                    search.forget();
                    prop_assert!(!search.answers(now, bytes, 1), "pieces may be others");
                }
            }
        }
    }
}
