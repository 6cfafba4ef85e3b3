//! Free blocks of one bin, by size.
//!
//! The sizes form a binary trie over the low bits that the bin leaves open, with one head for each size.
//! Blocks of the same size follow their head as *twins*. As in dlmalloc's tree bins, any size of a subtree
//! may be its root, so a trie needs no separate inner nodes:
//!
//! ```text
//! bin 1000…1111        1011 ── twin ── twin
//!                  0 ╱      ╲ 1
//!                 1000       1100
//!                  1 ╲      ╱ 0
//!                   1010  1101
//! ```
//!
//! A bin that holds one size is a list, and a block enters and leaves it in the same few steps wherever it
//! is. A new block of such a list becomes its head; a new block at a trie's node becomes the first twin.
//!
//! A search follows one path down and one path of smallest children. It takes at most two steps for each open
//! bit, 53 at most, whatever the number of free blocks. In practice the path is as long as the logarithm of
//! the number of *different* sizes in the bin.

use super::table::TWIN;
use crate::heap::space::{NONE, Record, Table};

/// The back link of a trie's root: like a twin's, after a slot that holds no block and ignores writes.
pub(super) const ROOT: u32 = TWIN | 3;

/// Whether a free block is a twin or a root without children: removing it leaves other links unchanged.
#[inline]
pub(super) fn leaves_freely(record: &Record) -> bool {
    (record.back >= TWIN) & (record.children == [NONE; 2])
}

/// Inserts a block into the trie at `root`.
#[inline(never)]
pub(super) fn hang_below(table: &mut Table, index: u32, root: u32, ignored: u32) {
    let bytes = table[index].bytes;
    let (mut at, mut path) = (root, bytes.rotate_right(ignored));
    loop {
        let head = &mut table[at];
        if head.bytes == bytes {
            let twin = std::mem::replace(&mut head.twin, index);
            table[twin].back = TWIN | index;
            table[index].set_links(TWIN | at, [NONE; 2], twin);
            return;
        }
        let child = &mut head.children[(path >> 63) as usize];
        if *child == NONE {
            *child = index;
            table[index].set_links(at, [NONE; 2], NONE);
            return;
        }
        at = *child;
        path <<= 1;
    }
}

/// Removes any leaf below `index`, which has children.
pub(super) fn take_leaf(table: &mut Table, index: u32) -> u32 {
    let (mut parent, mut leaf) = (index, index);
    loop {
        let [low, high] = table[leaf].children;
        let child = if high == NONE { low } else { high };
        if child == NONE {
            break;
        }
        (parent, leaf) = (leaf, child);
    }
    let side = usize::from(table[parent].children[1] == leaf);
    table[parent].children[side] = NONE;
    leaf
}

/// Returns the head of the smallest size of at least `bytes` in the bin of `bytes`, or `NONE`.
#[inline]
pub(super) fn smallest_of_bin(table: &Table, root: u32, bytes: u64, ignored: u32) -> u32 {
    let (mut index, mut best, mut best_bytes) = (root, NONE, u64::MAX);
    // The last subtree to the right of the path: all its sizes are larger, but smaller than those above.
    let mut larger = NONE;
    let mut path = bytes.rotate_right(ignored);
    while index != NONE {
        let record = &table[index];
        if record.bytes >= bytes && record.bytes <= best_bytes {
            if record.bytes == bytes {
                return index;
            }
            (best, best_bytes) = (index, record.bytes);
        }
        let [low, high] = record.children;
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

/// Returns the head of the smallest size among the trie at `index` and `best`, if set.
#[inline]
pub(super) fn smallest_below(table: &Table, mut index: u32, mut best: u32) -> u32 {
    let mut best_bytes = if best == NONE { u64::MAX } else { table[best].bytes };
    while index != NONE {
        let record = &table[index];
        if record.bytes <= best_bytes {
            (best, best_bytes) = (index, record.bytes);
        }
        let [low, high] = record.children;
        index = if low == NONE { high } else { low };
    }
    best
}
