//! The free blocks in the bins, by size. Finds the smallest sufficient one in a bounded number of steps.
//!
//! Bitmaps find the bin ([`bins`](super::bins)), and a trie finds the block in it ([`trie`](super::trie)).
//! Sizes that a search found absent are remembered until one is added, and not searched for again.

use super::bins::{BINS, Occupied, ROW, Scale};
use super::table::TWIN;
use super::trie::{ROOT, hang_below, leaves_freely, smallest_below, smallest_of_bin, take_leaf};
use crate::heap::space::{Holes, NONE, Record, Table};
use smallvec::SmallVec;
use std::hint::select_unpredictable;

impl Holes {
    /// For sizes that are multiples of the alignment, a power of two; without `any`, for an empty zone.
    pub(super) fn new(any: bool, shift: u32) -> Self {
        let roots = Vec::with_capacity(if any { BINS } else { 0 });
        Self { scale: Scale::of_alignment(shift), occupied: Box::new(Occupied::NONE), roots }
    }

    pub(super) fn clear(&mut self) {
        while let Some(bin) = self.occupied.last() {
            self.roots[bin] = NONE;
            self.occupied.clear_if(true, bin);
        }
    }

    #[inline(always)]
    fn root(&self, bin: usize) -> u32 {
        self.roots.get(bin).copied().unwrap_or(NONE)
    }

    /// Extends the roots to those of a bin.
    #[cold]
    #[inline(never)]
    fn reach(&mut self, bin: usize) {
        self.roots.resize((bin + 1).next_multiple_of(ROW), NONE);
    }

    /// Returns the first block of the smallest size of at least `bytes`, or `NONE`.
    #[inline(always)]
    pub(super) fn smallest(&self, table: &Table, bytes: u64) -> u32 {
        let (bin, ignored) = self.scale.bin_of(bytes);
        let Some(first) = self.occupied.first_from(bin) else { return NONE };
        let root = self.roots[first];
        let record = &table[root];
        // Most bins hold one size.
        if (record.bytes >= bytes) & (record.children == [NONE; 2]) {
            return root;
        }
        self.smallest_of_several(table, bytes, (bin, ignored))
    }

    #[inline(never)]
    fn smallest_of_several(&self, table: &Table, bytes: u64, (bin, ignored): (usize, u32)) -> u32 {
        let head = smallest_of_bin(table, self.root(bin), bytes, ignored);
        if head != NONE {
            return head;
        }
        let next = self.occupied.first_from(bin + 1).map_or(NONE, |bin| self.roots[bin]);
        smallest_below(table, next, NONE)
    }

    /// Calls `act` with each block of at least `bytes`, in any order: some steps a block, where a search for
    /// each size costs a path.
    pub(super) fn each(&self, table: &Table, bytes: u64, mut act: impl FnMut(u32)) {
        let (mut from, _) = self.scale.bin_of(bytes);
        let mut heads = SmallVec::<[u32; 64]>::new();
        while let Some(bin) = self.occupied.first_from(from) {
            heads.push(self.roots[bin]);
            while let Some(head) = heads.pop() {
                let record = &table[head];
                record
                    .children
                    .into_iter()
                    .filter(|&child| child != NONE)
                    .for_each(|child| heads.push(child));
                let mut index = if record.bytes >= bytes { head } else { NONE };
                while index != NONE {
                    act(index);
                    index = table[index].twin;
                }
            }
            from = bin + 1;
        }
    }

    pub(super) fn largest(&self, table: &Table) -> u64 {
        let mut largest = 0;
        let mut index = self.occupied.last().map_or(NONE, |bin| self.roots[bin]);
        while index != NONE {
            largest = largest.max(table[index].bytes);
            let [low, high] = table[index].children;
            index = if high == NONE { low } else { high };
        }
        largest
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, table: &mut Table, index: u32) {
        let bytes = table[index].bytes;
        let (bin, ignored) = self.scale.bin_of(bytes);
        if bin >= self.roots.len() {
            self.reach(bin);
        }
        let root = self.roots[bin];
        let head = &mut table[root];
        let others = (head.bytes != bytes) | (head.children != [NONE; 2]);
        // The minimum is 0 if either is. One branch: the presence of a root would often be mispredicted.
        if root.min(u32::from(others)) != 0 {
            return hang_below(table, index, root, ignored);
        }
        // The newest block comes first, before any others of its size.
        head.back = TWIN | index;
        table[index].set_links(ROOT, [NONE; 2], root);
        self.roots[bin] = index;
        self.occupied.set(bin);
    }

    /// Removes a block from its bin. The caller sets the block's new state.
    #[inline(always)]
    pub(super) fn remove(&mut self, table: &mut Table, index: u32) {
        let record = &table[index];
        if !leaves_freely(record) {
            return self.remove_from_others(table, index);
        }
        // The same steps for a root and a twin, the last or not: branches are often mispredicted.
        let Record { bytes, back, twin, .. } = *record;
        table[back & !TWIN].twin = twin;
        table[twin].back = back;
        let (bin, _) = self.scale.bin_of(bytes);
        let is_root = back == ROOT;
        self.roots[bin] = select_unpredictable(is_root, twin, self.roots[bin]);
        self.occupied.clear_if(is_root & (twin == NONE), bin);
    }

    #[inline(never)]
    fn remove_from_others(&mut self, table: &mut Table, index: u32) {
        let Record { children, twin, back, bytes, .. } = table[index];
        let heir = if twin != NONE {
            twin
        } else if children == [NONE; 2] {
            NONE
        } else {
            take_leaf(table, index)
        };
        if back == ROOT {
            self.roots[self.scale.bin_of(bytes).0] = heir;
        } else {
            let side = usize::from(table[back].children[1] == index);
            table[back].children[side] = heir;
        }
        if heir != NONE {
            // Read again, because the leaf may have been a child.
            let children = table[index].children;
            (table[heir].children, table[heir].back) = (children, back);
            table[children[0]].back = heir;
            table[children[1]].back = heir;
        }
    }
}
