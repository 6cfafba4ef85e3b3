//! The operations as launches: each kernel has the same name, and the same arguments in the same order, on CUDA, OpenCL
//! and wgpu.

use self::Argument::{Float, Number, Read, Written};
use super::shapes::{self, Product};
use super::{Kernels, Operation, View};
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
pub(super) enum Function {
    Multiply,
    AddBias,
    ReluBackward,
    SumRows,
    Softmax,
    Adam,
    Solve,
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
        kernel: Function,
        stream: &B::Stream,
        arguments: Vec<Argument<'_, B::Memory>>,
        work: Work,
    ) -> Result<(), BackendError>;
}

impl<B: Backend, L: Launcher<B> + Sync> Kernels<B> for L {
    fn enqueue(&self, stream: &B::Stream, operation: Operation<'_, B::Memory>) -> Result<(), BackendError> {
        let (kernel, arguments, work) = match operation {
            Operation::Multiply(left, right, product) => {
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
                // Read are rows x inner and inner x columns elements at the strides, and written rows x columns.
                (Function::Multiply, arguments, Work::Product(rows, columns))
            }
            Operation::AddBias(bias, activation, values) => {
                // The bias has `columns`, not 0.
                let [columns, count] = shapes::bias(&bias, &values.region)?;
                let mut arguments = vec![Read(bias), Number(columns), Float(activation.floor())];
                arguments.extend([Written(values.region), Number(count)]);
                (Function::AddBias, arguments, Work::Elements(count))
            }
            Operation::ReluBackward(outputs, gradient) => {
                let count = shapes::elementwise(&outputs, &[&gradient])?;
                let arguments = vec![Read(outputs), Written(gradient), Number(count)];
                (Function::ReluBackward, arguments, Work::Elements(count))
            }
            Operation::SumRows(values, sums) => {
                let [rows, columns] = shapes::sums(&values.region, &sums)?;
                if rows == 0 {
                    return self.device().fill(stream, sums, 0);
                }
                let arguments = vec![Read(values.region), Number(rows), Written(sums), Number(columns)];
                (Function::SumRows, arguments, Work::Elements(columns))
            }
            Operation::Softmax(labels, smoothing, logits, tally) => {
                // A label that is no column is taken for the last.
                let [rows, columns] = shapes::logits(&labels, &logits.region, &tally)?;
                let mut arguments = vec![Read(labels), Float(smoothing), Written(logits.region)];
                arguments.extend([Number(rows), Number(columns), Written(tally)]);
                (Function::Softmax, arguments, Work::Group)
            }
            Operation::Adam(step, gradient, values, [first, second]) => {
                let count = shapes::elementwise(&gradient, &[&values, &first, &second])?;
                let mut arguments = [step.rate, step.beta_1, step.beta_2, step.epsilon].map(Float).into();
                Vec::extend(
                    &mut arguments,
                    [Read(gradient), Written(values), Written(first), Written(second)],
                );
                arguments.push(Number(count));
                (Function::Adam, arguments, Work::Elements(count))
            }
            Operation::Solve(parameters, step, steps, states) => {
                // Read are three rows of `runs`, and written all `samples` rows of the states.
                let [runs, samples] = shapes::oscillators(&parameters, &states)?;
                if samples == 0 {
                    return Ok(());
                }
                let mut arguments =
                    vec![Read(parameters), Float(step), Number(steps.into()), Written(states)];
                arguments.extend([Number(runs), Number(samples)]);
                (Function::Solve, arguments, Work::Elements(runs))
            }
        };
        // SAFETY: the arguments are the kernel's, and so is the work. It stays within the sizes among them, and
        // `shapes` found that each region has as many elements.
        unsafe { self.launch(kernel, stream, arguments, work) }
    }
}

/// The distances of rows and columns. The distance of a single row or column may be any number.
fn strides<M>(view: &View<'_, M>) -> [u64; 2] {
    let stride = |stride: usize, count| if count > 1 { stride as u64 } else { 0 };
    [stride(view.strides.0, view.rows), stride(view.strides.1, view.columns)]
}
