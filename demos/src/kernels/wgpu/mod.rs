//! The kernels on GPUs through wgpu, in WGSL. Regions that a kernel reads come before those that it writes.

use super::shapes::{self, Product};
use super::{Activation, AdamStep, Kernels, Oscillator, View, ViewMut};
use vrampool::wgpu::{Kernel, Program, WgpuDevice, WgpuMemory, WgpuStream};
use vrampool::{Backend, BackendError, Region, RegionMut};

const WGSL: &str = include_str!("kernels.wgsl");
/// The same as in `kernels.wgsl`.
const TILE: u32 = 16;
const THREADS: u32 = 256;
/// More than any device runs at once; each thread goes on to the next elements.
const MOST_GROUPS: u32 = 4096;

/// The kernels, loaded on one device.
#[derive(Debug)]
pub(crate) struct WgpuKernels {
    multiply: Kernel,
    add_bias: Kernel,
    relu_backward: Kernel,
    sum_rows: Kernel,
    softmax_cross_entropy: Kernel,
    adam: Kernel,
    van_der_pol: Kernel,
    device: WgpuDevice,
}

impl WgpuKernels {
    pub(crate) fn load(device: &WgpuDevice) -> Result<Self, BackendError> {
        let program = Program::build(device, WGSL)?;
        Ok(Self {
            multiply: program.kernel("multiply", 3)?,
            add_bias: program.kernel("add_bias", 2)?,
            relu_backward: program.kernel("relu_backward", 2)?,
            sum_rows: program.kernel("sum_rows", 2)?,
            softmax_cross_entropy: program.kernel("softmax_cross_entropy", 3)?,
            adam: program.kernel("adam", 4)?,
            van_der_pol: program.kernel("van_der_pol", 2)?,
            device: device.clone(),
        })
    }
}

impl Kernels<WgpuDevice> for WgpuKernels {
    fn multiply(
        &self,
        stream: &WgpuStream,
        left: View<'_, WgpuMemory>,
        right: View<'_, WgpuMemory>,
        product: ViewMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let Product { rows, inner, columns } = shapes::product(&left, &right, &product)?;
        if inner == 0 {
            return self.device.fill(stream, product.region, 0);
        }
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let ([left_row, left_column], [right_row, right_column]) = (strides(&left)?, strides(&right)?);
        let [rows, inner, columns] = words([rows, inner, columns])?;
        let parameters = [left_row, left_column, right_row, right_column, rows, inner, columns];
        let groups = (columns.div_ceil(TILE), rows.div_ceil(TILE));
        self.multiply.launch(stream, &[left.region, right.region], &[product.region], &parameters, groups)
    }

    fn add_bias(
        &self,
        stream: &WgpuStream,
        bias: Region<'_, WgpuMemory>,
        activation: Activation,
        values: ViewMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let [columns, count] = words(shapes::bias(&bias, &values.region)?)?;
        if count == 0 {
            return Ok(());
        }
        let parameters = [columns, activation.floor().to_bits(), count];
        self.add_bias.launch(stream, &[bias], &[values.region], &parameters, elements(count))
    }

    fn relu_backward(
        &self,
        stream: &WgpuStream,
        outputs: Region<'_, WgpuMemory>,
        gradient: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let [count] = words([shapes::elementwise(&outputs, &[&gradient])?])?;
        if count == 0 {
            return Ok(());
        }
        self.relu_backward.launch(stream, &[outputs], &[gradient], &[count], elements(count))
    }

    fn sum_rows(
        &self,
        stream: &WgpuStream,
        values: View<'_, WgpuMemory>,
        sums: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = words(shapes::sums(&values.region, &sums)?)?;
        if rows == 0 {
            return self.device.fill(stream, sums, 0);
        }
        self.sum_rows.launch(stream, &[values.region], &[sums], &[rows, columns], elements(columns))
    }

    fn softmax_cross_entropy(
        &self,
        stream: &WgpuStream,
        labels: Region<'_, WgpuMemory>,
        smoothing: f32,
        logits: ViewMut<'_, WgpuMemory>,
        tally: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = words(shapes::logits(&labels, &logits.region, &tally)?)?;
        let parameters = [smoothing.to_bits(), rows, columns];
        self.softmax_cross_entropy.launch(stream, &[labels], &[logits.region, tally], &parameters, (1, 1))
    }

    fn adam(
        &self,
        stream: &WgpuStream,
        step: AdamStep,
        gradient: Region<'_, WgpuMemory>,
        values: RegionMut<'_, WgpuMemory>,
        [first, second]: [RegionMut<'_, WgpuMemory>; 2],
    ) -> Result<(), BackendError> {
        let [count] = words([shapes::elementwise(&gradient, &[&values, &first, &second])?])?;
        if count == 0 {
            return Ok(());
        }
        let [rate, beta_1, beta_2, epsilon] =
            [step.rate, step.beta_1, step.beta_2, step.epsilon].map(f32::to_bits);
        let parameters = [rate, beta_1, beta_2, epsilon, count];
        self.adam.launch(stream, &[gradient], &[values, first, second], &parameters, elements(count))
    }
}

impl Oscillator<WgpuDevice> for WgpuKernels {
    fn solve(
        &self,
        stream: &WgpuStream,
        parameters: Region<'_, WgpuMemory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let [runs, samples] = words(shapes::oscillators(&parameters, &states)?)?;
        if samples == 0 {
            return Ok(());
        }
        let numbers = [runs, step.to_bits(), steps, samples];
        self.van_der_pol.launch(stream, &[parameters], &[states], &numbers, elements(runs))
    }
}

/// The distances of rows and columns. The distance of a single row or column may be any number.
fn strides(view: &View<'_, WgpuMemory>) -> Result<[u32; 2], BackendError> {
    let stride = |stride: usize, count| if count > 1 { stride as u64 } else { 0 };
    words([stride(view.strides.0, view.rows), stride(view.strides.1, view.columns)])
}

/// Sizes as the kernels have them: 32 bits, with room for the threads behind the last element.
fn words<const N: usize>(sizes: [u64; N]) -> Result<[u32; N], BackendError> {
    if sizes.iter().any(|&size| size > u64::from(u32::MAX - THREADS)) {
        return Err(BackendError::invalid(
            "region",
            format!("{sizes:?} elements are more than 32 bits count"),
        ));
    }
    Ok(sizes.map(|size| size as u32))
}

/// As many threads as elements, or fewer, which take several in turn.
fn elements(count: u32) -> (u32, u32) {
    (count.div_ceil(THREADS).clamp(1, MOST_GROUPS), 1)
}
