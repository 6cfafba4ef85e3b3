//! Matrices of 32-bit floats as kernel operands: sizes, strides and a region of memory.

use vrampool::{Region, RegionMut};

/// A matrix for reading on one stream.
#[derive(Debug, Clone)]
pub(crate) struct View<'a, M> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// How many elements the next row and the next column are away.
    pub(crate) strides: (usize, usize),
    pub(crate) region: Region<'a, M>,
}

/// A row-major matrix for reading and writing on one stream.
#[derive(Debug)]
pub(crate) struct ViewMut<'a, M> {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    pub(crate) region: RegionMut<'a, M>,
}

impl<M> View<'_, M> {
    /// The same memory with rows and columns exchanged.
    pub(crate) fn transposed(self) -> Self {
        let (row, column) = self.strides;
        Self { rows: self.columns, columns: self.rows, strides: (column, row), region: self.region }
    }
}
