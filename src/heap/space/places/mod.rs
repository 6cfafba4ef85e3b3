//! Blocks at places that the caller selects, for callers with several ways to serve a request.

#[cfg(test)]
mod tests;

use super::block::BlockId;
use super::error::ArenaError;
use super::operations::Arena;
use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::{BlockState, Extent, FreeBlock, NONE, Record, ZoneState, choose};

impl Arena {
    /// The free end of the dynamic zone, if it holds `size`.
    #[inline]
    pub(crate) fn end_room(&self, size: u64) -> Option<FreeBlock> {
        self.room(self.dynamic.free.tail_of(&self.table, size))
    }

    /// Allocates `bytes` at `offset`, both multiples of the alignment, if all of it is free. Searches the
    /// zone's free blocks that are large enough, smallest first.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) fn allocate_at(&mut self, offset: u64, bytes: u64) -> Result<BlockId, ArenaError> {
        self.allocate_in(FreeBlock::unnamed(Extent { start: offset, bytes }), offset, bytes)
    }

    /// As [`allocate_at`](Self::allocate_at), without a search if the place is still in that block.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    #[inline]
    pub(crate) fn allocate_in(
        &mut self,
        room: FreeBlock,
        offset: u64,
        bytes: u64,
    ) -> Result<BlockId, ArenaError> {
        let is_whole = bytes > 0 && (offset | bytes) & (self.alignment() - 1) == 0;
        let end = offset.checked_add(bytes).filter(|_| is_whole && !self.table.is_full());
        let room = end.and_then(|end| {
            let is_there =
                |record: &&Record| record.is_free() && record.offset <= offset && end <= record.end();
            let known = self.table.get(room.index).filter(is_there).map(|_| room.index);
            known.or_else(|| self.room_around(offset, bytes))
        });
        let index = room.map_or(NONE, |room| self.carve(room, offset, bytes));
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
        let Extent { start, bytes } = self.extent(block);
        let space = self.zone_around(start);
        space.held -= bytes;
        space.used += bytes;
        self.table[block.index()].set_state(BlockState::Live);
    }

    fn zone_around(&mut self, offset: u64) -> &mut ZoneState {
        let zone = self.zone_at(offset);
        choose(&mut self.stable, &mut self.dynamic, zone)
    }

    /// Searches for the free block that holds a place.
    fn room_around(&self, offset: u64, bytes: u64) -> Option<u32> {
        let (table, space) = (&self.table, self.space(self.zone_at(offset)));
        let holds = |&index: &u32| table[index].offset <= offset && offset + bytes <= table[index].end();
        // Mostly a requested place is at the end.
        let of = |most| space.free.at_least(table, bytes, most).find(holds);
        of(0).or_else(|| of(usize::MAX))
    }

    /// Returns the `most` smallest free blocks of the dynamic zone of at least `bytes`, then the free end.
    pub(crate) fn fitting_blocks(&self, bytes: u64, most: usize) -> impl Iterator<Item = FreeBlock> {
        self.dynamic.free.at_least(&self.table, bytes, most).map(|index| self.free_block(index))
    }

    /// Takes a place out of a free block that holds it.
    #[inline]
    fn carve(&mut self, room: u32, offset: u64, bytes: u64) -> u32 {
        let zone = self.zone_at(offset);
        let Self { table, stable, dynamic, .. } = self;
        let index = choose(stable, dynamic, zone).carve(table, room, offset, bytes);
        self.occupy(index, bytes, zone);
        index
    }

    /// Appends to an empty list, by offset, the free blocks of the dynamic zone of at least `bytes`, and the
    /// free end whatever its size.
    pub(crate) fn holes(&self, bytes: u64, holes: &mut Vec<FreeBlock>) {
        self.dynamic.free.each_at_least(&self.table, bytes, |index| holes.push(self.free_block(index)));
        let (end, capacity) = (self.free_end(Zone::Dynamic), self.dynamic.end);
        if (1..bytes).contains(&(capacity - end)) {
            holes.push(FreeBlock::unnamed(Extent { start: end, bytes: capacity - end }));
        }
        holes.sort_unstable_by_key(|room| room.extent.start);
    }

    /// Inserts the free blocks of the stable zone of at least `bytes`, by offset, before those of the dynamic
    /// zone.
    pub(crate) fn stable_holes(&self, bytes: u64, holes: &mut Vec<FreeBlock>) {
        // A zone without bytes has no bins.
        if self.stable.end == 0 {
            return;
        }
        self.stable.free.each_at_least(&self.table, bytes, |index| holes.push(self.free_block(index)));
        holes.sort_unstable_by_key(|room| room.extent.start);
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
