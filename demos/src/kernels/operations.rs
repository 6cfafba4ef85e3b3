//! The operations that `train` and `solve` compute on a device.

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

/// An operation and its operands: those that it reads, its numbers, and those that it writes. All numbers are 32-bit
/// floats, but labels are `u32`. An output that is only written may hold anything before, NaN included: its memory is
/// recycled.
#[derive(Debug)]
pub(crate) enum Operation<'a, M> {
    /// The third = the first · the second. Either factor may be transposed.
    Multiply(View<'a, M>, View<'a, M>, ViewMut<'a, M>),
    /// Adds a bias to each row of the values and applies the activation, in place.
    AddBias(Region<'a, M>, Activation, ViewMut<'a, M>),
    /// Turns the gradient of ReLU's outputs, the first, into that of its inputs, in place: 0 where the output is 0.
    ReluBackward(Region<'a, M>, RegionMut<'a, M>),
    /// The second = the sum of the rows of the first, which are not transposed.
    SumRows(View<'a, M>, RegionMut<'a, M>),
    /// Cross-entropy of the softmax of each row of the logits against its label, with label smoothing: the number is
    /// the share that is spread over all columns (C. Szegedy et al., 2016). The logits become the gradient of the mean
    /// loss over the rows; the sum of the losses is added to the first of the tally, and to the second the number of
    /// rows whose largest logit is the label's. A label that is no column counts as the last column.
    Softmax(Region<'a, M>, f32, ViewMut<'a, M>, RegionMut<'a, M>),
    /// One step of Adam: updates both moments, and moves the values against the gradient, the first.
    Adam(AdamStep, Region<'a, M>, RegionMut<'a, M>, [RegionMut<'a, M>; 2]),
    /// Van der Pol's oscillators. The parameters are three rows of as many floats as there are oscillators: mu, and the
    /// position and the speed at first. Each row of the states is the position after so many more steps of a length.
    Solve(Region<'a, M>, f32, u32, RegionMut<'a, M>),
}

/// The kernels of a backend.
pub(crate) trait Kernels<B: Backend>: Sync {
    /// Enqueues an operation on `stream`. Sums are made in one order, so that a run repeats to the bit. Operands whose
    /// sizes do not fit each other, regions of another stream and written regions that overlap others are
    /// [`BackendError::InvalidArgument`].
    fn enqueue(&self, stream: &B::Stream, operation: Operation<'_, B::Memory>) -> Result<(), BackendError>;
}
