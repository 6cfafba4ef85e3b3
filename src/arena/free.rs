//! The free blocks of a region, by size: finds the smallest that holds a request, exactly, in a bounded number of steps.
//!
//! The block at the region's end, its *tail*, is kept aside and serves what no other can. So a region that grows does so
//! only then, and a region without holes allocates and frees without a look at the bins.
//!
//! Bitmaps find the bin ([`bins`](super::bins)), and in the bin a trie finds the block ([`trie`](super::trie)).

use super::bins::{BINS, Occupied, bin_of};
use super::layout::Region;
use super::record::{NONE, Record};
use super::table::{Table, end_of};
use super::trie::{ROOT, TWIN, hang_below, is_alone, smallest_below, smallest_of_bin, take_leaf};
use std::hint::select_unpredictable;

/// How many blocks that may not fit are tried for an alignment above the arena's, before one that must fit is taken.
const PROBES: u32 = 16;

#[derive(Debug)]
pub(super) struct FreeBlocks {
    occupied: Occupied,
    roots: Box<[u32]>,
    /// The free block at the region's end, if there is one.
    tail: u32,
    /// The slot that closes the region's ring.
    ring: u32,
    pub(super) count: u32,
}

impl FreeBlocks {
    /// The free blocks of a region; of one that can have none if it has no bytes.
    pub(super) fn new(region: Region, bytes: u64) -> Self {
        let bins = if bytes == 0 && region == Region::Stable { 0 } else { BINS };
        let roots = vec![NONE; bins].into();
        Self { occupied: Occupied::NONE, roots, tail: NONE, ring: end_of(region), count: 0 }
    }

    pub(super) fn clear(&mut self) {
        while let Some(bin) = self.occupied.last() {
            self.roots[bin] = NONE;
            self.occupied.clear(bin);
        }
        (self.tail, self.count) = (NONE, 0);
    }

