//! Unmapped gaps in a growing arena's range, and pieces that could not be unmapped.

use crate::heap::arena::Backing;
use crate::heap::space::{Arena, ArenaError, BlockId, Extent, Zone};
use vrampool_backend::Backend;

impl<B: Backend> Backing<B> {
    /// The start of the first gap of at least `bytes` in the second part.
    pub(super) fn gap_of(&self, engine: &Arena, bytes: u64) -> Option<u64> {
        let mut gaps = self.gaps.iter().map(|&gap| engine.extent(gap));
        gaps.find(|gap| gap.bytes >= bytes && gap.start >= self.front).map(|gap| gap.start)
    }

    /// Fills the start of a gap.
    pub(crate) fn fill(&mut self, engine: &mut Arena, filled: Extent) {
        let is_there = |gap: &BlockId| engine.extent(*gap).start == filled.start;
        let Some(gap) = self.gaps.iter().position(is_there) else { return };
        let block = self.gaps.swap_remove(gap);
        let end = engine.extent(block).end();
        engine.release(block);
        if end > filled.end() {
            self.gaps.extend(engine.hold_at(filled.end(), end - filled.end()));
        }
    }

    /// Joins adjacent gaps, and removes gaps at the end of a part from the range.
    pub(crate) fn join_gaps(&mut self, engine: &mut Arena) {
        self.gaps.sort_unstable_by_key(|&gap| engine.extent(gap).start);
        let mut joined: Vec<BlockId> = Vec::with_capacity(self.gaps.len());
        for gap in self.gaps.drain(..) {
            let Extent { start, bytes } = engine.extent(gap);
            let before = joined.pop_if(|last| engine.extent(*last).end() == start && start != self.front);
            let Some(before) = before else {
                joined.push(gap);
                continue;
            };
            let all = Extent { bytes: engine.extent(before).bytes + bytes, ..engine.extent(before) };
            engine.release(before);
            engine.release(gap);
            joined.extend(engine.hold_at(all.start, all.bytes));
        }
        for zone in [Zone::Stable, Zone::Dynamic] {
            let is_at_end = |gap: &BlockId| {
                let gap = engine.extent(*gap);
                gap.end() == engine.end(zone) && self.zone_at(gap.start) == zone
            };
            if let Some(place) = joined.iter().position(is_at_end) {
                let gap = joined.remove(place);
                let start = engine.extent(gap).start;
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
        for Extent { start, bytes } in gaps {
            self.gaps.push(engine.hold_at(start, bytes)?);
        }
        for (extent, block) in &mut self.unreleased {
            *block = engine.hold_at(extent.start, extent.bytes)?;
        }
        Ok(())
    }
}
