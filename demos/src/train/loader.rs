//! Batches on the device, copied on a separate stream while the previous batch is processed.

use super::digits::{Digits, PIXELS};
use super::matrix::Matrix;
use vrampool::{Backend, Buffer, Error, Pool};
use vrampool_broker::Stager;

/// Images and what they show, on the device.
#[derive(Debug)]
pub(crate) struct Batch<B: Backend> {
    /// An image a row.
    pub(crate) pixels: Matrix<B>,
    /// A `u32` for each.
    pub(crate) labels: Buffer<B>,
}

/// Copies batches to the device.
#[derive(Debug)]
pub(crate) struct Loader<B: Backend> {
    pool: Pool<B>,
    stager: Stager<B>,
    stream: B::Stream,
    digits: Digits,
}

impl<B: Backend> Loader<B> {
    pub(crate) fn new(pool: &Pool<B>, digits: Digits) -> Result<Self, Error> {
        let device = pool.device();
        let (stager, stream) = (Stager::from_environment(device)?, device.create_stream()?);
        Ok(Self { pool: pool.clone(), stager, stream, digits })
    }

    /// The batches of `rows`, each on its way to the device before the one in front of it is served.
    pub(crate) fn batches<'a, R>(&'a self, rows: R) -> Batches<'a, B, R::IntoIter>
    where
        R: IntoIterator<Item = &'a [usize]>,
    {
        let mut rows = rows.into_iter();
        let next = rows.next().map(|rows| self.load(rows));
        Batches { loader: self, rows, next }
    }

    fn load(&self, rows: &[usize]) -> Result<Batch<B>, Error> {
        let mut pixels = Matrix::new(&self.pool, rows.len(), PIXELS, &self.stream)?;
        let values = self.digits.pixels(rows);
        let values = bytemuck::cast_slice(&values);
        // No thread has to wait for the upload's event: the batch's first use on another stream waits for the
        // copy.
        let _ = self.stager.upload(values, pixels.view_mut(&self.stream)?.region, &self.stream)?;
        let values = self.digits.labels(rows);
        let values: &[u8] = bytemuck::cast_slice(&values);
        let mut labels = self.pool.allocate(values.len() as u64, &self.stream)?;
        let _ = self.stager.upload(values, labels.on_mut(&self.stream)?, &self.stream)?;
        Ok(Batch { pixels, labels })
    }
}

/// The batches of an epoch, one ahead.
#[derive(Debug)]
pub(crate) struct Batches<'a, B: Backend, R> {
    loader: &'a Loader<B>,
    rows: R,
    next: Option<Result<Batch<B>, Error>>,
}

impl<'a, B: Backend, R: Iterator<Item = &'a [usize]>> Iterator for Batches<'a, B, R> {
    type Item = Result<Batch<B>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next.take()?;
        self.next = self.rows.next().map(|rows| self.loader.load(rows));
        Some(batch)
    }
}
