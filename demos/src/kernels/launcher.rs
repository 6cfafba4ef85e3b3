//! The operations as launches: each kernel has the same name, and the same arguments in the same order, on CUDA, OpenCL
//! and wgpu.

use self::Argument::{Float, Number, Read, Written};
use super::shapes::{self, Product};
use super::{Activation, AdamStep, Kernels, Oscillator, View, ViewMut};
use vrampool::{Backend, BackendError, Region, RegionMut};

/// The kernels of a driver's module, with their numbers of regions.
pub(super) const KERNELS: [(&str, u32); 7] = [
    ("multiply", 3),
    ("add_bias", 2),
    ("relu_backward", 2),
    ("sum_rows", 2),
    ("softmax_cross_entropy", 3),
    ("adam", 4),
    ("van_der_pol", 2),
];

/// The index of a kernel in [`KERNELS`].
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    Multiply,
    AddBias,
    ReluBackward,
    SumRows,
    Softmax,
    Adam,
    VanDerPol,
}

/// An argument of a launch.
pub(super) enum Argument<'a, M> {
    Read(Region<'a, M>),
    Written(RegionMut<'a, M>),
    Number(u64),
    Float(f32),
}

/// The threads of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) enum Work {
    /// For a product of this many rows and columns.
    Product(u64, u64),
    /// As many as elements, or fewer, which take several in turn.
    Elements(u64),
    /// One group.
    Group,
}

/// The maximum number of groups for [`Work::Elements`]: more than any device runs at once.
pub(super) const MOST_GROUPS: u64 = 4096;

/// The kernels, loaded on one device.
pub(super) trait Launcher<B: Backend> {
    fn device(&self) -> &B;

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// `arguments` are the parameters of `kernel`, and with them and the threads of `work` it stays within their
    /// regions.
    unsafe fn launch(
        &self,
        kernel: Operation,
        stream: &B::Stream,
        arguments: Vec<Argument<'_, B::Memory>>,
        work: Work,
    ) -> Result<(), BackendError>;
}

impl<B: Backend, L: Launcher<B>> Kernels<B> for L {
    fn multiply(
        &self,
        stream: &B::Stream,
        left: View<'_, B::Memory>,
        right: View<'_, B::Memory>,
        product: ViewMut<'_, B::Memory>,
    ) -> Result<(), BackendError> {
        let Product { rows, inner, columns } = shapes::product(&left, &right, &product)?;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        if inner == 0 {
            return self.device().fill(stream, product.region, 0);
        }
        let ([left_row, left_column], [right_row, right_column]) = (strides(&left), strides(&right));
        let mut arguments = vec![Read(left.region), Number(left_row), Number(left_column)];
        arguments.extend([Read(right.region), Number(right_row), Number(right_column)]);
        arguments.extend([Written(product.region), Number(rows), Number(inner), Number(columns)]);
        // SAFETY: the arguments are the kernel's. It reads rows x inner and inner x columns elements at the strides,
        // and writes rows x columns; `shapes::product` found all of them to be in their regions.
        unsafe { self.launch(Operation::Multiply, stream, arguments, Work::Product(rows, columns)) }
    }

    fn add_bias(
        &self,
        stream: &B::Stream,
        bias: Region<'_, B::Memory>,
        activation: Activation,
        values: ViewMut<'_, B::Memory>,
    ) -> Result<(), BackendError> {
        let [columns, count] = shapes::bias(&bias, &values.region)?;
        let floor = Float(activation.floor());
        let arguments = vec![Read(bias), Number(columns), floor, Written(values.region), Number(count)];
        // SAFETY: the arguments are the kernel's; it goes through `count` values, and its bias has `columns`, not 0.
        unsafe { self.launch(Operation::AddBias, stream, arguments, Work::Elements(count)) }
    }

    fn relu_backward(
        &self,
        stream: &B::Stream,
        outputs: Region<'_, B::Memory>,
        gradient: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError> {
        let count = shapes::elementwise(&outputs, &[&gradient])?;
        let arguments = vec![Read(outputs), Written(gradient), Number(count)];
        // SAFETY: the arguments are the kernel's; both regions have `count` elements.
        unsafe { self.launch(Operation::ReluBackward, stream, arguments, Work::Elements(count)) }
    }

    fn sum_rows(
        &self,
        stream: &B::Stream,
        values: View<'_, B::Memory>,
        sums: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = shapes::sums(&values.region, &sums)?;
        if rows == 0 {
            return self.device().fill(stream, sums, 0);
        }
        let arguments = vec![Read(values.region), Number(rows), Written(sums), Number(columns)];
        // SAFETY: the arguments are the kernel's; rows x columns are at most as many as there are values.
        unsafe { self.launch(Operation::SumRows, stream, arguments, Work::Elements(columns)) }
    }

    fn softmax_cross_entropy(
        &self,
        stream: &B::Stream,
        labels: Region<'_, B::Memory>,
        smoothing: f32,
        logits: ViewMut<'_, B::Memory>,
        tally: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = shapes::logits(&labels, &logits.region, &tally)?;
        let mut arguments = vec![Read(labels), Float(smoothing), Written(logits.region)];
        arguments.extend([Number(rows), Number(columns), Written(tally)]);
        // SAFETY: the arguments are the kernel's, and so is the one group. It goes through rows x columns logits, as
        // many labels as rows, and two floats of the tally; a label that is no column is taken for the last.
        unsafe { self.launch(Operation::Softmax, stream, arguments, Work::Group) }
    }

    fn adam(
        &self,
        stream: &B::Stream,
        step: AdamStep,
        gradient: Region<'_, B::Memory>,
        values: RegionMut<'_, B::Memory>,
        [first, second]: [RegionMut<'_, B::Memory>; 2],
    ) -> Result<(), BackendError> {
        let count = shapes::elementwise(&gradient, &[&values, &first, &second])?;
        let mut arguments = [step.rate, step.beta_1, step.beta_2, step.epsilon].map(Float).into();
        Vec::extend(&mut arguments, [Read(gradient), Written(values), Written(first), Written(second)]);
        arguments.push(Number(count));
        // SAFETY: the arguments are the kernel's; all four regions have `count` elements.
        unsafe { self.launch(Operation::Adam, stream, arguments, Work::Elements(count)) }
    }
}

impl<B: Backend, L: Launcher<B> + Sync> Oscillator<B> for L {
    fn solve(
        &self,
        stream: &B::Stream,
        parameters: Region<'_, B::Memory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError> {
        let [runs, samples] = shapes::oscillators(&parameters, &states)?;
        if samples == 0 {
            return Ok(());
        }
        let mut arguments = vec![Read(parameters), Float(step), Number(steps.into()), Written(states)];
        arguments.extend([Number(runs), Number(samples)]);
        // SAFETY: the arguments are the kernel's; it reads three rows of `runs`, and writes all `samples` rows of the
        // states.
        unsafe { self.launch(Operation::VanDerPol, stream, arguments, Work::Elements(runs)) }
    }
}

/// The distances of rows and columns. The distance of a single row or column may be any number.
fn strides<M>(view: &View<'_, M>) -> [u64; 2] {
    let stride = |stride: usize, count| if count > 1 { stride as u64 } else { 0 };
    [stride(view.strides.0, view.rows), stride(view.strides.1, view.columns)]
}
