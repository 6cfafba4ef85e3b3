//! Unmapped gaps in a growing arena's range, and pieces that could not be unmapped.

use super::Extent;
use crate::heap::arena::Backing;
use crate::heap::space::{Arena, ArenaError, BlockId, Zone};
use vrampool_backend::Backend;

impl<B: Backend> Backing<B> {
    /// The start of the first gap of at least `bytes` in the second part.
    pub(super) fn gap_of(&self, engine: &Arena, bytes: u64) -> Option<u64> {
        let mut gaps = self.gaps.iter().map(|&gap| engine.extent(gap));
        gaps.find(|(start, room)| *room >= bytes && *start >= self.front).map(|(start, _)| start)
    }

    /// Fills the start of a gap.
    pub(crate) fn fill(&mut self, engine: &mut Arena, filled: Extent) {
        let is_there = |gap: &BlockId| engine.extent(*gap).0 == filled.start;
        let Some(gap) = self.gaps.iter().position(is_there) else { return };
        let block = self.gaps.swap_remove(gap);
        let (start, bytes) = engine.extent(block);
        engine.release(block);
        if start + bytes > filled.end() {
            self.gaps.extend(engine.hold_at(filled.end(), start + bytes - filled.end()));
        }
    }

    /// Joins adjacent gaps, and removes gaps at the end of a part from the range.
    pub(crate) fn join_gaps(&mut self, engine: &mut Arena) {
        self.gaps.sort_unstable_by_key(|&gap| engine.extent(gap));
        let mut joined: Vec<BlockId> = Vec::with_capacity(self.gaps.len());
        for gap in self.gaps.drain(..) {
            let (start, bytes) = engine.extent(gap);
            let before = joined.pop_if(|last| {
                let (start_before, bytes_before) = engine.extent(*last);
                start_before + bytes_before == start && start != self.front
            });
            let Some(before) = before else {
                joined.push(gap);
                continue;
            };
            let (start_before, bytes_before) = engine.extent(before);
            engine.release(before);
            engine.release(gap);
            joined.extend(engine.hold_at(start_before, bytes_before + bytes));
        }
        for zone in [Zone::Stable, Zone::Dynamic] {
            let is_at_end = |gap: &BlockId| {
                let (start, bytes) = engine.extent(*gap);
                start + bytes == engine.end(zone) && self.zone_at(start) == zone
            };
            if let Some(place) = joined.iter().position(is_at_end) {
                let gap = joined.remove(place);
                let (start, _) = engine.extent(gap);
                engine.release(gap);
                let _ = engine.set_end(zone, start);
                if zone == Zone::Dynamic {
                    self.cut_at(start);
                }
            }
        }
        self.gaps = joined;
    }

    /// Frees everything except unmapped parts.
    ///
    /// # Errors
    /// No error is expected, because there were more records before.
    pub(crate) fn reset(&mut self, engine: &mut Arena) -> Result<(), ArenaError> {
        let gaps: Vec<_> = self.gaps.drain(..).map(|gap| engine.extent(gap)).collect();
        engine.reset();
        for (start, bytes) in gaps {
            self.gaps.push(engine.hold_at(start, bytes)?);
        }
        for (extent, block) in &mut self.unreleased {
            *block = engine.hold_at(extent.start, extent.bytes)?;
        }
        Ok(())
    }
}
