//! The free blocks of a region, by size: finds the smallest that holds a request, exactly, in a bounded number of steps.
//!
//! Bitmaps find the bin ([`bins`](super::bins)). Within a bin the sizes hang in a binary trie over the bits that the bin
//! does not tell, one head for each size, and blocks of the same size hang behind their head as *twins*. As in dlmalloc's
//! tree bins, any size whose bits lead into a subtree may be its root, so a trie needs no inner nodes of its own:
//!
//! ```text
//! bin 1000…1111        1011 ── twin ── twin
//!                  0 ╱      ╲ 1
//!                 1000       1100
//!                  1 ╲      ╱ 0
//!                   1010  1101
//! ```
//!
//! A search follows one path down and one path of smallest children, so it takes at most two steps for each bit that the
//! bin does not tell, 57 at the very most, whatever the number of free blocks; in practice the path is as long as the
//! logarithm of the number of *different* sizes in the bin.

use super::bins::{BINS, Occupied, bin_of};
use super::table::{Links, NONE, Record, Role, Table};
use std::num::NonZeroU32;

/// What the back link of a trie's root holds. No block has this slot.
const ROOT: NonZeroU32 = NonZeroU32::MIN;

/// What the first child of a twin holds, which has no children. No block has this slot.
const TWIN: u32 = 1;

/// How many blocks that may not fit are tried for an alignment above the arena's, before one that must fit is taken.
const PROBES: u32 = 16;

#[derive(Debug)]
pub(super) struct FreeBlocks {
    occupied: Occupied,
    roots: Box<[u32]>,
    pub(super) count: u32,
}

impl FreeBlocks {
    pub(super) fn new() -> Self {
        Self { occupied: Occupied::NONE, roots: vec![NONE; BINS].into(), count: 0 }
    }

    pub(super) fn clear(&mut self) {
        self.occupied = Occupied::NONE;
        self.roots.fill(NONE);
        self.count = 0;
    }

    /// Bytes of host memory behind the roots.
    pub(super) fn memory(&self) -> usize {
        size_of_val(&*self.roots)
    }

    /// The smallest block of at least `bytes`.
    #[inline]
    pub(super) fn smallest(&self, table: &Table, bytes: u64) -> Option<u32> {
        let head = self.smallest_head(table, bytes)?;
        // A twin leaves more cheaply than its head.
        let twin = links(&table[head]).twin;
        Some(if twin == NONE { head } else { twin })
    }

    fn smallest_head(&self, table: &Table, bytes: u64) -> Option<u32> {
        let (bin, untold) = bin_of(bytes);
        let first = self.occupied.first_from(bin)?;
        if first == bin {
            let head = smallest_of_bin(table, self.roots[bin], bytes, untold);
            if head != NONE {
                return Some(head);
            }
            let first = self.occupied.first_from(bin + 1)?;
            return Some(smallest_below(table, self.roots[first], NONE));
        }
        Some(smallest_below(table, self.roots[first], NONE))
    }

