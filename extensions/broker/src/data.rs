//! The host's bytes of an array in a run: all of them, or those of a chunk.

use crate::error::BrokerError;
use crate::request::ChunkLayout;
use crate::spilled::Spilled;
use std::ops::Range;
use vrampool_backend::Backend;

/// From this length on a row of a pinned array is copied directly, bytes.
const LONG_ROW: u64 = 64 << 10;

/// The host's side of one array.
#[derive(Debug)]
pub(crate) enum Side<'a, B: Backend> {
    /// All of an array that is read.
    Whole(&'a [u8]),
    Pinned(&'a B::Memory),
    File(&'a Spilled),
    /// Writable bytes: of each chunk its own.
    Rows(Vec<&'a mut [u8]>),
    None,
}

/// All of an array's data, and its bytes.
#[derive(Debug)]
pub(crate) struct HostData<'a, B: Backend> {
    pub(crate) side: Side<'a, B>,
    pub(crate) len: u64,
}

/// The host's bytes of some runs of an array. On the device they are dense.
#[derive(Debug)]
pub(crate) struct HostPart<'a, B: Backend> {
    side: Side<'a, B>,
    layout: ChunkLayout,
    runs: Range<u64>,
}

/// A range of dense bytes within one row.
pub(crate) struct RowPart {
    row: usize,
    /// Its start in the row.
    offset: usize,
    /// Its start in the array.
    pub(crate) start: u64,
    /// Its place in the range that was asked for.
    pub(crate) at: Range<usize>,
}

impl<'a, B: Backend> HostPart<'a, B> {
    /// All runs of an array.
    pub(crate) fn new(side: Side<'a, B>, layout: ChunkLayout) -> Self {
        let row = usize::try_from(layout.row_bytes(layout.runs)).unwrap_or(usize::MAX).max(1);
        let side = match side {
            Side::Rows(all) => Side::Rows(all.into_iter().flat_map(|bytes| bytes.chunks_mut(row)).collect()),
            side => side,
        };
        Self { side, layout, runs: 0..layout.runs }
    }

    /// Takes its first `len` runs out.
    pub(crate) fn take(&mut self, len: u64) -> Self {
        let bytes = usize::try_from(self.layout.row_bytes(len)).unwrap_or(usize::MAX);
        let side = match &mut self.side {
            Side::Whole(all) => Side::Whole(all),
            Side::Pinned(memory) => Side::Pinned(*memory),
            Side::File(file) => Side::File(file),
            Side::Rows(rows) => Side::Rows(
                rows.iter_mut().filter_map(|row| row.split_off_mut(..bytes.min(row.len()))).collect(),
            ),
            Side::None => Side::None,
        };
        let runs = self.runs.start..self.runs.start + len;
        self.runs.start = runs.end;
        Self { side, layout: self.layout, runs }
    }

    /// Returns its bytes on the device.
    pub(crate) fn bytes(&self) -> u64 {
        self.layout.chunk_bytes(self.runs.end - self.runs.start)
    }

    /// Returns pinned memory whose rows can be copied directly, because they are long and whole granules.
    pub(crate) fn pinned(&self, granule: u64) -> Option<&'a B::Memory> {
        let Side::Pinned(memory) = self.side else { return None };
        let row_bytes = self.layout.row_bytes(self.runs.end - self.runs.start);
        let strides = [row_bytes, self.layout.row_start(0, self.runs.start), self.layout.row_start(1, 0)];
        let is_direct = (self.layout.rows == 1 || row_bytes >= LONG_ROW)
            && strides.iter().all(|bytes| bytes.is_multiple_of(granule));
        is_direct.then_some(memory)
    }

    /// Copies a range of its dense bytes to `into`.
    pub(crate) fn read(&self, device: &B, range: &Range<u64>, into: &mut [u8]) -> Result<(), BrokerError> {
        for RowPart { row, offset, start, at } in self.rows(range) {
            let into = &mut into[at];
            match &self.side {
                Side::Whole(all) => into.copy_from_slice(&all[start as usize..][..into.len()]),
                Side::Pinned(memory) => device.read_mapped(memory, start, into)?,
                Side::File(file) => file.read_at(into, start)?,
                Side::Rows(rows) => into.copy_from_slice(&rows[row][offset..][..into.len()]),
                Side::None => {}
            }
        }
        Ok(())
    }

    /// Copies `from` to a range of its dense bytes.
    pub(crate) fn write(&mut self, device: &B, range: &Range<u64>, from: &[u8]) -> Result<(), BrokerError> {
        for RowPart { row, offset, start, at } in self.rows(range) {
            let from = &from[at];
            match &mut self.side {
                Side::Pinned(memory) => device.write_mapped(memory, start, from)?,
                Side::File(file) => file.write_at(from, start)?,
                Side::Rows(rows) => rows[row][offset..][..from.len()].copy_from_slice(from),
                Side::Whole(_) | Side::None => {}
            }
        }
        Ok(())
    }

    /// Returns a range of its dense bytes if it is contiguous in memory.
    pub(crate) fn slice(&self, range: &Range<u64>) -> Option<&[u8]> {
        let RowPart { row, offset, start, at } = self.only_row(range)?;
        match &self.side {
            Side::Whole(all) => all.get(start as usize..)?.get(at),
            Side::Rows(rows) => rows.get(row)?.get(offset..)?.get(at),
            _ => None,
        }
    }

    /// As [`slice`](Self::slice), for bytes that are written.
    pub(crate) fn slice_mut(&mut self, range: &Range<u64>) -> Option<&mut [u8]> {
        let RowPart { row, offset, at, .. } = self.only_row(range)?;
        match &mut self.side {
            Side::Rows(rows) => rows.get_mut(row)?.get_mut(offset..)?.get_mut(at),
            _ => None,
        }
    }

    fn only_row(&self, range: &Range<u64>) -> Option<RowPart> {
        let mut rows = self.rows(range);
        rows.next().filter(|_| rows.next().is_none())
    }

    /// Returns the parts of rows in a range of its dense bytes.
    pub(crate) fn rows(&self, range: &Range<u64>) -> impl Iterator<Item = RowPart> + use<B> {
        let (layout, first, Range { start, end }) = (self.layout, self.runs.start, range.clone());
        let row_bytes = layout.row_bytes(self.runs.end - first);
        let mut next = start;
        std::iter::from_fn(move || {
            let from = next;
            let row = from.checked_div(row_bytes).filter(|_| from < end)?;
            next = end.min((row + 1) * row_bytes);
            let offset = from - row * row_bytes;
            let at = (from - start) as usize..(next - start) as usize;
            Some(RowPart {
                row: row as usize,
                offset: offset as usize,
                start: layout.row_start(row, first) + offset,
                at,
            })
        })
    }
}
