//! Comparison of an arena with its naive twin.

use super::{History, length, longest};
use std::ops::Range;
use vrampool::arena::{BlockId, SpanState, Zone};

/// A range, the block that lives in it, and whether it is free.
type Piece = (Range<u64>, Option<BlockId>, bool);

impl History {
    pub(super) fn compare(&mut self) {
        let mut expected: Vec<Piece> = Vec::new();
        let mut used = 0;
        for region in [Zone::Stable, Zone::Dynamic] {
            let gaps = self.gaps(region);
            assert_eq!(self.arena.available(region), gaps.iter().map(length).sum());
            assert_eq!(self.arena.largest_free_block(region), longest(&gaps));
            assert_eq!(self.arena.capacity_of(region), length(&self.region(region)));
            let live = || self.taken.iter().filter(|live| live.region == region);
            assert_eq!(self.arena.used_in(region), live().map(|live| length(&live.range)).sum());
            used += self.arena.used_in(region);
            expected.extend(gaps.into_iter().map(|gap| (gap, None, true)));
        }
        self.peak = self.peak.max(used);
        assert_eq!((self.arena.used(), self.arena.peak_used()), (used, self.peak));
        assert_eq!(self.arena.capacity(), self.capacity);
        expected.extend(self.held.iter().map(|range| (range.clone(), None, false)));
        expected.extend(self.taken.iter().map(|live| (live.range.clone(), Some(live.block), false)));
        expected.sort_by_key(|(range, ..)| range.start);

        let mut found: Vec<Piece> = Vec::new();
        for span in self.arena.blocks() {
            let block = match span.state {
                SpanState::Live(block) | SpanState::Moving(block) => Some(block),
                _ => None,
            };
            found.push((span.offset..span.offset + span.bytes, block, span.state == SpanState::Free));
        }
        // Held ranges may be in pieces.
        for list in [&mut expected, &mut found] {
            list.dedup_by(|next, last| {
                let joined = next.1.is_none() && last.1.is_none() && !next.2 && !last.2;
                if joined {
                    last.0.end = next.0.end;
                }
                joined
            });
        }
        assert_eq!(found, expected);
        for live in &self.taken {
            assert_eq!(self.arena.offset(live.block), Ok(live.range.start));
        }
    }
}
