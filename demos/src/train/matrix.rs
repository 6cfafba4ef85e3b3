//! A matrix of 32-bit floats in a pool buffer.

use crate::kernels::{View, ViewMut};
use vrampool::{Backend, Buffer, Error, Pool};

/// A row-major matrix in a pool buffer; a vector is one row. It may be dropped while work on it is pending:
/// the pool orders the next use of the memory after that work.
#[derive(Debug)]
pub(crate) struct Matrix<B: Backend> {
    rows: usize,
    columns: usize,
    buffer: Buffer<B>,
}

impl<B: Backend> Matrix<B> {
    /// A matrix whose elements are not defined until something writes them.
    #[track_caller]
    pub(crate) fn new(
        pool: &Pool<B>,
        rows: usize,
        columns: usize,
        stream: &B::Stream,
    ) -> Result<Self, Error> {
        let buffer = pool.allocate(bytes(rows, columns), stream)?;
        Ok(Self { rows, columns, buffer })
    }

    #[track_caller]
    pub(crate) fn zeroed(
        pool: &Pool<B>,
        rows: usize,
        columns: usize,
        stream: &B::Stream,
    ) -> Result<Self, Error> {
        let buffer = pool.allocate_zeroed(bytes(rows, columns), stream)?;
        Ok(Self { rows, columns, buffer })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    pub(crate) fn view(&self, stream: &B::Stream) -> Result<View<'_, B::Memory>, Error> {
        let region = self.buffer.on(stream)?;
        Ok(View { rows: self.rows, columns: self.columns, strides: (self.columns, 1), region })
    }

    pub(crate) fn view_mut(&mut self, stream: &B::Stream) -> Result<ViewMut<'_, B::Memory>, Error> {
        let region = self.buffer.on_mut(stream)?;
        Ok(ViewMut { rows: self.rows, columns: self.columns, region })
    }

    /// Writes all elements from the host.
    pub(crate) fn write(&mut self, values: &[f32], stream: &B::Stream) -> Result<(), Error> {
        self.buffer.write(bytemuck::cast_slice(values), stream)
    }

    /// Reads all elements; blocks until the work before is done.
    pub(crate) fn read(&self, stream: &B::Stream) -> Result<Vec<f32>, Error> {
        let mut values = vec![0.0; self.rows * self.columns];
        self.buffer.read(bytemuck::cast_slice_mut(&mut values), stream)?;
        Ok(values)
    }
}

fn bytes(rows: usize, columns: usize) -> u64 {
    (rows * columns * size_of::<f32>()) as u64
}