    /// A block that holds `bytes` at an offset that is a multiple of `alignment`, and that offset. The smallest such block
    /// if it is among the first few that are large enough; one that is large enough wherever it lies, if there is one;
    /// else whichever fits of all that might, each of which is looked at.
    pub(super) fn aligned(
        &self,
        table: &Table,
        bytes: u64,
        alignment: u64,
        granule: u64,
    ) -> Option<(u32, u64)> {
        self.probe(table, bytes, alignment, PROBES)
            .or_else(|| {
                let index = self.smallest(table, bytes.checked_add(alignment - granule)?)?;
                Some((index, fit(&table[index], bytes, alignment)?))
            })
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
                index = links(&table[index]).twin;
            }
            at_least = table[head].bytes.checked_add(1)?;
        }
    }

    /// The size of the largest block, 0 if there is none.
    pub(super) fn largest(&self, table: &Table) -> u64 {
        let Some(bin) = self.occupied.last() else { return 0 };
        let (mut index, mut largest) = (self.roots[bin], 0);
        while index != NONE {
            largest = largest.max(table[index].bytes);
            let [low, high] = links(&table[index]).children;
            index = if high == NONE { low } else { high };
        }
        largest
    }

    /// Makes the record a free block.
    #[inline]
    pub(super) fn insert(&mut self, table: &mut Table, index: u32) {
        self.count += 1;
        self.hang(table, index);
    }

    /// Takes the block out; its role is left to be set.
    #[inline]
    pub(super) fn remove(&mut self, table: &mut Table, index: u32) {
        self.count -= 1;
        self.unhang(table, index);
    }

    /// Changes the size of a free block.
    #[inline]
    pub(super) fn resize(&mut self, table: &mut Table, index: u32, bytes: u64) {
        let record = &mut table[index];
        let Links { children, twin, back } = links(record);
        if children == [NONE; 2] && twin == NONE && back == ROOT {
            let (from, to) = (bin_of(record.bytes).0, bin_of(bytes).0);
            if from == to {
                record.bytes = bytes;
                return;
            }
        }
        self.unhang(table, index);
        table[index].bytes = bytes;
        self.hang(table, index);
    }

    fn hang(&mut self, table: &mut Table, index: u32) {
        let bytes = table[index].bytes;
        let (bin, untold) = bin_of(bytes);
        let mut at = self.roots[bin];
        if at == NONE {
            self.roots[bin] = index;
            self.occupied.set(bin);
            table[index].role = Role::Free(Links { children: [NONE; 2], twin: NONE, back: ROOT });
            return;
        }
        let mut path = bytes.rotate_right(untold);
        let placed = loop {
            let back = NonZeroU32::new(at).unwrap_or(ROOT);
            let Record { bytes: size, role: Role::Free(head), .. } = &mut table[at] else { return };
            if *size == bytes {
                let twin = std::mem::replace(&mut head.twin, index);
                relink(table, twin, index);
                break Links { children: [TWIN, NONE], twin, back };
            }
            let child = &mut head.children[(path >> 63) as usize];
            if *child == NONE {
                *child = index;
                break Links { children: [NONE; 2], twin: NONE, back };
            }
            at = *child;
            path <<= 1;
        };
        table[index].role = Role::Free(placed);
    }

    fn unhang(&mut self, table: &mut Table, index: u32) {
        let Links { children: [low, high], twin, back } = links(&table[index]);
        if low == TWIN {
            if let Role::Free(front) = &mut table[back.get()].role {
                front.twin = twin;
            }
            relink(table, twin, back.get());
            return;
        }
        let heir = if twin != NONE {
            twin
        } else if low == NONE && high == NONE {
            NONE
        } else {
            take_leaf(table, index)
        };
        if back == ROOT {
            let (bin, _) = bin_of(table[index].bytes);
            self.roots[bin] = heir;
            if heir == NONE {
                self.occupied.clear(bin);
                return;
            }
        } else if let Role::Free(parent) = &mut table[back.get()].role {
            let side = usize::from(parent.children[1] == index);
            parent.children[side] = heir;
        }
        if heir != NONE {
            // Once more, because the leaf may have been a child.
            let children = links(&table[index]).children;
            if let Role::Free(head) = &mut table[heir].role {
                (head.children, head.back) = (children, back);
            }
            relink(table, children[0], heir);
            relink(table, children[1], heir);
        }
    }

    /// Whether everything hangs where it belongs: `seen` is called with each free block.
    pub(super) fn check(&self, table: &Table, mut seen: impl FnMut(u32)) -> Result<(), String> {
        for (bin, &root) in self.roots.iter().enumerate() {
            if (root != NONE) != (self.occupied.first_from(bin) == Some(bin)) {
                return Err(format!("bin {bin} and its bit differ"));
            }
            let mut heads = Vec::from_iter((root != NONE).then_some((root, ROOT.get(), 0u32, 0u64)));
            while let Some((head, parent, depth, path)) = heads.pop() {
                let bytes = table[head].bytes;
                let (own, untold) = bin_of(bytes);
                let key = bytes.rotate_right(untold);
                if own != bin || depth > untold || depth > 0 && key >> (64 - depth) != path {
                    return Err(format!("{bytes} bytes hang in the wrong place of bin {bin}"));
                }
                let Role::Free(Links { children, mut twin, back }) = table[head].role else {
                    return Err(format!("record {head} hangs in bin {bin} and is not free"));
                };
                if back.get() != parent {
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
                    let Role::Free(links) = table[twin].role else {
                        return Err(format!("record {twin} is a twin and not free"));
                    };
                    if table[twin].bytes != bytes
                        || links.back.get() != front
                        || links.children != [TWIN, NONE]
                    {
                        return Err(format!("record {twin} is no twin of {head}"));
                    }
                    seen(twin);
                    (front, twin) = (twin, links.twin);
                }
            }
        }
        Ok(())
    }
}

