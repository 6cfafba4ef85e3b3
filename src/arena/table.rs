//! The records of an arena's blocks, one for each block, live or free: a flat array with vacant slots.
//!
//! A record links to its neighbours in address order. Slots 0 and 1 are no blocks: they close the lists of the stable and
//! of the dynamic region to rings, so that every neighbour exists and no block merges beyond its region. That also makes
//! 0 free to mean "none" among the links of free blocks.

use super::error::ArenaError;
use super::layout::Region;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// No link.
pub(super) const NONE: u32 = 0;

/// One block's record. Kept at 40 bytes: with the table's growth by a sixth that is under 48 for each block.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The neighbour in front.
    pub(super) before: u32,
    /// The neighbour behind.
    pub(super) after: u32,
    pub(super) role: Role,
}

const _: () = assert!(size_of::<Record>() == 40);

#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Free(Links),
    Taken(Tag),
}

/// The place of a free block among those of its bin; `free.rs` says how.
#[derive(Debug, Clone, Copy)]
pub(super) struct Links {
    pub(super) children: [u32; 2],
    pub(super) twin: u32,
    /// Not 0, so that the enum needs no byte of its own.
    pub(super) back: NonZeroU32,
}

/// What is known of a block that is not free. The serial is in halves so that it fits beside the enum's niche.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) serial: [u32; 2],
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
    pub(super) fn new(serial: u64, alignment: u8) -> Self {
        Self { serial: [serial as u32, (serial >> 32) as u32], pins: 0, alignment, state: State::Live }
    }

    /// Of what is not live.
    pub(super) fn nameless(state: State) -> Self {
        Self { serial: [0; 2], pins: 0, alignment: 0, state }
    }

    #[inline]
    pub(super) fn serial(&self) -> u64 {
        u64::from(self.serial[0]) | u64::from(self.serial[1]) << 32
    }
}

impl Record {
    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        matches!(self.role, Role::Free(_))
    }

    /// The state of what is not free.
    #[inline]
    pub(super) fn state(&self) -> Option<State> {
        match self.role {
            Role::Taken(tag) => Some(tag.state),
            Role::Free(_) => None,
        }
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
    pub(super) fn new() -> Self {
        let mut table = Self { records: Vec::new(), vacant: NONE, vacancies: 0 };
        table.clear();
        table
    }

    /// Forgets all blocks and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        self.records.extend([Region::Stable, Region::Dynamic].map(|region| Record {
            offset: 0,
            bytes: 0,
            before: end_of(region),
            after: end_of(region),
            role: Role::Taken(Tag::nameless(State::NoBlock)),
        }));
        (self.vacant, self.vacancies) = (NONE, 0);
    }

    /// Makes sure that the next `count` calls of [`take`](Self::take) have a slot.
    ///
    /// # Errors
    /// There are 2³² − 2 blocks, or the host has no memory.
    #[inline]
    pub(super) fn reserve(&mut self, count: u32) -> Result<(), ArenaError> {
        let spare = self.vacancies as usize + (self.records.capacity() - self.records.len());
        if spare >= count as usize { Ok(()) } else { self.grow(count) }
    }

    #[cold]
    fn grow(&mut self, count: u32) -> Result<(), ArenaError> {
        let slots = self.records.len() as u64;
        let more = (slots / 6).max(u64::from(count)).max(16).min(u64::from(u32::MAX) - slots);
        if more < u64::from(count) {
            return Err(ArenaError::TooManyBlocks);
        }
        self.records.try_reserve_exact(more as usize).map_err(|_| ArenaError::HostMemory)
    }

    /// A record for `offset` and `bytes`, linked in front of `after`. Call [`reserve`](Self::reserve) first.
    #[inline]
    pub(super) fn take(&mut self, offset: u64, bytes: u64, role: Role, after: u32) -> u32 {
        let before = self[after].before;
        let record = Record { offset, bytes, before, after, role };
        let index = if self.vacant == NONE {
            self.records.push(record);
            (self.records.len() - 1) as u32
        } else {
            let index = self.vacant;
            self.vacant = self[index].after;
            self.vacancies -= 1;
            self[index] = record;
            index
        };
        self[before].after = index;
        self[after].before = index;
        index
    }

    /// Unlinks a record and makes its slot vacant.
    #[inline]
    pub(super) fn give_back(&mut self, index: u32) {
        let Record { before, after, .. } = self[index];
        self[before].after = after;
        self[after].before = before;
        let vacant = self.vacant;
        let record = &mut self[index];
        record.role = Role::Taken(Tag::nameless(State::NoBlock));
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
        (self.records.len() - vacancies - 2, vacancies)
    }
}

/// The slot that closes a region's ring.
#[inline]
pub(super) fn end_of(region: Region) -> u32 {
    match region {
        Region::Stable => 0,
        Region::Dynamic => 1,
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
        let mut table = Table::new();
        for _ in 0..100_000 {
            table.reserve(1)?;
            table.take(0, 1, Role::Taken(Tag::new(1, 0)), end_of(Region::Dynamic));
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
