//! The records of an arena's blocks, one for each block, live or free: a flat array with vacant slots.
//!
//! A record links to its neighbours in address order. The first four slots are no blocks:
//!
//! * Slot 0 is the target of absent links. Slot 3 is the parent of roots ([`ROOT`](super::trie::ROOT)). Links
//!   written to either are ignored, so that writing needs no branch.
//! * Slots 1 and 2 close the lists of the stable and the dynamic zone to rings. So every neighbour exists,
//!   and no block merges beyond its zone.

use super::zone::Zone;
use crate::heap::space::{NONE, Record, Table};
use std::ops::{Index, IndexMut};

/// Marks the back link of a twin. The rest of the link is the slot of the block in front.
pub(super) const TWIN: u32 = 1 << 31;

/// Slots at the front that hold no blocks.
const NO_BLOCKS: usize = 4;

impl Table {
    pub(super) fn new() -> Self {
        let mut table = Self { records: Vec::new(), vacant: NONE };
        table.clear();
        table
    }

    /// Forgets all blocks and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        let ends = (0..NO_BLOCKS as u32).map(|end| Record { before: end, after: end, ..Record::NOTHING });
        self.records.extend(ends);
        self.vacant = NONE;
    }

    /// Whether no further block can have a number.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.records.len() > (TWIN - 4) as usize
    }

    #[cold]
    fn add(&mut self) -> u32 {
        let slots = self.records.len();
        if slots == self.records.capacity() {
            self.records.reserve_exact((slots / 6).max(16));
        }
        self.records.push(Record::NOTHING);
        slots as u32
    }

    /// Takes a slot for `offset` and `bytes`, linked before `after`; no block yet.
    #[inline(always)]
    pub(super) fn take(&mut self, offset: u64, bytes: u64, after: u32) -> u32 {
        let before = self[after].before;
        let index = if self.vacant == NONE { self.add() } else { self.vacant };
        let record = &mut self[index];
        let vacant = record.after;
        (record.offset, record.bytes) = (offset, bytes);
        (record.before, record.after) = (before, after);
        self.vacant = vacant;
        self[before].after = index;
        self[after].before = index;
        index
    }

    /// Unlinks a record and makes its slot vacant.
    #[inline]
    pub(super) fn recycle(&mut self, index: u32) {
        let (before, after) = (self[index].before, self[index].after);
        self[before].after = after;
        self[after].before = before;
        let vacant = self.vacant;
        let record = &mut self[index];
        record.vanish();
        record.after = vacant;
        self.vacant = index;
    }

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
}

/// The slot that closes a zone's ring.
#[inline]
pub(super) fn end_of(zone: Zone) -> u32 {
    match zone {
        Zone::Stable => 1,
        Zone::Dynamic => 2,
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
