//! The records of an arena's blocks, one for each block, live or free: a flat array with vacant slots.
//!
//! A record links to its neighbours in address order. The first three slots are no blocks. Slot 0 is where links that are
//! none lead: what is written there does not matter, so that writing needs no branch. Slots 1 and 2 close the lists of the
//! stable and of the dynamic region to rings, so that every neighbour exists and no block merges beyond its region.

use super::error::ArenaError;
use super::layout::Region;
use std::ops::{Index, IndexMut};

/// No link.
pub(super) const NONE: u32 = 0;

/// Slots at the front that are no blocks.
const NO_BLOCKS: usize = 3;

/// How many slots at once become vacant when none are.
const FRESH: u32 = 16;

/// One block's record. Kept at 40 bytes: with the table's growth by a sixth that is under 48 for each block. So the last
/// four fields have two meanings, told by the first of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The neighbour in front.
    pub(super) before: u32,
    /// The neighbour behind.
    pub(super) after: u32,
    /// Free: where the block hangs among those of its bin, as `free.rs` says. Not free: 0.
    pub(super) back: u32,
    /// Free: the children. Not free: the halves of the serial.
    pub(super) children: [u32; 2],
    /// Free: the next block of the same size. Not free: the tag.
    pub(super) twin: u32,
}

const _: () = assert!(size_of::<Record>() == 40);

/// What else is known of a block that is not free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) pins: u16,
    /// What its offset is a multiple of, as a power of two.
    pub(super) alignment: u8,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Live,
    /// A move has begun; in front lies what it reserved.
    Moving,
    /// Freed while moving; goes when the move ends.
    Doomed,
    /// The destination of a move, and was free.
    Reserved,
    /// A copy may still read or write it; may be the destination of a move as well.
    Vacated,
    /// Not in use, or the end of a region's ring.
    NoBlock,
}

impl Tag {
    #[inline]
    fn pack(self) -> u32 {
        u32::from(self.pins) | u32::from(self.alignment) << 16 | (self.state as u32) << 24
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        let state = match word >> 24 {
            0 => State::Live,
            1 => State::Moving,
            2 => State::Doomed,
            3 => State::Reserved,
            4 => State::Vacated,
            _ => State::NoBlock,
        };
        Self { pins: word as u16, alignment: (word >> 16) as u8, state }
    }
}

impl Record {
    const NOTHING: Self = Self {
        offset: 0,
        bytes: 0,
        before: NONE,
        after: NONE,
        back: NONE,
        children: [NONE; 2],
        twin: (State::NoBlock as u32) << 24,
    };

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.back != NONE
    }

    /// Of what is not free.
    #[inline]
    pub(super) fn serial(&self) -> u64 {
        u64::from(self.children[0]) | u64::from(self.children[1]) << 32
    }

    /// Of what is not free.
    #[inline]
    pub(super) fn tag(&self) -> Option<Tag> {
        (!self.is_free()).then(|| Tag::unpack(self.twin))
    }

    /// The state of what is not free.
    #[inline]
    pub(super) fn state(&self) -> Option<State> {
        self.tag().map(|tag| tag.state)
    }

    /// Whether it is a live block of that name that is neither moving nor pinned.
    #[inline]
    pub(super) fn is_live_and_idle(&self, serial: u64) -> bool {
        self.back == NONE && self.twin & 0xff00_ffff == 0 && self.serial() == serial
    }

    /// Makes it a free block, in that place among the others.
    #[inline]
    pub(super) fn set_links(&mut self, back: u32, children: [u32; 2], twin: u32) {
        (self.back, self.children, self.twin) = (back, children, twin);
    }

    /// Makes it a live block.
    #[inline]
    pub(super) fn go_live(&mut self, serial: u64, alignment: u8) {
        self.back = NONE;
        self.children = [serial as u32, (serial >> 32) as u32];
        self.twin = u32::from(alignment) << 16;
    }

    /// Changes the tag of a live block.
    pub(super) fn set_tag(&mut self, tag: Tag) {
        self.twin = tag.pack();
    }

    /// Makes it something without a name.
    #[inline]
    pub(super) fn set_nameless(&mut self, state: State) {
        self.back = NONE;
        self.children = [NONE; 2];
        self.twin = (state as u32) << 24;
    }
}

#[derive(Debug)]
pub(super) struct Table {
    records: Vec<Record>,
    /// The first vacant slot; `after` leads to the next.
    vacant: u32,
    /// How many slots are vacant.
    vacancies: u32,
}

impl Table {
    /// # Errors
    /// The host has no memory.
    pub(super) fn new() -> Result<Self, ArenaError> {
        let mut table = Self { records: Vec::new(), vacant: NONE, vacancies: 0 };
        table.records.try_reserve_exact(NO_BLOCKS + FRESH as usize).map_err(|_| ArenaError::HostMemory)?;
        table.clear();
        Ok(table)
    }

