//! The records of an arena's blocks, one for each block, live or free: a flat array with vacant slots.
//!
//! A record links to its neighbours in address order. The first four slots are no blocks:
//!
//! * Slot 0 is the target of absent links. Slot 3 is the parent of roots ([`ROOT`](super::trie::ROOT)). Links
//!   written to either are ignored, so that writing needs no branch.
//! * Slots 1 and 2 close the lists of the stable and the dynamic zone to rings. So every neighbour exists,
//!   and no block merges beyond its zone.

use super::error::ArenaError;
use super::record::{NONE, Record};
use super::zone::Zone;
use std::ops::{Index, IndexMut};

/// Marks the back link of a twin. The rest of the link is the slot of the block in front.
pub(super) const TWIN: u32 = 1 << 31;

/// Slots at the front that hold no blocks.
const NO_BLOCKS: usize = 4;

/// Slots that are added when none is vacant.
const FRESH: u32 = 16;

#[derive(Debug)]
pub(super) struct Table {
    records: Vec<Record>,
    /// The first vacant slot; `after` leads to the next.
    vacant: u32,
    vacancies: u32,
    /// Vacant slots that [`reserve`](Self::reserve) leaves for a promise.
    promised: u32,
}

impl Table {
    /// # Errors
    /// [`ArenaError::HostMemory`].
    pub(super) fn new() -> Result<Self, ArenaError> {
        let mut table = Self { records: Vec::new(), vacant: NONE, vacancies: 0, promised: 0 };
        table.records.try_reserve_exact(NO_BLOCKS + FRESH as usize).map_err(|_| ArenaError::HostMemory)?;
        table.clear();
        Ok(table)
    }

    /// Forgets all blocks and keeps the memory, with a few vacant slots.
    pub(super) fn clear(&mut self) {
        self.records.clear();
        for end in 0..NO_BLOCKS as u32 {
            self.records.push(Record { before: end, after: end, ..Record::NOTHING });
        }
        (self.vacant, self.vacancies, self.promised) = (NONE, 0, 0);
        self.add_slots();
    }

    fn add_slots(&mut self) {
        for index in (self.records.len() as u32..).take(FRESH as usize) {
            self.records.push(Record { after: self.vacant, ..Record::NOTHING });
            self.vacant = index;
        }
        self.vacancies += FRESH;
    }

    /// Ensures slots for the next `count` calls of [`take`](Self::take), at most [`FRESH`].
    ///
    /// # Errors
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`].
    #[inline]
    pub(super) fn reserve(&mut self, count: u32) -> Result<(), ArenaError> {
        if self.vacancies >= count + self.promised { Ok(()) } else { self.grow() }
    }

    /// As [`reserve`](Self::reserve), for any count.
    pub(super) fn reserve_many(&mut self, count: u32) -> Result<(), ArenaError> {
        while self.vacancies < count + self.promised {
            self.grow()?;
        }
        Ok(())
    }

    /// Keeps slots for `count` calls of [`take`](Self::take), whatever else is taken, until the promise is
    /// [ended](Self::end_promise). There is one promise at a time.
    pub(super) fn promise(&mut self, count: u32) -> Result<(), ArenaError> {
        self.end_promise();
        self.reserve_many(count)?;
        self.promised = count;
        Ok(())
    }

    /// Makes the promised slots available to the next calls of [`take`](Self::take).
    pub(super) fn end_promise(&mut self) {
        self.promised = 0;
    }

    /// Adds vacant slots, so that taking a new slot is the same as reusing one.
    #[cold]
    fn grow(&mut self) -> Result<(), ArenaError> {
        let slots = self.records.len();
        if slots > (TWIN - FRESH) as usize {
            return Err(ArenaError::TooManyBlocks);
        }
        if self.records.capacity() - slots < FRESH as usize {
            let more = (slots / 6).max(FRESH as usize);
            self.records.try_reserve_exact(more).map_err(|_| ArenaError::HostMemory)?;
        }
        self.add_slots();
        Ok(())
    }

    /// Takes a [reserved](Self::reserve) slot for `offset` and `bytes`, linked before `after`; no block yet.
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
    pub(super) fn recycle(&mut self, index: u32) {
        let (before, after) = (self[index].before, self[index].after);
        self[before].after = after;
        self[after].before = before;
        let vacant = self.vacant;
        let record = &mut self[index];
        record.vanish();
        record.after = vacant;
        self.vacant = index;
        self.vacancies += 1;
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

    pub(super) fn memory(&self) -> usize {
        self.records.capacity() * size_of::<Record>()
    }

    pub(super) fn check_vacant(&self) -> usize {
        let next = |&index: &u32| (index != NONE).then_some(index);
        std::iter::successors(next(&self.vacant), |&index| next(&self[index].after)).count()
    }

    /// Slots that hold a record, and vacant slots.
    pub(super) fn slots(&self) -> (usize, usize) {
        let vacancies = self.vacancies as usize;
        (self.records.len() - vacancies - NO_BLOCKS, vacancies)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_grows_by_a_sixth() -> Result<(), ArenaError> {
        let mut table = Table::new()?;
        for _ in 0..100_000 {
            table.reserve(1)?;
            table.take(0, 1, end_of(Zone::Dynamic));
            let blocks = table.slots().0;
            assert!(
                blocks < 200 || table.memory() <= 48 * blocks,
                "{} bytes, {blocks} blocks",
                table.memory()
            );
        }
        Ok(())
    }

    #[test]
    fn promised_slots_are_left_whatever_else_is_taken() -> Result<(), ArenaError> {
        let mut table = Table::new()?;
        table.promise(40)?;
        for _ in 0..100 {
            table.reserve(1)?;
            table.take(0, 1, end_of(Zone::Dynamic));
            assert!(table.vacancies >= 40);
        }
        table.end_promise();
        table.reserve(16)?;
        assert_eq!(table.slots(), (100, table.check_vacant()));
        Ok(())
    }
}
