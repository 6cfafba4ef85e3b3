//! Searches the free end and the stitched ranges when no hole fits.

use super::cover::Holes;
use super::stitch;
use crate::heap::arena::mapping::Reach;
use crate::heap::arena::{Backing, Candidate, TakenBlock};
use crate::heap::space::{Arena, Zone};
use std::mem;
use std::sync::Arc;
use vrampool_backend::Backend;

impl<B: Backend> Backing<B> {
    /// Offers the oldest mapped memory that holds `bytes`, which no hole does.
    pub(crate) fn oldest(&mut self, engine: &Arena, bytes: u64) -> Option<Candidate> {
        let start = engine.free_end(Zone::Dynamic);
        let end = start.saturating_add(bytes);
        let age = self.ends.get(self.ends.partition_point(|&(other, _)| other < end)).map(|&(_, age)| age);
        let older = self.stitched.partition_point(|range| age.is_none_or(|age| range.age < age));
        let stitched = self.reach(engine, bytes, older).and_then(|reach| {
            let mut holes = mem::take(&mut self.holes);
            holes.find(engine, self.granularity, false);
            let found = self.oldest_around(&holes, bytes, older, reach);
            self.holes = holes;
            found
        });
        stitched.or_else(|| engine.end_room(bytes).map(|room| Candidate::Plain { room, start }))
    }

    /// Takes the extents of a place in the stitched range of that age, all or none.
    pub(crate) fn take_fit(
        &mut self,
        engine: &mut Arena,
        age: u64,
        fit: &stitch::Fit,
    ) -> Option<TakenBlock<B>> {
        let place = self.stitched.binary_search_by_key(&age, |range| range.age).ok()?;
        let mut blocks = Vec::with_capacity(fit.extents.len());
        for &extent in &fit.extents {
            match engine.allocate_in(self.holes.room_of(extent), extent.start, extent.bytes) {
                Ok(block) => blocks.push(block),
                Err(_) => {
                    for block in blocks {
                        let _ = engine.free(block);
                    }
                    return None;
                }
            }
        }
        let used = self.next_age();
        let range = &mut self.stitched[place];
        range.used = used;
        TakenBlock::stitched(blocks, Arc::clone(&range.memory), fit.offset)
    }

    /// Offers the oldest of some stitched ranges with `bytes` free in a row in the holes, none of which holds them, if
    /// it may be used for them. The ranges end at `reach` or before.
    pub(crate) fn oldest_around(
        &self,
        holes: &Holes,
        bytes: u64,
        ranges: usize,
        reach: u64,
    ) -> Option<Candidate> {
        let (oldest, first) = self.oldest_with(holes, bytes, ranges, reach)?;
        let range = self.stitched.get(oldest)?;
        let (before, pieces) = range.pieces.split_at_checked(first)?;
        let mut fit = stitch::fit(pieces, holes, bytes, &[])?;
        fit.offset += before.iter().map(|piece| piece.bytes).sum::<u64>();
        Some(Candidate::Stitched { age: range.age, fit })
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
    /// no hole holds them, and which a block of so few bytes may occupy. Also returns the first piece. The ranges end
    /// at `reach` or before. Mostly no hole reaches the end of a piece, and no range is examined.
    fn oldest_with(&self, holes: &Holes, bytes: u64, ranges: usize, reach: u64) -> Option<(usize, usize)> {
        // The free end extends beyond all ranges.
        let pieces = &self.extents[..self.extents.partition_point(|piece| piece.start < reach)];
        // The first piece of a range: the row of the request for which the range was made.
        let mut oldest = (ranges, 0);
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
                }
            }
        }
        (oldest.0 < ranges).then_some(oldest)
    }
}
