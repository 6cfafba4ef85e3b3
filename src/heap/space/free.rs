//! The free blocks of a zone: the *tail*, and the others in bins.
//!
//! The tail is the block at the zone's end. It serves only requests that no other block can serve.

use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::{ASIDE, FreeBlocks, Holes, NONE, Table};
use std::iter;

/// Most blocks of one size that are compared.
const TWINS: u32 = 64;

impl FreeBlocks {
    /// The free blocks of a zone. A stable zone without bytes can have none.
    pub(super) fn new(zone: Zone, bytes: u64, shift: u32) -> Self {
        let holes = Holes::new(bytes > 0 || zone == Zone::Dynamic, shift);
        Self { tail: NONE, ring: end_of(zone), holes }
    }

    pub(super) fn clear(&mut self) {
        self.holes.clear();
        self.tail = NONE;
    }

    /// Takes `bytes` from the front of the smallest sufficient block, else of the tail. Returns `NONE` if
    /// neither fits.
    #[inline(always)]
    pub(super) fn cut_smallest(&mut self, table: &mut Table, bytes: u64) -> u32 {
        match self.holes.take_smallest(table, bytes, |_, newest| newest) {
            NONE => self.cut_tail(table, bytes),
            index => self.cut_taken(table, index, bytes),
        }
    }

    /// As [`cut_smallest`](Self::cut_smallest), but never from the tail. Of several blocks of one size the lowest is
    /// cut, so that equal requests find the same memory in any order of frees.
    pub(super) fn cut_hole(&mut self, table: &mut Table, bytes: u64) -> u32 {
        match self.holes.take_smallest(table, bytes, first_of_twins) {
            NONE => NONE,
            index => self.cut_taken(table, index, bytes),
        }
    }

    /// As [`cut_smallest`](Self::cut_smallest), but only from the tail.
    #[inline(always)]
    pub(super) fn cut_tail(&mut self, table: &mut Table, bytes: u64) -> u32 {
        let (index, record) = (self.tail, &mut table[self.tail]);
        let (offset, room) = (record.offset, record.bytes);
        if room < bytes {
            return NONE;
        }
        if room == bytes {
            self.tail = NONE;
            return index;
        }
        (record.offset, record.bytes) = (offset + bytes, room - bytes);
        table.take(offset, bytes, index)
    }

    /// Takes `bytes` from the front of a block that was removed from its bin.
    #[inline(always)]
    fn cut_taken(&mut self, table: &mut Table, index: u32, bytes: u64) -> u32 {
        let record = &mut table[index];
        let (offset, room) = (record.offset, record.bytes);
        if room == bytes {
            return index;
        }
        (record.offset, record.bytes) = (offset + bytes, room - bytes);
        self.holes.insert(table, index);
        table.take(offset, bytes, index)
    }

    /// Returns the `most` smallest free blocks of at least `bytes`, by size, and last the tail.
    #[inline]
    pub(super) fn at_least<'a>(
        &'a self,
        table: &'a Table,
        bytes: u64,
        most: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let is_enough = |index: &u32| *index != NONE && table[*index].bytes >= bytes;
        let tail = Some(self.tail).filter(is_enough);
        let mut last = NONE;
        // Each is searched for on demand, because an earlier block mostly serves.
        let in_bins = iter::from_fn(move || {
            last = match last {
                NONE => self.holes.smallest(table, bytes),
                last if table[last].twin != NONE => table[last].twin,
                last => self.holes.smallest(table, table[last].bytes.checked_add(1)?),
            };
            (last != NONE).then_some(last)
        });
        in_bins.fuse().take(most).chain(tail)
    }

    /// Calls `act` with each free block of at least `bytes`, in any order.
    pub(super) fn each_at_least(&self, table: &Table, bytes: u64, mut act: impl FnMut(u32)) {
        if self.tail != NONE && table[self.tail].bytes >= bytes {
            act(self.tail);
        }
        self.holes.each(table, bytes, act);
    }

    pub(super) fn largest(&self, table: &Table) -> u64 {
        table[self.tail].bytes.max(self.holes.largest(table))
    }

    /// Removes the block. The caller sets its new state.
    #[inline]
    pub(super) fn remove(&mut self, table: &mut Table, index: u32) {
        if index == self.tail {
            self.tail = NONE;
        } else {
            self.holes.remove(table, index);
        }
    }

    /// Changes the size of a free block. Its neighbours may have changed.
    #[inline]
    pub(super) fn resize(&mut self, table: &mut Table, index: u32, bytes: u64) {
        self.remove(table, index);
        table[index].bytes = bytes;
        self.insert(table, index);
    }

    /// Keeps a free block aside as the tail, or in its bin.
    #[inline]
    pub(super) fn insert(&mut self, table: &mut Table, index: u32) {
        if table[index].after == self.ring {
            self.tail = index;
            table[index].set_links(ASIDE, [NONE; 2], NONE);
        } else {
            self.holes.insert(table, index);
        }
    }
}

/// The block with the lowest offset among those of the size of `head`, of at most [`TWINS`].
fn first_of_twins(table: &Table, head: u32) -> u32 {
    let (mut first, mut next) = (head, table[head].twin);
    for _ in 1..TWINS {
        if next == NONE {
            break;
        }
        if table[next].offset < table[first].offset {
            first = next;
        }
        next = table[next].twin;
    }
    first
}
