//! Gathering rows of an array into a chunk, and scattering a chunk into rows.

use crate::chunk_order::Piece;
use crate::data::Side;
use crate::error::BrokerError;
use crate::host_array::zero;
use crate::request::ChunkLayout;
use crate::staging::PinnedBlock;
use crate::transfer::Mover;
use std::ops::Range;
use vrampool_backend::Backend;

impl<B: Backend> Mover<'_, B> {
    /// Puts a range of the dense chunk together in a block.
    pub(super) fn fill(
        &mut self,
        block: &PinnedBlock<B>,
        side: Side<'_, B>,
        piece: &Piece<'_>,
        array: usize,
        layout: ChunkLayout,
        part: &Range<u64>,
    ) -> Result<(), BrokerError> {
        // In one go where it lies together.
        if let Some((row, offset)) = single_row(layout, piece, part) {
            let bytes = part.end - part.start;
            let together = match side {
                Side::Whole(all) => {
                    let start = layout.row_start(row, piece.range.start) + offset;
                    Some(&all[start as usize..(start + bytes) as usize])
                }
                Side::Rows => piece.rows[array]
                    .as_ref()
                    .map(|rows| &rows[row as usize][offset as usize..(offset + bytes) as usize]),
                _ => None,
            };
            if let Some(together) = together {
                return Ok(self.device.write_mapped(&block.memory, 0, together)?);
            }
        }
        let mut gathered = std::mem::take(&mut self.scratch);
        zero(&mut gathered, part.end - part.start)?;
        self.gather(side, piece, array, layout, part, &mut gathered)?;
        self.device.write_mapped(&block.memory, 0, &gathered)?;
        self.scratch = gathered;
        Ok(())
    }

    /// Puts a range of the dense chunk together.
    pub(super) fn gather(
        &self,
        side: Side<'_, B>,
        piece: &Piece<'_>,
        array: usize,
        layout: ChunkLayout,
        part: &Range<u64>,
        into: &mut [u8],
    ) -> Result<(), BrokerError> {
        for_rows(layout, piece.range.end - piece.range.start, part, |row, offset, at| {
            let into = &mut into[at];
            let start = layout.row_start(row, piece.range.start) + offset;
            match side {
                Side::Whole(all) => into.copy_from_slice(&all[start as usize..start as usize + into.len()]),
                Side::Pinned(memory) => self.device.read_mapped(memory, start, into)?,
                Side::File(file) => file.read_at(into, start)?,
                Side::Rows => {
                    if let Some(rows) = &piece.rows[array] {
                        let offset = offset as usize;
                        into.copy_from_slice(&rows[row as usize][offset..offset + into.len()]);
                    }
                }
                Side::None => {}
            }
            Ok(())
        })
    }

    /// Scatters a range of the dense chunk; `read` reads from the range's start.
    #[allow(clippy::too_many_arguments, reason = "they are what a landing is made of")]
    pub(super) fn scatter(
        &self,
        side: Side<'_, B>,
        piece: &mut Piece<'_>,
        array: usize,
        layout: ChunkLayout,
        part: &Range<u64>,
        scratch: &mut Vec<u8>,
        read: impl Fn(u64, &mut [u8]) -> Result<(), BrokerError>,
    ) -> Result<(), BrokerError> {
        if let (Side::Rows, Some((row, offset))) = (side, single_row(layout, piece, part))
            && let Some(rows) = &mut piece.rows[array]
        {
            let (start, end) = (offset as usize, (offset + part.end - part.start) as usize);
            return read(0, &mut rows[row as usize][start..end]);
        }
        zero(scratch, part.end - part.start)?;
        read(0, scratch)?;
        let first_run = piece.range.start;
        let rows = &mut piece.rows[array];
        for_rows(layout, piece.range.end - first_run, part, |row, offset, at| {
            let from = &scratch[at];
            let start = layout.row_start(row, first_run) + offset;
            match side {
                Side::Pinned(memory) => self.device.write_mapped(memory, start, from)?,
                Side::File(file) => file.write_at(from, start)?,
                Side::Rows => {
                    if let Some(rows) = rows {
                        let offset = offset as usize;
                        rows[row as usize][offset..offset + from.len()].copy_from_slice(from);
                    }
                }
                Side::Whole(_) | Side::None => {}
            }
            Ok(())
        })
    }
}

/// The row that a range of the dense chunk lies in, and where, if it is one.
fn single_row(layout: ChunkLayout, piece: &Piece<'_>, part: &Range<u64>) -> Option<(u64, u64)> {
    let row_bytes = layout.row_bytes(piece.range.end - piece.range.start);
    let row = part.start.checked_div(row_bytes)?;
    (part.end <= (row + 1) * row_bytes).then(|| (row, part.start - row * row_bytes))
}

/// Calls `each` for the parts of rows in a range of the dense chunk: the row, where in it, and where in the
/// range.
fn for_rows(
    layout: ChunkLayout,
    len: u64,
    part: &Range<u64>,
    mut each: impl FnMut(u64, u64, Range<usize>) -> Result<(), BrokerError>,
) -> Result<(), BrokerError> {
    let row_bytes = layout.row_bytes(len);
    let mut at = part.start;
    while at < part.end {
        let row = at / row_bytes;
        let end = part.end.min((row + 1) * row_bytes);
        each(row, at - row * row_bytes, (at - part.start) as usize..(end - part.start) as usize)?;
        at = end;
    }
    Ok(())
}
