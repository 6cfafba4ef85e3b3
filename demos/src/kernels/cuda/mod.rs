//! The kernels on NVIDIA GPUs: PTX that the driver compiles when it is loaded, so that no toolkit is needed.

use super::shapes::{self, Product};
use super::{Activation, AdamStep, Kernels, Oscillator, View, ViewMut};
use vrampool::cuda::cudarc::driver::{CudaFunction, DriverError, LaunchArgs, LaunchConfig, PushKernelArg};
use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream};
use vrampool::{BackendError, Region, RegionMut};

/// The kernels as the driver takes them, made from `kernels.cu`, which says how.
const PTX: &str = include_str!("kernels.ptx");
/// The same as in `kernels.cu`.
const TILE: u64 = 16;
const THREADS: u32 = 256;
/// More than any device runs at once; each thread goes on to the next elements.
const MOST_BLOCKS: u64 = 4096;

/// The kernels, loaded on one device.
#[derive(Debug)]
pub(crate) struct CudaKernels {
    multiply: CudaFunction,
    add_bias: CudaFunction,
    relu_backward: CudaFunction,
    sum_rows: CudaFunction,
    softmax_cross_entropy: CudaFunction,
    adam: CudaFunction,
    van_der_pol: CudaFunction,
    device: CudaDevice,
}

impl CudaKernels {
    pub(crate) fn load(device: &CudaDevice) -> Result<Self, BackendError> {
        let module = device.context().load_module(PTX.into()).map_err(failed("cuModuleLoadData"))?;
        let function = |name| module.load_function(name).map_err(failed("cuModuleGetFunction"));
        Ok(Self {
            multiply: function("multiply")?,
            add_bias: function("add_bias")?,
            relu_backward: function("relu_backward")?,
            sum_rows: function("sum_rows")?,
            softmax_cross_entropy: function("softmax_cross_entropy")?,
            adam: function("adam")?,
            van_der_pol: function("van_der_pol")?,
            device: device.clone(),
        })
    }

    /// # Safety
    /// `push` pushes the parameters of `kernel`, and with them and `config` the kernel stays within the views
    /// that were pushed, which are of `stream`.
    unsafe fn launch<'a>(
        &'a self,
        kernel: &'a CudaFunction,
        stream: &'a CudaStream,
        config: LaunchConfig,
        push: impl FnOnce(&mut LaunchArgs<'a>),
    ) -> Result<(), BackendError> {
        if stream.cudarc().context().cu_ctx() != self.device.context().cu_ctx() {
            return Err(BackendError::invalid("stream", "it belongs to another device than the kernels"));
        }
        let mut launch = stream.cudarc().launch_builder(kernel);
        push(&mut launch);
        // SAFETY: the caller's promise. Kernel and stream are of one context, and the memory of a region is
        // freed only behind the work on its stream.
        let launched = unsafe { launch.launch(config) };
        launched.map(drop).map_err(failed("cuLaunchKernel"))
    }
}