/// The links of a free block.
#[inline]
fn links(record: &Record) -> Links {
    match record.role {
        Role::Free(links) => links,
        // Only free blocks are linked to.
        Role::Taken(_) => Links { children: [NONE; 2], twin: NONE, back: ROOT },
    }
}

/// Makes `index`, if it is a block, lead back to `back`.
#[inline]
fn relink(table: &mut Table, index: u32, back: u32) {
    if index != NONE
        && let Role::Free(links) = &mut table[index].role
    {
        links.back = NonZeroU32::new(back).unwrap_or(ROOT);
    }
}

/// Takes any leaf from below `index`, which has children.
fn take_leaf(table: &mut Table, index: u32) -> u32 {
    let (mut parent, mut leaf) = (index, index);
    loop {
        let [low, high] = links(&table[leaf]).children;
        let child = if high == NONE { low } else { high };
        if child == NONE {
            break;
        }
        (parent, leaf) = (leaf, child);
    }
    if let Role::Free(links) = &mut table[parent].role {
        let side = usize::from(links.children[1] == leaf);
        links.children[side] = NONE;
    }
    leaf
}

/// The head of the smallest size of at least `bytes` in the trie of `bytes`' bin, or none.
#[inline]
fn smallest_of_bin(table: &Table, root: u32, bytes: u64, untold: u32) -> u32 {
    let (mut index, mut best, mut best_bytes) = (root, NONE, u64::MAX);
    // The last subtree that the path leaves to its right: all in it is larger, and less so than what lies right above.
    let mut larger = NONE;
    let mut path = bytes.rotate_right(untold);
    while index != NONE {
        let record = &table[index];
        if record.bytes >= bytes && record.bytes <= best_bytes {
            if record.bytes == bytes {
                return index;
            }
            (best, best_bytes) = (index, record.bytes);
        }
        let [low, high] = links(record).children;
        if path >> 63 == 0 {
            if high != NONE {
                larger = high;
            }
            index = low;
        } else {
            index = high;
        }
        path <<= 1;
    }
    if larger == NONE { best } else { smallest_below(table, larger, best) }
}

/// The head of the smallest size of the trie at `index` and of `best`, if that is one.
#[inline]
fn smallest_below(table: &Table, mut index: u32, mut best: u32) -> u32 {
    let mut best_bytes = if best == NONE { u64::MAX } else { table[best].bytes };
    while index != NONE {
        let record = &table[index];
        if record.bytes <= best_bytes {
            (best, best_bytes) = (index, record.bytes);
        }
        let [low, high] = links(record).children;
        index = if low == NONE { high } else { low };
    }
    best
}

/// Where in a free block `bytes` fit at a multiple of `alignment`.
#[inline]
fn fit(record: &Record, bytes: u64, alignment: u64) -> Option<u64> {
    let offset = record.offset.checked_next_multiple_of(alignment)?;
    (offset.checked_add(bytes)? <= record.end()).then_some(offset)
}
