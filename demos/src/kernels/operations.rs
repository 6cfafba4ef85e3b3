//! The operations that the network of `train` computes on a device.

use super::{View, ViewMut};
use vrampool::{Backend, BackendError, Region, RegionMut};

/// The activation after the bias of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// Nothing.
    Identity,
    /// Negative values become 0.
    Relu,
}

impl Activation {
    /// The least value that it leaves.
    pub(crate) fn floor(self) -> f32 {
        match self {
            Self::Identity => f32::NEG_INFINITY,
            Self::Relu => 0.0,
        }
    }
}

/// One step of Adam (D. Kingma, J. Ba, 2015), its corrections of the moments' bias already in the rate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdamStep {
    pub(crate) rate: f32,
    /// The decay of the first moment.
    pub(crate) beta_1: f32,
    /// The decay of the second moment.
    pub(crate) beta_2: f32,
    pub(crate) epsilon: f32,
}

/// The kernels of a backend. Each enqueues its work on `stream` and returns; all numbers are 32-bit floats,
/// but labels are `u32`. An output that a kernel only writes may hold anything before, NaN included: its
/// memory is recycled. Sums are made in one order, so that a run repeats to the bit. Operands whose sizes do
/// not fit each other, regions of another stream and written regions that overlap others are
/// [`BackendError::InvalidArgument`].
pub(crate) trait Kernels<B: Backend> {
    /// `product` = `left` · `right`. Either factor may be transposed.
    fn multiply(
        &self,
        stream: &B::Stream,
        left: View<'_, B::Memory>,
        right: View<'_, B::Memory>,
        product: ViewMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// Adds `bias` to each row of `values` and applies `activation`, in place.
    fn add_bias(
        &self,
        stream: &B::Stream,
        bias: Region<'_, B::Memory>,
        activation: Activation,
        values: ViewMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// Turns the gradient of ReLU's `outputs` into that of its inputs, in place: 0 where the output is 0.
    fn relu_backward(
        &self,
        stream: &B::Stream,
        outputs: Region<'_, B::Memory>,
        gradient: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// `sums` = the sum of the rows of `values`, which are not transposed.
    fn sum_rows(
        &self,
        stream: &B::Stream,
        values: View<'_, B::Memory>,
        sums: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// Cross-entropy of the softmax of each row of `logits` against its label, of whose certainty the share
    /// `smoothing` is spread over all columns (C. Szegedy et al., 2016). The logits become the gradient of
    /// the mean loss over the rows; the sum of the losses is added to `tally[0]`, and to `tally[1]` the
    /// number of rows whose largest logit is the label's. A label that is no column counts as the last
    /// column.
    fn softmax_cross_entropy(
        &self,
        stream: &B::Stream,
        labels: Region<'_, B::Memory>,
        smoothing: f32,
        logits: ViewMut<'_, B::Memory>,
        tally: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;

    /// One step of Adam: updates both moments, and moves `values` against the gradient.
    fn adam(
        &self,
        stream: &B::Stream,
        step: AdamStep,
        gradient: Region<'_, B::Memory>,
        values: RegionMut<'_, B::Memory>,
        moments: [RegionMut<'_, B::Memory>; 2],
    ) -> Result<(), BackendError>;
}