impl Kernels<CudaDevice> for CudaKernels {
    fn multiply(
        &self,
        stream: &CudaStream,
        left: View<'_, CudaMemory>,
        right: View<'_, CudaMemory>,
        product: ViewMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let Product { rows, inner, columns } = shapes::product(&left, &right, &product)?;
        let [left_row, left_column] = [left.strides.0 as u64, left.strides.1 as u64];
        let [right_row, right_column] = [right.strides.0 as u64, right.strides.1 as u64];
        let (left, right) = (stream.view::<f32>(left.region)?, stream.view::<f32>(right.region)?);
        let mut product = stream.view_mut::<f32>(product.region)?;
        if rows == 0 || columns == 0 {
            return Ok(());
        }
        let tiles = rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE));
        let Some(blocks) = u32::try_from(tiles).ok().filter(|&count| count <= i32::MAX as u32) else {
            return Err(BackendError::invalid("product", "it has more tiles than a launch has blocks"));
        };
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (TILE as u32, TILE as u32, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the parameters are the kernel's. It reads rows x inner and inner x columns elements at the
        // strides, and writes rows x columns; `shapes::product` found all of them to be in their regions.
        unsafe {
            self.launch(&self.multiply, stream, config, |launch| {
                launch.arg(&left).arg(&left_row).arg(&left_column);
                launch.arg(&right).arg(&right_row).arg(&right_column);
                launch.arg(&mut product).arg(&rows).arg(&inner).arg(&columns);
            })
        }
    }

    fn add_bias(
        &self,
        stream: &CudaStream,
        bias: Region<'_, CudaMemory>,
        activation: Activation,
        values: ViewMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let [columns, count] = shapes::bias(&bias, &values.region)?;
        let floor = activation.floor();
        let (bias, mut values) = (stream.view::<f32>(bias)?, stream.view_mut::<f32>(values.region)?);
        // SAFETY: the parameters are the kernel's; it goes through `count` values, and its bias has
        // `columns`, not 0.
        unsafe {
            self.launch(&self.add_bias, stream, elements(count), |launch| {
                launch.arg(&bias).arg(&columns).arg(&floor).arg(&mut values).arg(&count);
            })
        }
    }

    fn relu_backward(
        &self,
        stream: &CudaStream,
        outputs: Region<'_, CudaMemory>,
        gradient: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let count = shapes::elementwise(&outputs, &[&gradient])?;
        let (outputs, mut gradient) = (stream.view::<f32>(outputs)?, stream.view_mut::<f32>(gradient)?);
        // SAFETY: the parameters are the kernel's; both regions have `count` elements.
        unsafe {
            self.launch(&self.relu_backward, stream, elements(count), |launch| {
                launch.arg(&outputs).arg(&mut gradient).arg(&count);
            })
        }
    }

    fn sum_rows(
        &self,
        stream: &CudaStream,
        values: View<'_, CudaMemory>,
        sums: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = shapes::sums(&values.region, &sums)?;
        let (values, mut sums) = (stream.view::<f32>(values.region)?, stream.view_mut::<f32>(sums)?);
        // SAFETY: the parameters are the kernel's; rows x columns are at most as many as there are values.
        unsafe {
            self.launch(&self.sum_rows, stream, elements(columns), |launch| {
                launch.arg(&values).arg(&rows).arg(&mut sums).arg(&columns);
            })
        }
    }

    fn softmax_cross_entropy(
        &self,
        stream: &CudaStream,
        labels: Region<'_, CudaMemory>,
        smoothing: f32,
        logits: ViewMut<'_, CudaMemory>,
        tally: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = shapes::logits(&labels, &logits.region, &tally)?;
        let labels = stream.view::<u32>(labels)?;
        let (mut logits, mut tally) =
            (stream.view_mut::<f32>(logits.region)?, stream.view_mut::<f32>(tally)?);
        // SAFETY: the parameters are the kernel's, and so is the one block. It goes through rows x columns
        // logits, as many labels as rows, and two floats of the tally; a label that is no column is taken for
        // the last.
        unsafe {
            self.launch(&self.softmax_cross_entropy, stream, blocks(1), |launch| {
                launch.arg(&labels).arg(&smoothing).arg(&mut logits).arg(&rows).arg(&columns).arg(&mut tally);
            })
        }
    }

    fn adam(
        &self,
        stream: &CudaStream,
        step: AdamStep,
        gradient: Region<'_, CudaMemory>,
        values: RegionMut<'_, CudaMemory>,
        [first, second]: [RegionMut<'_, CudaMemory>; 2],
    ) -> Result<(), BackendError> {
        let count = shapes::elementwise(&gradient, &[&values, &first, &second])?;
        let AdamStep { rate, beta_1, beta_2, epsilon } = step;
        let (gradient, mut values) = (stream.view::<f32>(gradient)?, stream.view_mut::<f32>(values)?);
        let (mut first, mut second) = (stream.view_mut::<f32>(first)?, stream.view_mut::<f32>(second)?);
        // SAFETY: the parameters are the kernel's; all four regions have `count` elements.
        unsafe {
            self.launch(&self.adam, stream, elements(count), |launch| {
                launch.arg(&rate).arg(&beta_1).arg(&beta_2).arg(&epsilon).arg(&gradient);
                launch.arg(&mut values).arg(&mut first).arg(&mut second).arg(&count);
            })
        }
    }
}

impl Oscillator<CudaDevice> for CudaKernels {
    fn solve(
        &self,
        stream: &CudaStream,
        parameters: Region<'_, CudaMemory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let [runs, samples] = shapes::oscillators(&parameters, &states)?;
        let steps = u64::from(steps);
        let (parameters, mut states) = (stream.view::<f32>(parameters)?, stream.view_mut::<f32>(states)?);
        // SAFETY: the parameters are the kernel's; it reads three rows of `runs`, and writes `samples` rows,
        // which are all there are.
        unsafe {
            self.launch(&self.van_der_pol, stream, elements(runs), |launch| {
                launch.arg(&parameters).arg(&step).arg(&steps).arg(&mut states).arg(&runs).arg(&samples);
            })
        }
    }
}

/// As many threads as elements, or fewer, which take several in turn.
fn elements(count: u64) -> LaunchConfig {
    blocks(count.div_ceil(u64::from(THREADS)).clamp(1, MOST_BLOCKS) as u32)
}

fn blocks(count: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (count, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}

/// The error of a driver's call, in the contract's words.
fn failed(call: &'static str) -> impl Fn(DriverError) -> BackendError {
    move |error| BackendError::driver(call, error.0 as i64, error.to_string())
}
