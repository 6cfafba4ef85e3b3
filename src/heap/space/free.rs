//! The free blocks of a zone: the *tail*, and the others in bins.
//!
//! The tail is the block at the zone's end. It serves only requests that no other block can serve.

use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::{ASIDE, FreeBlocks, Holes, NONE, Record, Table};
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

    /// Takes `bytes` from the front of a free block that holds them. The free block's record remains that of the rest.
    #[inline(always)]
    pub(super) fn cut(&mut self, table: &mut Table, index: u32, bytes: u64) -> u32 {
        let Record { offset, bytes: room, .. } = table[index];
        if index == self.tail {
            if room == bytes {
                self.tail = NONE;
                return index;
            }
        } else {
            self.holes.remove(table, index);
            if room == bytes {
                return index;
            }
            table[index].bytes = room - bytes;
            self.holes.insert(table, index);
        }
        (table[index].offset, table[index].bytes) = (offset + bytes, room - bytes);
        table.take(offset, bytes, index)
    }

    /// The smallest block of at least `bytes` in the bins, or `NONE`. Of several blocks of one size the lowest, so that
    /// equal requests find the same memory in any order of frees.
    #[inline(always)]
    pub(super) fn lowest_hole(&self, table: &Table, bytes: u64) -> u32 {
        match self.holes.smallest(table, bytes) {
            NONE => NONE,
            head => first_of_twins(table, head),
        }
    }

    /// The smallest sufficient block, else the tail, or `NONE`.
    #[inline(always)]
    pub(super) fn smallest(&self, table: &Table, bytes: u64) -> u32 {
        match self.holes.smallest(table, bytes) {
            NONE => self.tail_of(table, bytes),
            index => index,
        }
    }

    /// The tail, if it has `bytes`, or `NONE`.
    #[inline(always)]
    pub(super) fn tail_of(&self, table: &Table, bytes: u64) -> u32 {
        if table[self.tail].bytes >= bytes { self.tail } else { NONE }
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
#[inline]
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
