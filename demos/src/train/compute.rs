//! Work on one stream: results come from the pool, kernels are enqueued, nothing waits.

use super::matrix::Matrix;
use crate::kernels::{Activation, AdamStep, Kernels, Operation, View};
use vrampool::{Backend, Buffer, Error, Pool};

/// A pool, a stream to work on, and a backend's kernels.
#[derive(Debug)]
pub(crate) struct Compute<B: Backend, K> {
    pool: Pool<B>,
    stream: B::Stream,
    kernels: K,
}

impl<B: Backend, K: Kernels<B>> Compute<B, K> {
    /// On a stream of its own.
    pub(crate) fn new(pool: &Pool<B>, kernels: K) -> Result<Self, Error> {
        Ok(Self { pool: pool.clone(), stream: pool.device().create_stream()?, kernels })
    }

    pub(crate) fn stream(&self) -> &B::Stream {
        &self.stream
    }

    pub(crate) fn view<'a>(&self, matrix: &'a Matrix<B>) -> Result<View<'a, B::Memory>, Error> {
        matrix.view(self.stream())
    }

    pub(crate) fn zeroed(&self, rows: usize, columns: usize) -> Result<Matrix<B>, Error> {
        Matrix::zeroed(&self.pool, rows, columns, &self.stream)
    }

    /// A matrix with elements from the host.
    pub(crate) fn upload(&self, rows: usize, columns: usize, values: &[f32]) -> Result<Matrix<B>, Error> {
        let mut matrix = Matrix::new(&self.pool, rows, columns, &self.stream)?;
        matrix.write(values, &self.stream)?;
        Ok(matrix)
    }

    /// A matrix's elements on the host; waits for all work enqueued so far.
    pub(crate) fn download(&self, matrix: &Matrix<B>) -> Result<Vec<f32>, Error> {
        matrix.read(&self.stream)
    }

    /// A new matrix: `left` · `right`.
    pub(crate) fn multiply(
        &self,
        left: View<'_, B::Memory>,
        right: View<'_, B::Memory>,
    ) -> Result<Matrix<B>, Error> {
        let mut product = Matrix::new(&self.pool, left.rows, right.columns, &self.stream)?;
        self.kernels
            .enqueue(&self.stream, Operation::Multiply(left, right, product.view_mut(&self.stream)?))?;
        Ok(product)
    }

    /// A new vector: the sum of the rows of `values`.
    pub(crate) fn sum_rows(&self, values: &Matrix<B>) -> Result<Matrix<B>, Error> {
        let mut sums = Matrix::new(&self.pool, 1, values.columns(), &self.stream)?;
        self.kernels.enqueue(
            &self.stream,
            Operation::SumRows(self.view(values)?, sums.view_mut(&self.stream)?.region),
        )?;
        Ok(sums)
    }

    /// In place.
    pub(crate) fn add_bias(
        &self,
        bias: &Matrix<B>,
        activation: Activation,
        values: &mut Matrix<B>,
    ) -> Result<(), Error> {
        let values = values.view_mut(&self.stream)?;
        Ok(self
            .kernels
            .enqueue(&self.stream, Operation::AddBias(self.view(bias)?.region, activation, values))?)
    }

    /// In place.
    pub(crate) fn relu_backward(&self, outputs: &Matrix<B>, gradient: &mut Matrix<B>) -> Result<(), Error> {
        let gradient = gradient.view_mut(&self.stream)?.region;
        Ok(self
            .kernels
            .enqueue(&self.stream, Operation::ReluBackward(self.view(outputs)?.region, gradient))?)
    }

    /// Makes the logits the gradient of the mean loss, and adds the batch's loss and correct answers to
    /// `sums`.
    pub(crate) fn softmax_cross_entropy(
        &self,
        labels: &Buffer<B>,
        smoothing: f32,
        mut logits: Matrix<B>,
        sums: &mut Matrix<B>,
    ) -> Result<Matrix<B>, Error> {
        let sums = sums.view_mut(&self.stream)?.region;
        let labels = labels.on(&self.stream)?;
        let values = logits.view_mut(&self.stream)?;
        self.kernels.enqueue(&self.stream, Operation::Softmax(labels, smoothing, values, sums))?;
        Ok(logits)
    }

    /// In place.
    pub(crate) fn adam(
        &self,
        step: AdamStep,
        gradient: &Matrix<B>,
        values: &mut Matrix<B>,
        [first, second]: &mut [Matrix<B>; 2],
    ) -> Result<(), Error> {
        let moments = [first.view_mut(&self.stream)?.region, second.view_mut(&self.stream)?.region];
        let values = values.view_mut(&self.stream)?.region;
        Ok(self
            .kernels
            .enqueue(&self.stream, Operation::Adam(step, self.view(gradient)?.region, values, moments))?)
    }
}
