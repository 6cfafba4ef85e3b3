//! Loss and correct answers, summed on the device, so that the host waits once an epoch rather than once a
//! batch.

use super::compute::Compute;
use super::matrix::Matrix;
use crate::kernels::Kernels;
use vrampool::{Backend, Error};

/// The sums over the batches so far.
#[derive(Debug)]
pub(crate) struct Tally<B: Backend> {
    /// The losses, and the correct answers.
    sums: Matrix<B>,
    rows: usize,
}

/// How a network did.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Outcome {
    /// The mean loss.
    pub(crate) loss: f32,
    /// The share of correct answers, 0 to 1.
    pub(crate) accuracy: f32,
}

impl<B: Backend> Tally<B> {
    pub(crate) fn new<K: Kernels<B>>(compute: &Compute<B, K>) -> Result<Self, Error> {
        Ok(Self { sums: compute.zeroed(1, 2)?, rows: 0 })
    }

    /// The sums, for a batch of `rows` to be added.
    pub(crate) fn count(&mut self, rows: usize) -> &mut Matrix<B> {
        self.rows += rows;
        &mut self.sums
    }

    /// Waits for all work so far.
    pub(crate) fn read<K: Kernels<B>>(&self, compute: &Compute<B, K>) -> Result<Outcome, Error> {
        Ok(self.outcome(&compute.download(self.sums())?))
    }

    /// The losses, and the correct answers, summed.
    pub(crate) fn sums(&self) -> &Matrix<B> {
        &self.sums
    }

    /// Converts the [sums](Self::sums), read to the host.
    pub(crate) fn outcome(&self, sums: &[f32]) -> Outcome {
        let rows = self.rows.max(1) as f32;
        Outcome { loss: sums[0] / rows, accuracy: sums[1] / rows }
    }
}
