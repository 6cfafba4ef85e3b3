//! The free blocks of a zone: one *in hand*, the *tail*, and the others in bins.
//!
//! The block in hand results from freeing the newest live block. A program that frees in LIFO order cuts its
//! next block from it and merges it back, without access to the bins. It is chosen like any other block: if
//! it is the smallest sufficient one. It moves to its bin when another block replaces it, or when it does not
//! serve a request. It saves half the instructions of such a pair, and costs programs that free in another
//! order at most a few percent (`docs/src/performance.md`, "The block in hand").
//!
//! The tail is the block at the zone's end. It serves only requests that no other block can serve.

use super::holes::Holes;
use super::record::{ASIDE, NONE, Record};
use super::table::{Table, end_of};
use super::zone::Zone;
use std::iter;

/// Blocks that may not fit an alignment above the arena's, to try before a block that must fit.
const PROBES: u32 = 16;

/// Most blocks of one size that are compared.
const TWINS: u32 = 64;

#[derive(Debug)]
pub(super) struct FreeBlocks {
    /// The free block in no bin that is not the tail, if any.
    hand: u32,
    /// The free block at the zone's end, if any.
    tail: u32,
    /// The slot that closes the zone's ring.
    ring: u32,
    pub(super) count: u32,
    holes: Holes,
}

impl FreeBlocks {
    /// The free blocks of a zone. A stable zone without bytes can have none.
    pub(super) fn new(zone: Zone, bytes: u64, shift: u32) -> Self {
        let holes = Holes::new(bytes > 0 || zone == Zone::Dynamic, shift);
        Self { hand: NONE, tail: NONE, ring: end_of(zone), count: 0, holes }
    }

    pub(super) fn clear(&mut self) {
        self.holes.clear();
        (self.hand, self.tail, self.count) = (NONE, NONE, 0);
    }

    pub(super) fn memory(&self) -> usize {
        self.holes.memory()
    }

    /// Takes `bytes` from the front of the smallest sufficient block, else of the tail. Returns `NONE` if
    /// neither fits. Requires a reserved record.
    #[inline(always)]
    pub(super) fn cut_smallest(&mut self, table: &mut Table, bytes: u64) -> u32 {
        if self.hand == NONE {
            let index = self.holes.take_smallest(table, bytes, |_, newest| newest);
            return if index == NONE {
                self.cut_tail(table, bytes)
            } else {
                self.cut_taken(table, index, bytes)
            };
        }
        match self.cut_by_hand(table, bytes) {
            NONE => self.cut_tail(table, bytes),
            index => index,
        }
    }

    /// As [`cut_smallest`](Self::cut_smallest), but never from the tail. Of several blocks of one size the lowest is
    /// cut, so that equal requests find the same memory in any order of frees.
    pub(super) fn cut_hole(&mut self, table: &mut Table, bytes: u64) -> u32 {
        self.put_away(table);
        match self.holes.take_smallest(table, bytes, first_of_twins) {
            NONE => NONE,
            index => self.cut_taken(table, index, bytes),
        }
    }

    /// As [`cut_smallest`](Self::cut_smallest), but only from the tail.
    #[inline(always)]
    pub(super) fn cut_tail(&mut self, table: &mut Table, bytes: u64) -> u32 {
        if table[self.tail].bytes < bytes { NONE } else { self.cut_aside(table, self.tail, bytes) }
    }

    /// As [`cut_hole`](Self::cut_hole), if there is a block in hand.
    #[inline(always)]
    fn cut_by_hand(&mut self, table: &mut Table, bytes: u64) -> u32 {
        if self.holes.none_between(bytes, table[self.hand].bytes) {
            self.cut_aside(table, self.hand, bytes)
        } else {
            self.cut_beside_hand(table, bytes)
        }
    }

    /// As [`cut_hole`](Self::cut_hole), if the block in hand may not be the best fit. If it is not, it moves
    /// to its bin, because the program does not free in LIFO order.
    #[inline(never)]
    fn cut_beside_hand(&mut self, table: &mut Table, bytes: u64) -> u32 {
        let head = self.holes.smallest_learning(table, bytes);
        if self.holes.none_between(bytes, table[self.hand].bytes) {
            return self.cut_aside(table, self.hand, bytes);
        }
        // Its size differs from the size found, which therefore stays the smallest.
        self.put_away(table);
        if head == NONE {
            return NONE;
        }
        self.holes.remove(table, head);
        self.cut_taken(table, head, bytes)
    }

    /// Takes `bytes` from the front of a block that was removed from its bin.
    #[inline(always)]
    fn cut_taken(&mut self, table: &mut Table, index: u32, bytes: u64) -> u32 {
        let record = &mut table[index];
        let (offset, room) = (record.offset, record.bytes);
        if room == bytes {
            self.count -= 1;
            return index;
        }
        (record.offset, record.bytes) = (offset + bytes, room - bytes);
        self.holes.insert(table, index);
        table.take(offset, bytes, index)
    }

    /// Takes `bytes` from the front of the block in hand or the tail.
    #[inline(always)]
    fn cut_aside(&mut self, table: &mut Table, index: u32, bytes: u64) -> u32 {
        let record = &mut table[index];
        let (offset, room) = (record.offset, record.bytes);
        if room == bytes {
            self.remove(table, index);
            return index;
        }
        (record.offset, record.bytes) = (offset + bytes, room - bytes);
        table.take(offset, bytes, index)
    }

