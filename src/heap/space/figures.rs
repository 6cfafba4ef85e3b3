//! Statistics of an arena. Each takes a bounded number of steps, except the listing of all blocks.

use super::block::{BlockId, Span, SpanState};
use super::error::ArenaError;
use super::extent::Extent;
use super::operations::Arena;
use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::BlockState;

impl Arena {
    /// The unit of sizes and offsets, bytes.
    #[must_use]
    #[inline]
    pub fn alignment(&self) -> u64 {
        1 << self.shift
    }

    /// Bytes of both zones.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.dynamic.end
    }

    /// Bytes of a zone: always `used + available + held` of the zone.
    #[must_use]
    pub fn capacity_of(&self, zone: Zone) -> u64 {
        self.space(zone).end - self.space(zone).start
    }

    /// Bytes of live blocks, rounded up to the alignment.
    #[must_use]
    #[inline]
    pub fn used(&self) -> u64 {
        self.stable.used + self.dynamic.used
    }

    /// Bytes of a zone's live blocks.
    #[must_use]
    pub fn used_in(&self, zone: Zone) -> u64 {
        self.space(zone).used
    }

    /// The peak of live bytes since the start or the last [`reset_peak`](Self::reset_peak).
    #[must_use]
    pub fn peak_used(&self) -> u64 {
        self.peak
    }

    /// Restarts the peak from the current live bytes.
    pub fn reset_peak(&mut self) {
        self.peak = self.used();
    }

    /// Raises the peak to at least `bytes`, to undo a [reset](Self::reset_peak).
    pub(crate) fn raise_peak(&mut self, bytes: u64) {
        self.peak = self.peak.max(bytes);
    }

    /// Free bytes of a zone.
    #[must_use]
    pub fn available(&self, zone: Zone) -> u64 {
        self.capacity_of(zone) - self.space(zone).used - self.space(zone).held
    }

    /// Bytes of the dynamic zone that are neither live nor free.
    ///
    /// They belong to moves in progress, or, in an arena on a device, are unmapped or still used by streams.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.dynamic.held
    }

    /// A zone's largest free block, bytes: the largest request at the arena's alignment that succeeds now. 0
    /// if no bytes are free.
    #[must_use]
    pub fn largest_free_block(&self, zone: Zone) -> u64 {
        self.space(zone).free.largest(&self.table)
    }

    /// The end of the last block that is neither free nor [held](Self::hold_at), bytes; 0 if there is none.
    pub(crate) fn live_end(&self) -> u64 {
        let end = |zone| {
            let mut last = self.table[end_of(zone)].before;
            while last != end_of(zone) && matches!(self.table[last].state(), None | Some(BlockState::Held)) {
                last = self.table[last].before;
            }
            if last == end_of(zone) { self.space(zone).start } else { self.table[last].end() }
        };
        let dynamic = end(Zone::Dynamic);
        if dynamic > self.dynamic.start { dynamic } else { end(Zone::Stable) }
    }

    /// The offset of a block from the arena's start, bytes. Compaction may change it.
    ///
    /// # Errors
    /// [`ArenaError::StaleBlock`], [`ArenaError::ForeignBlock`].
    pub fn offset(&self, block: BlockId) -> Result<u64, ArenaError> {
        self.is_moving(block).map(|_| self.table[block.index()].offset)
    }

    /// The extent of a block that is known to be live.
    #[inline]
    pub(crate) fn extent(&self, live: BlockId) -> Extent {
        self.table[live.index()].extent()
    }

    /// All pieces of the arena by offset, without gaps.
    pub fn blocks(&self) -> impl Iterator<Item = Span> + '_ {
        [Zone::Stable, Zone::Dynamic].into_iter().flat_map(move |zone| {
            let block = move |index: u32| (index != end_of(zone)).then_some(index);
            let first = block(self.table[end_of(zone)].after);
            let indices = std::iter::successors(first, move |&index| block(self.table[index].after));
            indices.map(move |index| {
                let record = &self.table[index];
                let state = match record.state() {
                    None => SpanState::Free,
                    Some(BlockState::Live) => SpanState::Live(self.name(index)),
                    Some(BlockState::Moving) => SpanState::Moving(self.name(index)),
                    Some(_) => SpanState::Held,
                };
                Span { offset: record.offset, bytes: record.bytes, zone, state }
            })
        })
    }
}
