//! Blocks where the caller wants them: for whoever has more than one way to make a range of bytes, and looks
//! which of them a request is to have.

#[cfg(test)]
mod tests;

use super::block::BlockId;
use super::error::ArenaError;
use super::free::FreeBlocks;
use super::operations::Arena;
use super::record::{NONE, Record, State, Tag};
use super::space::{Space, choose};
use super::table::{Table, end_of};
use super::zone::Zone;

/// When something was looked up in an arena in which nothing moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moment {
    /// Blocks named before.
    named: u64,
    /// How often something of the dynamic zone had become free.
    changes: u64,
}

/// A free block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreeBlock {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Its record, if that is known.
    index: u32,
}

impl FreeBlock {
    /// Free bytes, or such as will be, whose record is not known: it is searched for.
    pub(crate) fn unnamed(offset: u64, bytes: u64) -> Self {
        Self { offset, bytes, index: NONE }
    }
}

impl Moment {
    /// Whether nothing of the dynamic zone became free in between.
    pub(crate) fn is_as_free(self, other: Self) -> bool {
        self.changes == other.changes
    }
}

impl Arena {
    /// The same as before if the same is free in the dynamic zone.
    #[inline]
    pub(crate) fn moment(&self) -> Moment {
        Moment { named: self.serial(), changes: self.dynamic.changes }
    }

    /// As [`allocate`](Self::allocate) in the dynamic zone, from a hole alone: never from the free end.
    /// Nobody is told why there is none, for whoever asks this has another way.
    #[inline]
    pub(crate) fn allocate_in_hole(&mut self, bytes: u64) -> Option<BlockId> {
        let index = self.place_by(bytes, FreeBlocks::cut_hole);
        self.newest(index)
    }

    /// As [`allocate_in_hole`](Self::allocate_in_hole), from the free end alone, whatever the holes have.
    #[inline]
    pub(crate) fn allocate_at_end(&mut self, bytes: u64) -> Option<BlockId> {
        let index = self.place_by(bytes, FreeBlocks::cut_tail);
        self.newest(index)
    }