    /// Forgets all blocks and keeps the memory. A few slots are vacant.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        for end in 0..NO_BLOCKS as u32 {
            self.records.push(Record { before: end, after: end, ..Record::NOTHING });
        }
        (self.vacant, self.vacancies) = (NONE, 0);
        self.add_slots();
    }

    fn add_slots(&mut self) {
        for index in (self.records.len() as u32..).take(FRESH as usize) {
            self.records.push(Record { after: self.vacant, ..Record::NOTHING });
            self.vacant = index;
        }
        self.vacancies += FRESH;
    }

    /// Makes sure that the next `count` calls of [`take`](Self::take) have a slot; at most [`FRESH`].
    ///
    /// # Errors
    /// There are no more indices, or the host has no memory.
    #[inline]
    pub(super) fn reserve(&mut self, count: u32) -> Result<(), ArenaError> {
        if self.vacancies >= count { Ok(()) } else { self.grow() }
    }

    /// Makes fresh slots vacant, so that taking one is the same as taking one that was in use.
    #[cold]
    fn grow(&mut self) -> Result<(), ArenaError> {
        let slots = self.records.len();
        if slots > (u32::MAX - FRESH) as usize {
            return Err(ArenaError::TooManyBlocks);
        }
        if self.records.capacity() - slots < FRESH as usize {
            let more = (slots / 6).max(FRESH as usize);
            self.records.try_reserve_exact(more).map_err(|_| ArenaError::HostMemory)?;
        }
        self.add_slots();
        Ok(())
    }

    /// A record for `offset` and `bytes`, linked in front of `after`, that is no block yet. Call
    /// [`reserve`](Self::reserve) first.
    #[inline]
    pub(super) fn take(&mut self, offset: u64, bytes: u64, after: u32) -> u32 {
        let index = self.vacant;
        let before = self[after].before;
        let record = &mut self[index];
        let vacant = record.after;
        (record.offset, record.bytes) = (offset, bytes);
        (record.before, record.after) = (before, after);
        self.vacant = vacant;
        self.vacancies -= 1;
        self[before].after = index;
        self[after].before = index;
        index
    }

    /// Unlinks a record and makes its slot vacant.
    #[inline]
    pub(super) fn give_back(&mut self, index: u32) {
        let (before, after) = (self[index].before, self[index].after);
        self[before].after = after;
        self[after].before = before;
        let vacant = self.vacant;
        let record = &mut self[index];
        record.set_nameless(State::NoBlock);
        record.after = vacant;
        self.vacant = index;
        self.vacancies += 1;
    }

    /// Exchanges a record with its neighbour behind.
    pub(super) fn swap_with_next(&mut self, index: u32) {
        let Record { before, after, .. } = self[index];
        let beyond = self[after].after;
        self[before].after = after;
        self[after].before = before;
        self[after].after = index;
        self[index].before = after;
        self[index].after = beyond;
        self[beyond].before = index;
    }

    /// The record of a slot that may not exist.
    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&Record> {
        self.records.get(index as usize)
    }

    /// Bytes of host memory behind the table.
    pub(super) fn memory(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }

    /// How many slots the list of vacant ones has.
    pub(super) fn check_vacant(&self) -> usize {
        let next = |&index: &u32| (index != NONE).then_some(index);
        std::iter::successors(next(&self.vacant), |&index| next(&self[index].after)).count()
    }

    /// Slots that hold a record, and those that do not.
    pub(super) fn slots(&self) -> (usize, usize) {
        let vacancies = self.vacancies as usize;
        (self.records.len() - vacancies - NO_BLOCKS, vacancies)
    }
}

/// The slot that closes a region's ring.
#[inline]
pub(super) fn end_of(region: Region) -> u32 {
    match region {
        Region::Stable => 1,
        Region::Dynamic => 2,
    }
}

impl Index<u32> for Table {
    type Output = Record;

    #[inline]
    fn index(&self, index: u32) -> &Record {
        &self.records[index as usize]
    }
}

impl IndexMut<u32> for Table {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Record {
        &mut self.records[index as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_grows_by_a_sixth() -> Result<(), ArenaError> {
        let mut table = Table::new()?;
        for _ in 0..100_000 {
            table.reserve(1)?;
            table.take(0, 1, end_of(Region::Dynamic));
            let blocks = table.slots().0;
            assert!(
                blocks < 200 || table.memory() <= 48 * blocks,
                "{} bytes, {blocks} blocks",
                table.memory()
            );
        }
        Ok(())
    }
}
