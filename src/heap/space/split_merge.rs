//! Splits a free block to serve a request, and merges a freed block with its free neighbours.

use crate::heap::space::{Record, Table, ZoneState};

impl ZoneState {
    /// Takes `bytes` at `offset` out of a free block.
    pub(super) fn carve(&mut self, table: &mut Table, index: u32, offset: u64, bytes: u64) -> u32 {
        let record = &table[index];
        let (front, rest, after) = (offset - record.offset, record.end() - offset - bytes, record.after);
        if front == 0 {
            return self.free.cut(table, index, bytes);
        }
        let taken = table.take(offset, bytes, after);
        self.free.resize(table, index, front);
        if rest > 0 {
            let remainder = table.take(offset + bytes, rest, after);
            self.free.insert(table, remainder);
        }
        taken
    }

    /// Makes a record a free block, or a part of a free neighbour.
    #[inline]
    pub(super) fn merge(&mut self, table: &mut Table, index: u32) {
        let Record { offset, bytes, before, after, .. } = table[index];
        match (table[before].is_free(), table[after].is_free()) {
            (false, false) => self.free.insert(table, index),
            (false, true) => {
                table.recycle(index);
                table[after].offset = offset;
                self.free.resize(table, after, bytes + table[after].bytes);
            }
            (true, false) => {
                table.recycle(index);
                self.free.resize(table, before, table[before].bytes + bytes);
            }
            (true, true) => self.merge_both(table, index),
        }
    }

    /// Merges a record and the free block after it into the free block before it. Not inlined, so that the
    /// common cases save few registers.
    #[inline(never)]
    fn merge_both(&mut self, table: &mut Table, index: u32) {
        let Record { bytes, before, after, .. } = table[index];
        let behind = table[after].bytes;
        self.free.remove(table, after);
        table.recycle(after);
        table.recycle(index);
        self.free.resize(table, before, table[before].bytes + bytes + behind);
    }
}
