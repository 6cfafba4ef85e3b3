//! Searches the free end and the stitched ranges when no hole fits.

use super::cover::{Holes, take_extents};
use super::stitch;
use super::stitch::Fit;
use crate::heap::arena::Backing;
use crate::heap::arena::mapping::Reach;
use crate::heap::space::{Arena, ArenaError, BlockId, Zone};
use std::mem;
use std::sync::Arc;
use vrampool_backend::Backend;

/// Memory that serves a request without a device call.
#[derive(Debug)]
pub(crate) enum Way<B: Backend> {
    /// The free end of the range's second part.
    End(BlockId),
    /// A stitched range, the offset in it, and the blocks.
    Stitched(Arc<B::Memory>, u64, Vec<BlockId>),
    Nothing,
}

impl<B: Backend> Way<B> {
    fn end(block: Option<BlockId>) -> Self {
        block.map_or(Self::Nothing, Self::End)
    }
}

impl<B: Backend> Backing<B> {
    /// Takes the oldest mapped memory that holds `bytes`, which no hole does.
    pub(crate) fn take_oldest(&mut self, engine: &mut Arena, bytes: u64) -> Result<Way<B>, ArenaError> {
        let end = engine.free_end(Zone::Dynamic).saturating_add(bytes);
        let age = self.ends.get(self.ends.partition_point(|&(other, _)| other < end)).map(|&(_, age)| age);
        let older = self.stitched.partition_point(|range| age.is_none_or(|age| range.age < age));
        let Some(reach) = self.reach(engine, bytes, older) else {
            return Ok(Way::end(engine.allocate_at_end(bytes)));
        };
        let mut holes = mem::take(&mut self.holes);
        holes.find(engine, self.granularity, false);
        let found = self.oldest_with(&holes, bytes, older, reach);
        let now = self.next_age();
        let fit = found.and_then(|(oldest, first)| {
            let range = self.stitched.get_mut(oldest)?;
            let (before, pieces) = range.pieces.split_at_checked(first)?;
            let mut fit = stitch::fit(pieces, &holes, bytes, &[])?;
            fit.offset += before.iter().map(|piece| piece.bytes).sum::<u64>();
            range.used = now;
            Some((Arc::clone(&range.memory), fit))
        });
        let taken = match fit {
            None => Ok(Way::end(engine.allocate_at_end(bytes))),
            Some((memory, fit)) => {
                let blocks = take_extents(engine, &fit.extents, |extent| holes.room_of(extent));
                blocks.map(|blocks| Way::Stitched(memory, fit.offset, blocks))
            }
        };
        self.holes = holes;
        taken
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
    /// at
    /// `reach` or before. Mostly no hole reaches the end of a piece, and no range is examined.
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