    /// Bytes of host memory behind the roots.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.roots)
    }

    /// The smallest block of at least `bytes`, or else the tail.
    #[inline]
    pub(super) fn smallest(&self, table: &Table, bytes: u64) -> Option<u32> {
        let Some(head) = self.smallest_head(table, bytes) else {
            return (table[self.tail].bytes >= bytes).then_some(self.tail);
        };
        // A twin leaves more cheaply than its head.
        let twin = table[head].twin;
        Some(if twin == NONE { head } else { twin })
    }

    #[inline]
    fn smallest_head(&self, table: &Table, bytes: u64) -> Option<u32> {
        let (bin, untold) = bin_of(bytes);
        let own = self.roots[bin];
        if table[own].bytes == bytes {
            return Some(own);
        }
        // No block's record has 0 bytes, and no children.
        if table[own].children != [NONE; 2] {
            let head = smallest_of_bin(table, own, bytes, untold);
            if head != NONE {
                return Some(head);
            }
        }
        let next = self.occupied.first_from(bin + 1).map_or(NONE, |bin| self.roots[bin]);
        let head =
            select_unpredictable(table[own].bytes >= bytes && table[own].children == [NONE; 2], own, next);
        if head == NONE {
            return None;
        }
        if table[head].children == [NONE; 2] {
            return Some(head);
        }
        Some(smallest_below(table, head, NONE))
    }

    /// A block that holds `bytes` at an offset that is a multiple of `alignment`, and that offset. The smallest such block
    /// if it is among the first few that are large enough; one that is large enough wherever it lies, if there is one; the
    /// tail if it fits; else whichever fits of all that might, each of which is looked at.
    pub(super) fn aligned(
        &self,
        table: &Table,
        bytes: u64,
        alignment: u64,
        granule: u64,
    ) -> Option<(u32, u64)> {
        let fit = |index| Some((index, fit(&table[index], bytes, alignment)?));
        self.probe(table, bytes, alignment, PROBES)
            .or_else(|| fit(self.smallest(table, bytes.checked_add(alignment - granule)?)?))
            .or_else(|| fit(self.tail))
            .or_else(|| self.probe(table, bytes, alignment, u32::MAX))
    }

    /// Looks at blocks of at least `bytes` in the order of their sizes.
    fn probe(&self, table: &Table, bytes: u64, alignment: u64, mut probes: u32) -> Option<(u32, u64)> {
        let mut at_least = bytes;
        loop {
            let head = self.smallest_head(table, at_least)?;
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

    /// The size of the largest block, 0 if there is none.
    pub(super) fn largest(&self, table: &Table) -> u64 {
        let mut largest = table[self.tail].bytes;
        let mut index = self.occupied.last().map_or(NONE, |bin| self.roots[bin]);
        while index != NONE {
            largest = largest.max(table[index].bytes);
            let [low, high] = table[index].children;
            index = if high == NONE { low } else { high };
        }
        largest
    }

    /// Makes the record a free block.
    #[inline]
    pub(super) fn insert(&mut self, table: &mut Table, index: u32) {
        self.count += 1;
        if table[index].after == self.ring {
            self.keep_aside(table, index);
        } else {
            self.hang(table, index);
        }
    }

    /// Takes the block out; what it is now is left to be set.
    #[inline]
    pub(super) fn remove(&mut self, table: &mut Table, index: u32) {
        self.count -= 1;
        if index == self.tail {
            self.tail = NONE;
        } else {
            self.unhang(table, index);
        }
    }

    /// Changes the size of a free block. Its neighbours may have changed.
    #[inline]
    pub(super) fn resize(&mut self, table: &mut Table, index: u32, bytes: u64) {
        let is_last = table[index].after == self.ring;
        let record = &mut table[index];
        if index == self.tail {
            record.bytes = bytes;
            if !is_last {
                self.tail = NONE;
                self.hang(table, index);
            }
        } else if is_alone(record) && !is_last {
            let (from, (to, untold)) = (bin_of(record.bytes).0, bin_of(bytes));
            record.bytes = bytes;
            if from != to {
                self.roots[from] = NONE;
                self.occupied.clear(from);
                let root = self.roots[to];
                if root == NONE {
                    self.roots[to] = index;
                    self.occupied.set(to);
                } else {
                    hang_below(table, index, root, untold);
                }
            }
        } else {
            self.unhang(table, index);
            table[index].bytes = bytes;
            if is_last {
                self.keep_aside(table, index);
            } else {
                self.hang(table, index);
            }
        }
    }

    fn keep_aside(&mut self, table: &mut Table, index: u32) {
        self.tail = index;
        table[index].set_links(ROOT, [NONE; 2], NONE);
    }

    #[inline]
    fn hang(&mut self, table: &mut Table, index: u32) {
        let record = &mut table[index];
        let (bin, untold) = bin_of(record.bytes);
        let root = self.roots[bin];
        if root == NONE {
            self.roots[bin] = index;
            self.occupied.set(bin);
            record.set_links(ROOT, [NONE; 2], NONE);
        } else {
            hang_below(table, index, root, untold);
        }
    }

    #[inline]
    fn unhang(&mut self, table: &mut Table, index: u32) {
        if is_alone(&table[index]) {
            let (bin, _) = bin_of(table[index].bytes);
            self.roots[bin] = NONE;
            self.occupied.clear(bin);
        } else {
            self.unhang_from_others(table, index);
        }
    }

    #[inline(never)]
    fn unhang_from_others(&mut self, table: &mut Table, index: u32) {
        let Record { children, twin, back, bytes, .. } = table[index];
        if children[0] == TWIN {
            table[back].twin = twin;
            table[twin].back = back;
            return;
        }
        let heir = if twin != NONE {
            twin
        } else if children == [NONE; 2] {
            NONE
        } else {
            take_leaf(table, index)
        };
        if back == ROOT {
            self.roots[bin_of(bytes).0] = heir;
        } else {
            let side = usize::from(table[back].children[1] == index);
            table[back].children[side] = heir;
        }
        if heir != NONE {
            // Once more, because the leaf may have been a child.
            let children = table[index].children;
            (table[heir].children, table[heir].back) = (children, back);
            table[children[0]].back = heir;
            table[children[1]].back = heir;
        }
    }

    /// Whether everything hangs where it belongs: `seen` is called with each free block.
    pub(super) fn check(&self, table: &Table, mut seen: impl FnMut(u32)) -> Result<(), String> {
        let last = table[self.ring].before;
        if self.tail != if table[last].is_free() { last } else { NONE } {
            return Err(format!("record {} is kept aside as the last", self.tail));
        }
        if self.tail != NONE {
            seen(self.tail);
        }
        let mut bins = 0;
        let mut next = self.occupied.first_from(0);
        while let Some(bin) = next {
            (bins, next) = (bins + 1, self.occupied.first_from(bin + 1));
            let root = self.roots[bin];
            let mut heads = vec![(root, ROOT, 0u32, 0u64)];
            while let Some((head, parent, depth, path)) = heads.pop() {
                let bytes = table[head].bytes;
                let (own, untold) = bin_of(bytes);
                let key = bytes.rotate_right(untold);
                if own != bin || depth > untold || depth > 0 && key >> (64 - depth) != path {
                    return Err(format!("{bytes} bytes hang in the wrong place of bin {bin}"));
                }
                let Record { children, mut twin, back, .. } = table[head];
                if back != parent {
                    return Err(format!("record {head} does not lead back to {parent}"));
                }
                seen(head);
                heads.extend(
                    (0..)
                        .zip(children)
                        .filter(|&(_, child)| child != NONE)
                        .map(|(side, child)| (child, head, depth + 1, path << 1 | side)),
                );
                let mut front = head;
                while twin != NONE {
                    let record = &table[twin];
                    let family = (record.bytes, record.back, record.children);
                    if family != (bytes, front, [TWIN, NONE]) {
                        return Err(format!("record {twin} is no twin of {head}"));
                    }
                    seen(twin);
                    (front, twin) = (twin, record.twin);
                }
            }
        }
        match self.roots.iter().filter(|&&root| root != NONE).count() {
            roots if roots == bins => Ok(()),
            roots => Err(format!("{roots} bins hold something and {bins} bits are set")),
        }
    }
}

/// Where in a free block `bytes` fit at a multiple of `alignment`.
#[inline]
fn fit(record: &Record, bytes: u64, alignment: u64) -> Option<u64> {
    let offset = record.offset.checked_next_multiple_of(alignment)?;
    (offset.checked_add(bytes)? <= record.end()).then_some(offset)
}
