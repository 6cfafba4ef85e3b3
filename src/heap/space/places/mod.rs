//! Blocks at places that the caller selects, for callers with several ways to serve a request.

#[cfg(test)]
mod tests;

use super::block::BlockId;
use super::error::ArenaError;
use super::operations::Arena;
use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::{BlockState, FreeBlocks, NONE, ZoneState, choose};

#[derive(Debug, Clone, Copy)]
pub(crate) struct FreeBlock {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The record, if known.
    index: u32,
}

impl FreeBlock {
    /// Free bytes, now or in the future, whose record is unknown and must be searched for.
    pub(crate) fn unnamed(offset: u64, bytes: u64) -> Self {
        Self { offset, bytes, index: NONE }
    }
}

impl Arena {
    /// As [`allocate`](Self::allocate) in the dynamic zone, only from a hole, never from the free end.
    /// Returns no reason for a failure, because the caller has an alternative.
    #[inline]
    pub(crate) fn allocate_in_hole(&mut self, bytes: u64) -> Option<BlockId> {
        let index = self.place_by(bytes, Zone::Dynamic, FreeBlocks::cut_hole);
        self.newest(index)
    }

    /// As [`allocate_in_hole`](Self::allocate_in_hole), only from the free end, even if a hole would do.
    #[inline]
    pub(crate) fn allocate_at_end(&mut self, bytes: u64) -> Option<BlockId> {
        let index = self.place_by(bytes, Zone::Dynamic, FreeBlocks::cut_tail);
        self.newest(index)
    }

    /// Allocates `bytes` at `offset`, both multiples of the alignment, if all of it is free. Searches the
    /// zone's free blocks that are large enough, smallest first.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) fn allocate_at(&mut self, offset: u64, bytes: u64) -> Result<BlockId, ArenaError> {
        let index = self.place_at(offset, bytes);
        self.named(index, (bytes, Zone::Dynamic))
    }

    /// As [`allocate_at`](Self::allocate_at), but makes the place [held](Self::held), neither live nor free,
    /// until it is [let in](Self::let_in) or [released](Self::release). It never counts as live.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) fn hold_at(&mut self, offset: u64, bytes: u64) -> Result<BlockId, ArenaError> {
        let peak = self.peak;
        let block = self.allocate_at(offset, bytes)?;
        self.peak = peak;
        let space = self.zone_around(offset);
        space.used -= bytes;
        space.held += bytes;
        self.table[block.index()].set_state(BlockState::Held);
        Ok(block)
    }

    /// Makes a held block live.
    pub(crate) fn let_in(&mut self, block: BlockId) {
        if self.is_held(block) {
            self.take_in(block);
            self.peak = self.peak.max(self.used());
        }
    }

    /// Makes a held block free.
    pub(crate) fn release(&mut self, block: BlockId) {
        if self.is_held(block) {
            self.take_in(block);
            // The block is live, and does not move.
            let _ = self.free(block);
        }
    }

    fn is_held(&self, block: BlockId) -> bool {
        let record = self.table.get(block.index()).filter(|record| record.serial() == block.serial());
        record.is_some_and(|record| record.state() == Some(BlockState::Held))
    }

    fn take_in(&mut self, block: BlockId) {
        let (offset, bytes) = self.extent(block);
        let space = self.zone_around(offset);
        space.held -= bytes;
        space.used += bytes;
        self.table[block.index()].set_state(BlockState::Live);
    }

    fn zone_around(&mut self, offset: u64) -> &mut ZoneState {
        let zone = self.zone_at(offset);
        choose(&mut self.stable, &mut self.dynamic, zone)
    }

    fn place_at(&mut self, offset: u64, bytes: u64) -> u32 {
        let below = self.alignment() - 1;
        let Some(end) = offset.checked_add(bytes) else { return NONE };
        if bytes == 0 || (offset | bytes) & below != 0 || self.table.is_full() {
            return NONE;
        }
        let zone = self.zone_at(offset);
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, zone);
        let holds = |&index: &u32| table[index].offset <= offset && end <= table[index].end();
        // Mostly a requested place is at the end.
        let of = |most| space.free.at_least(table, bytes, most).find(holds);
        let Some(hole) = of(0).or_else(|| of(usize::MAX)) else { return NONE };
        let index = space.carve(table, hole, offset, bytes);
        self.occupy(index, bytes, zone);
        index
    }

    /// Returns the `most` smallest free blocks of the dynamic zone of at least `bytes`, then the free end.
    pub(crate) fn fitting_blocks(&self, bytes: u64, most: usize) -> impl Iterator<Item = FreeBlock> {
        self.dynamic.free.at_least(&self.table, bytes, most).map(|index| self.free_block(index))
    }

    fn free_block(&self, index: u32) -> FreeBlock {
        let record = &self.table[index];
        FreeBlock { offset: record.offset, bytes: record.bytes, index }
    }

    /// As [`allocate_at`](Self::allocate_at), without a search if `offset` is still in that block.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) fn allocate_in_free(
        &mut self,
        room: FreeBlock,
        offset: u64,
        bytes: u64,
    ) -> Result<BlockId, ArenaError> {
        let is_there = self.table.get(room.index).is_some_and(|record| {
            record.is_free() && record.offset <= offset && offset.saturating_add(bytes) <= record.end()
        });
        let is_whole = bytes > 0 && (offset | bytes) & (self.alignment() - 1) == 0;
        if !is_there || !is_whole || self.zone_at(offset) != Zone::Dynamic {
            return self.allocate_at(offset, bytes);
        }
        let index = self.dynamic.carve(&mut self.table, room.index, offset, bytes);
        self.occupy(index, bytes, Zone::Dynamic);
        self.named(index, (bytes, Zone::Dynamic))
    }

    /// Appends to an empty list, by offset, the free blocks of the dynamic zone of at least `bytes`, and the
    /// free end whatever its size.
    pub(crate) fn holes(&self, bytes: u64, holes: &mut Vec<FreeBlock>) {
        self.dynamic.free.each_at_least(&self.table, bytes, |index| holes.push(self.free_block(index)));
        let (end, capacity) = (self.free_end(Zone::Dynamic), self.dynamic.end);
        if (1..bytes).contains(&(capacity - end)) {
            holes.push(FreeBlock::unnamed(end, capacity - end));
        }
        holes.sort_unstable_by_key(|room| room.offset);
    }

    /// Inserts the free blocks of the stable zone of at least `bytes`, by offset, before those of the dynamic
    /// zone.
    pub(crate) fn stable_holes(&self, bytes: u64, holes: &mut Vec<FreeBlock>) {
        // A zone without bytes has no bins.
        if self.stable.end == 0 {
            return;
        }
        self.stable.free.each_at_least(&self.table, bytes, |index| holes.push(self.free_block(index)));
        holes.sort_unstable_by_key(|room| room.offset);
    }

    /// All free blocks, by offset.
    pub(crate) fn free_by_offset(&self) -> Vec<FreeBlock> {
        let mut free = Vec::new();
        self.holes(1, &mut free);
        self.stable_holes(1, &mut free);
        free
    }

    /// The start of a zone's free end; the zone's end if there is none.
    pub(crate) fn free_end(&self, zone: Zone) -> u64 {
        let last = &self.table[self.table[end_of(zone)].before];
        if last.is_free() { last.offset } else { self.end(zone) }
    }

    pub(crate) fn end(&self, zone: Zone) -> u64 {
        self.space(zone).end
    }
}