    /// `bytes` at `offset`, both multiples of the alignment, if all of it is free. Looks at the zone's free
    /// blocks that are as large, smallest first.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) fn allocate_at(&mut self, offset: u64, bytes: u64) -> Result<BlockId, ArenaError> {
        let index = self.place_at(offset, bytes);
        self.named(index, (bytes, 1, Zone::Dynamic))
    }

    /// As [`allocate_at`](Self::allocate_at), and the place is neither live nor free, but [held](Self::held),
    /// until it is [let in](Self::let_in) or [put back](Self::put_back). No figure of live bytes ever had it.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) fn hold_at(&mut self, offset: u64, bytes: u64) -> Result<BlockId, ArenaError> {
        let peak = self.peak;
        let block = self.allocate_at(offset, bytes)?;
        self.peak = peak;
        self.hold_live(block, offset, bytes);
        Ok(block)
    }

    /// A live block that its owner freed is neither live nor free from now on, but [held](Self::held), until
    /// it is [put back](Self::put_back).
    pub(crate) fn hold_freed(&mut self, block: BlockId) {
        let is_idle =
            self.table.get(block.index()).is_some_and(|record| record.is_live_and_idle(block.serial()));
        if is_idle {
            let (offset, bytes) = self.extent(block);
            self.hold_live(block, offset, bytes);
        }
    }

    fn hold_live(&mut self, block: BlockId, offset: u64, bytes: u64) {
        let space = self.space_at(offset);
        space.used -= bytes;
        space.live -= 1;
        space.held += bytes;
        self.tag(block, State::Held);
    }

    /// What was held is live from now on.
    pub(crate) fn let_in(&mut self, block: BlockId) {
        if self.is_held(block) {
            self.take_in(block);
            self.peak = self.peak.max(self.used());
        }
    }

    /// What was held is free from now on.
    pub(crate) fn put_back(&mut self, block: BlockId) {
        if self.is_held(block) {
            self.take_in(block);
            // It is live, and neither moves nor is pinned.
            let _ = self.free(block);
        }
    }

    /// Sees to it that so many more blocks, live or free, can come to be.
    ///
    /// # Errors
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`].
    pub(crate) fn reserve_blocks(&mut self, count: usize) -> Result<(), ArenaError> {
        #[cfg(test)]
        if self.host_is_full {
            return Err(ArenaError::HostMemory);
        }
        self.table.reserve_many(u32::try_from(count).map_err(|_| ArenaError::TooManyBlocks)?)
    }

    /// Whether a live block would be a hole of its own if it were free: nothing free is before it, and behind
    /// it is something that is not, nor the end of its zone.
    #[inline]
    pub(crate) fn is_between_live(&self, live: BlockId) -> bool {
        let Record { before, after, .. } = self.table[live.index()];
        let is_end = [Zone::Stable, Zone::Dynamic].map(end_of).contains(&after);
        !self.table[before].is_free() && !self.table[after].is_free() && !is_end
    }

    fn is_held(&self, block: BlockId) -> bool {
        let record = self.table.get(block.index()).filter(|record| record.serial() == block.serial());
        record.is_some_and(|record| record.state() == Some(State::Held))
    }

    fn take_in(&mut self, block: BlockId) {
        let (offset, bytes) = self.extent(block);
        let space = self.space_at(offset);
        space.held -= bytes;
        space.used += bytes;
        space.live += 1;
        self.tag(block, State::Live);
    }

    fn space_at(&mut self, offset: u64) -> &mut Space {
        let zone = self.zone_at(offset);
        choose(&mut self.stable, &mut self.dynamic, zone)
    }

    fn tag(&mut self, block: BlockId, state: State) {
        let record = &mut self.table[block.index()];
        if let Some(tag) = record.tag() {
            record.set_tag(Tag { state, ..tag });
        }
    }

    /// A new block of the dynamic zone, cut in that way.
    #[inline]
    fn place_by(&mut self, bytes: u64, cut: impl FnOnce(&mut FreeBlocks, &mut Table, u64) -> u32) -> u32 {
        let Some(size) = self.round(bytes) else { return NONE };
        if self.table.reserve(1).is_err() {
            return NONE;
        }
        let index = cut(&mut self.dynamic.free, &mut self.table, size);
        if index != NONE {
            self.occupy(index, size, Zone::Dynamic, self.shift);
        }
        index
    }

    fn place_at(&mut self, offset: u64, bytes: u64) -> u32 {
        let below = self.alignment() - 1;
        let Some(end) = offset.checked_add(bytes) else { return NONE };
        if bytes == 0 || (offset | bytes) & below != 0 || self.table.reserve(2).is_err() {
            return NONE;
        }
        let zone = self.zone_at(offset);
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, zone);
        let holds = |&index: &u32| table[index].offset <= offset && end <= table[index].end();
        // Mostly what is asked for by its place is at the end.
        let of = |most| space.free.at_least(table, bytes, most).find(holds);
        let Some(hole) = of(0).or_else(|| of(usize::MAX)) else { return NONE };
        let index = space.carve(table, hole, offset, bytes);
        self.occupy(index, bytes, zone, self.shift);
        index
    }

    /// Free blocks of the dynamic zone of at least `bytes`: the smallest so many, the smaller first, and last
    /// its free end.
    pub(crate) fn fitting_blocks(&self, bytes: u64, most: usize) -> impl Iterator<Item = FreeBlock> {
        let (table, free) = (&self.table, &self.dynamic.free);
        let room = |index: u32| FreeBlock { offset: table[index].offset, bytes: table[index].bytes, index };
        free.at_least(table, bytes, most).map(room)
    }

    /// As [`allocate_at`](Self::allocate_at), without a search if it is in that [block](Self::fitting_blocks)
    /// still.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate).
    pub(crate) fn allocate_in_free(
        &mut self,
        room: FreeBlock,
        offset: u64,
        bytes: u64,
    ) -> Result<BlockId, ArenaError> {
        self.table.reserve(2)?;
        let is_there = self.table.get(room.index).is_some_and(|record| {
            record.is_free() && record.offset <= offset && offset.saturating_add(bytes) <= record.end()
        });
        let is_whole = bytes > 0 && (offset | bytes) & (self.alignment() - 1) == 0;
        if !is_there || !is_whole || self.zone_at(offset) != Zone::Dynamic {
            return self.allocate_at(offset, bytes);
        }
        let index = self.dynamic.carve(&mut self.table, room.index, offset, bytes);
        self.occupy(index, bytes, Zone::Dynamic, self.shift);
        self.named(index, (bytes, 1, Zone::Dynamic))
    }

    /// The free blocks of the dynamic zone of at least `bytes`, and its free end whatever that has, by
    /// offset. To a list that is empty.
    pub(crate) fn holes(&self, bytes: u64, holes: &mut Vec<FreeBlock>) {
        holes.extend(self.fitting_blocks(bytes, usize::MAX));
        let (end, capacity) = (self.free_end(Zone::Dynamic), self.dynamic.end);
        if (1..bytes).contains(&(capacity - end)) {
            holes.push(FreeBlock::unnamed(end, capacity - end));
        }
        holes.sort_unstable_by_key(|room| room.offset);
    }

    /// The free blocks of the stable zone of at least `bytes`, by offset, in front of a list of such blocks
    /// of the dynamic one.
    pub(crate) fn stable_holes(&self, bytes: u64, holes: &mut Vec<FreeBlock>) {
        // A zone without bytes has no bins.
        if self.stable.end == 0 {
            return;
        }
        let room = |index: u32| FreeBlock {
            offset: self.table[index].offset,
            bytes: self.table[index].bytes,
            index,
        };
        holes.extend(self.stable.free.at_least(&self.table, bytes, usize::MAX).map(room));
        holes.sort_unstable_by_key(|room| room.offset);
    }

    /// Where the free end of a zone starts: its end if there is none.
    pub(crate) fn free_end(&self, zone: Zone) -> u64 {
        let last = &self.table[self.table[end_of(zone)].before];
        if last.is_free() { last.offset } else { self.end(zone) }
    }

    /// Where a zone ends.
    pub(crate) fn end(&self, zone: Zone) -> u64 {
        self.space(zone).end
    }
}