    /// Returns a block that holds `bytes` at a multiple of `alignment`, and that offset. The order is: a few
    /// blocks from the smallest up; a block large enough at any offset; the tail; all blocks that might fit.
    pub(super) fn aligned(
        &mut self,
        table: &mut Table,
        bytes: u64,
        alignment: u64,
        granule: u64,
    ) -> Option<(u32, u64)> {
        self.put_away(table);
        let fit = |index| Some((index, fit(&table[index], bytes, alignment)?));
        self.probe(table, bytes, alignment, PROBES)
            .or_else(|| {
                let head = self.holes.smallest(table, bytes.checked_add(alignment - granule)?);
                fit(if head == NONE || table[head].twin == NONE { head } else { table[head].twin })
            })
            .or_else(|| fit(self.tail))
            .or_else(|| self.probe(table, bytes, alignment, u32::MAX))
    }

    /// Tries blocks of at least `bytes`, smallest first.
    fn probe(&self, table: &Table, bytes: u64, alignment: u64, mut probes: u32) -> Option<(u32, u64)> {
        let mut at_least = bytes;
        loop {
            let head = self.holes.smallest(table, at_least);
            if head == NONE {
                return None;
            }
            let mut index = head;
            while index != NONE {
                if let Some(offset) = fit(&table[index], bytes, alignment) {
                    return Some((index, offset));
                }
                probes = probes.checked_sub(1)?;
                index = table[index].twin;
            }
            at_least = table[head].bytes.checked_add(1)?;
        }
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
        let (mut hand, tail) = (Some(self.hand).filter(is_enough), Some(self.tail).filter(is_enough));
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
        let mut in_bins = in_bins.fuse().peekable();
        let by_size = iter::from_fn(move || match (hand, in_bins.peek()) {
            (Some(index), next) if next.is_none_or(|&next| table[index].bytes <= table[next].bytes) => {
                hand.take()
            }
            _ => in_bins.next(),
        });
        by_size.take(most).chain(tail)
    }

    /// Calls `act` with each free block of at least `bytes`, in any order.
    pub(super) fn each_at_least(&self, table: &Table, bytes: u64, mut act: impl FnMut(u32)) {
        let aside = [self.hand, self.tail].into_iter();
        aside.filter(|&index| index != NONE && table[index].bytes >= bytes).for_each(&mut act);
        self.holes.each(table, bytes, act);
    }

    pub(super) fn largest(&self, table: &Table) -> u64 {
        table[self.tail].bytes.max(table[self.hand].bytes).max(self.holes.largest(table))
    }

    #[inline]
    pub(super) fn insert(&mut self, table: &mut Table, index: u32) {
        self.count += 1;
        self.keep(table, index);
    }

    /// Makes the record a free block, in hand unless it is the last one of the zone.
    #[inline]
    pub(super) fn insert_in_hand(&mut self, table: &mut Table, index: u32) {
        self.count += 1;
        if table[index].after == self.ring {
            self.keep(table, index);
        } else {
            self.hold(table, index);
        }
    }

    /// Removes the block. The caller sets its new state.
    #[inline]
    pub(super) fn remove(&mut self, table: &mut Table, index: u32) {
        self.count -= 1;
        if table[index].back != ASIDE {
            self.holes.remove(table, index);
        } else if index == self.hand {
            self.hand = NONE;
        } else {
            self.tail = NONE;
        }
    }

    /// Changes the size of a free block. Its neighbours may have changed.
    #[inline]
    pub(super) fn resize(&mut self, table: &mut Table, index: u32, bytes: u64) {
        let is_last = table[index].after == self.ring;
        if table[index].back == ASIDE {
            table[index].bytes = bytes;
            if is_last != (index == self.tail) {
                if is_last {
                    self.hand = NONE
                } else {
                    self.tail = NONE
                }
                self.keep(table, index);
            }
        } else if is_last {
            self.holes.remove(table, index);
            table[index].bytes = bytes;
            self.keep(table, index);
        } else {
            self.holes.resize(table, index, bytes);
        }
    }

    /// Takes a free block in hand unless it is the last one of the zone.
    pub(super) fn take_in_hand(&mut self, table: &mut Table, index: u32) {
        if table[index].back != ASIDE {
            self.holes.remove(table, index);
            self.hold(table, index);
        }
    }

    /// Keeps a free block aside as the tail, or in its bin.
    fn keep(&mut self, table: &mut Table, index: u32) {
        if table[index].after == self.ring {
            self.tail = index;
            table[index].set_links(ASIDE, [NONE; 2], NONE);
        } else {
            self.holes.insert(table, index);
        }
    }

    /// Takes a block that is in no bin in hand, and moves the previous one to its bin.
    fn hold(&mut self, table: &mut Table, index: u32) {
        self.put_away(table);
        self.hand = index;
        table[index].set_links(ASIDE, [NONE; 2], NONE);
    }

    /// Moves the block in hand to its bin.
    fn put_away(&mut self, table: &mut Table) {
        if self.hand != NONE {
            self.holes.insert(table, self.hand);
            self.hand = NONE;
        }
    }

    /// Checks all links. Calls `seen` with each free block.
    pub(super) fn check(&self, table: &Table, mut seen: impl FnMut(u32)) -> Result<(), String> {
        let last = table[self.ring].before;
        if self.tail != if table[last].is_free() { last } else { NONE } {
            return Err(format!("record {} is kept aside as the last", self.tail));
        }
        for index in [self.tail, self.hand] {
            if index != NONE {
                let Record { back, children, twin, .. } = table[index];
                if (back, children, twin) != (ASIDE, [NONE; 2], NONE) {
                    return Err(format!("record {index} is kept aside and hangs in a bin"));
                }
                seen(index);
            }
        }
        self.holes.check(table, seen)
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

/// The offset in a free block at which `bytes` fit at a multiple of `alignment`.
#[inline]
fn fit(record: &Record, bytes: u64, alignment: u64) -> Option<u64> {
    let offset = record.offset.checked_next_multiple_of(alignment)?;
    (offset.checked_add(bytes)? <= record.end()).then_some(offset)
}
