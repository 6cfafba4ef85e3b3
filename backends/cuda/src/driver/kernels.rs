//! Kernels of this crate's own: what a small network, a sweep, and a test of memory need.

use super::operand::{
    Adam, Factor, THREADS, TILE, aligned, apart, blocks, elements, floats, of_length, one_block,
};
use super::{Context, Cover};
use crate::device::CudaDevice;
use crate::error::from_cudarc;
use crate::memory::CudaMemory;
use crate::stream::CudaStream;
use cudarc::driver::{CudaFunction, DeviceSlice, LaunchArgs, LaunchConfig, PushKernelArg};
use std::time::Duration;
use vrampool_backend::{BackendError, Region, RegionMut};

/// The kernels, as the driver takes them: made from `kernels.cu`, which says how.
const PTX: &str = include_str!("kernels.ptx");

/// Kernels that come with this crate, compiled by the driver for one device: no toolkit is needed. They are what
/// `vrampool train`, `vrampool solve` and `vrampool replay --touch` run, and no library for numbers.
///
/// Each enqueues its work on `stream` and returns. Floats are 32 bits wide, matrices row-major, and sums are made in one
/// order, so that a run can be repeated to the bit. Each refuses, as [`BackendError::InvalidArgument`], regions of another
/// stream or device, of the wrong size or alignment, and written ones that overlap others.
#[derive(Debug)]
pub struct Kernels {
    multiply: CudaFunction,
    add_bias: CudaFunction,
    relu_backward: CudaFunction,
    sum_rows: CudaFunction,
    softmax_cross_entropy: CudaFunction,
    adam: CudaFunction,
    van_der_pol: CudaFunction,
    write_pattern: CudaFunction,
    count_mismatches: CudaFunction,
    delay: CudaFunction,
    /// After the functions, with the last of which their module goes, and before the context itself.
    cover: Cover,
    context: Context,
}

impl Drop for Kernels {
    fn drop(&mut self) {
        self.cover = Cover::with(&self.context);
    }
}

impl Kernels {
    /// The kernels, compiled for `device`.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn load(device: &CudaDevice) -> Result<Self, BackendError> {
        let context = device.shared().context();
        let _current = context.enter()?;
        let failed = |call, error| from_cudarc(context.library(), call, error);
        let module = context.cudarc().load_module(PTX.into());
        let module = module.map_err(|error| failed("cuModuleLoadData", error))?;
        let function =
            |name| module.load_function(name).map_err(|error| failed("cuModuleGetFunction", error));
        Ok(Self {
            multiply: function("multiply")?,
            add_bias: function("add_bias")?,
            relu_backward: function("relu_backward")?,
            sum_rows: function("sum_rows")?,
            softmax_cross_entropy: function("softmax_cross_entropy")?,
            adam: function("adam")?,
            van_der_pol: function("van_der_pol")?,
            write_pattern: function("write_pattern")?,
            count_mismatches: function("count_mismatches")?,
            delay: function("delay")?,
            cover: Cover::default(),
            context: context.clone(),
        })
    }

    /// `product` = `left` · `right`.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn multiply(
        &self,
        stream: &CudaStream,
        left: &Factor<'_>,
        right: &Factor<'_>,
        product: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let (rows, inner, columns) = (left.rows as u64, left.columns as u64, right.columns as u64);
        if left.columns != right.rows {
            let reason = format!("{} columns and {} rows are not compatible", left.columns, right.rows);
            return Err(BackendError::invalid("factors", reason));
        }
        apart(&[&left.region, &right.region], &[&product.as_region()])?;
        let (left_at, right_at) = (left.view(stream)?, right.view(stream)?);
        let mut product = floats(stream, product, Some(left.rows.saturating_mul(right.columns)))?;
        if product.len() == 0 {
            return Ok(());
        }
        let [left_row, left_column] = [left.strides.0 as u64, left.strides.1 as u64];
        let [right_row, right_column] = [right.strides.0 as u64, right.strides.1 as u64];
        let config = LaunchConfig {
            grid_dim: (blocks(rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE)))?, 1, 1),
            block_dim: (TILE as u32, TILE as u32, 1),
            shared_mem_bytes: 0,
        };
        // SAFETY: the parameters are the kernel's. It reads rows x inner and inner x columns elements at the strides, which
        // `Factor::view` found to be in the regions, and writes rows x columns, which the product has.
        unsafe {
            self.launch(&self.multiply, stream, config, |launch| {
                launch.arg(&left_at).arg(&left_row).arg(&left_column);
                launch.arg(&right_at).arg(&right_row).arg(&right_column);
                launch.arg(&mut product).arg(&rows).arg(&inner).arg(&columns);
            })
        }
    }

    /// Adds `bias` to each row of `values`; what is below `floor` becomes it.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn add_bias(
        &self,
        stream: &CudaStream,
        bias: Region<'_, CudaMemory>,
        floor: f32,
        values: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&bias], &[&values.as_region()])?;
        let (bias, mut values) = (stream.view::<f32>(bias)?, floats(stream, values, None)?);
        let (columns, count) = (bias.len() as u64, values.len() as u64);
        if columns == 0 {
            return Err(BackendError::invalid("bias", "it has no columns"));
        }
        // SAFETY: the parameters are the kernel's; it goes through `count` values, and its bias has `columns`, not 0.
        unsafe {
            self.launch(&self.add_bias, stream, elements(count), |launch| {
                launch.arg(&bias).arg(&columns).arg(&floor).arg(&mut values).arg(&count);
            })
        }
    }

    /// The gradient becomes 0 where the output of ReLU is.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn relu_backward(
        &self,
        stream: &CudaStream,
        outputs: Region<'_, CudaMemory>,
        gradient: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&outputs], &[&gradient.as_region()])?;
        let outputs = stream.view::<f32>(outputs)?;
        let mut gradient = floats(stream, gradient, Some(outputs.len()))?;
        let count = outputs.len() as u64;
        // SAFETY: the parameters are the kernel's; both regions have `count` elements.
        unsafe {
            self.launch(&self.relu_backward, stream, elements(count), |launch| {
                launch.arg(&outputs).arg(&mut gradient).arg(&count);
            })
        }
    }

    /// `sums` = the sum of the rows of `values`.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn sum_rows(
        &self,
        stream: &CudaStream,
        values: Region<'_, CudaMemory>,
        sums: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&values], &[&sums.as_region()])?;
        let (values, mut sums) = (stream.view::<f32>(values)?, floats(stream, sums, None)?);
        let columns = sums.len() as u64;
        let rows = (values.len() as u64).checked_div(columns).unwrap_or(0);
        // SAFETY: the parameters are the kernel's; rows x columns are at most as many as there are values.
        unsafe {
            self.launch(&self.sum_rows, stream, elements(columns), |launch| {
                launch.arg(&values).arg(&rows).arg(&mut sums).arg(&columns);
            })
        }
    }

    /// Cross-entropy of the softmax of each row against its label, a `u32`, smoothed: the logits become the gradient of the
    /// mean loss, and to the two floats of `tally` are added the sum of the losses and the number of right answers.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn softmax_cross_entropy(
        &self,
        stream: &CudaStream,
        labels: Region<'_, CudaMemory>,
        smoothing: f32,
        logits: RegionMut<'_, CudaMemory>,
        tally: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&labels], &[&logits.as_region(), &tally.as_region()])?;
        let labels = stream.view::<u32>(labels)?;
        let (mut logits, mut tally) = (floats(stream, logits, None)?, floats(stream, tally, Some(2))?);
        let rows = labels.len() as u64;
        let columns = (logits.len() as u64).checked_div(rows).unwrap_or(0);
        if columns == 0 || rows * columns != logits.len() as u64 {
            let reason = format!("{} logits are no rows for {rows} labels", logits.len());
            return Err(BackendError::invalid("logits", reason));
        }
        // SAFETY: the parameters are the kernel's, and so is the one block. It goes through rows x columns logits, as many
        // labels as rows, and two floats of the tally; a label that is no column is taken for the last.
        unsafe {
            self.launch(&self.softmax_cross_entropy, stream, one_block(THREADS), |launch| {
                launch.arg(&labels).arg(&smoothing).arg(&mut logits).arg(&rows).arg(&columns).arg(&mut tally);
            })
        }
    }

    /// One step of Adam.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn adam(
        &self,
        stream: &CudaStream,
        step: Adam,
        gradient: Region<'_, CudaMemory>,
        values: RegionMut<'_, CudaMemory>,
        [first, second]: [RegionMut<'_, CudaMemory>; 2],
    ) -> Result<(), BackendError> {
        apart(&[&gradient], &[&values.as_region(), &first.as_region(), &second.as_region()])?;
        let Adam { rate, beta_1, beta_2, epsilon } = step;
        let gradient = stream.view::<f32>(gradient)?;
        let written = |region| floats(stream, region, Some(gradient.len()));
        let (mut values, mut first, mut second) = (written(values)?, written(first)?, written(second)?);
        let count = gradient.len() as u64;
        // SAFETY: the parameters are the kernel's; all four regions have `count` elements.
        unsafe {
            self.launch(&self.adam, stream, elements(count), |launch| {
                launch.arg(&rate).arg(&beta_1).arg(&beta_2).arg(&epsilon).arg(&gradient);
                launch.arg(&mut values).arg(&mut first).arg(&mut second).arg(&count);
            })
        }
    }

    /// Van der Pol's oscillator, by `steps` steps of Runge and Kutta from each sample to the next. `parameters` are three rows of as
    /// many floats as there are oscillators: mu, and where and how fast it is at first; each row of `states` is where they are at a
    /// sample.
    ///
    /// # Errors
    /// As [all](Self); also states that are not whole rows.
    pub fn van_der_pol(
        &self,
        stream: &CudaStream,
        parameters: Region<'_, CudaMemory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&parameters], &[&states.as_region()])?;
        let (parameters, mut states) = (stream.view::<f32>(parameters)?, floats(stream, states, None)?);
        let (runs, count) = (parameters.len() as u64 / 3, states.len() as u64);
        if runs == 0 || parameters.len() as u64 != 3 * runs || !count.is_multiple_of(runs) {
            let reason = format!("{} parameters have no rows of states among {count}", parameters.len());
            return Err(BackendError::invalid("states", reason));
        }
        let (steps, samples) = (u64::from(steps), count / runs);
        // SAFETY: the parameters are the kernel's; it reads three rows of `runs`, and writes `samples` rows, which are all there are.
        unsafe {
            self.launch(&self.van_der_pol, stream, elements(runs), |launch| {
                launch.arg(&parameters).arg(&step).arg(&steps).arg(&mut states).arg(&runs).arg(&samples);
            })
        }
    }

    /// Writes bytes that tell which `seed` wrote them, and where. They begin at a multiple of 4.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn write_pattern(
        &self,
        stream: &CudaStream,
        bytes: RegionMut<'_, CudaMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        aligned(&bytes.as_region())?;
        let mut bytes = stream.view_mut::<u8>(bytes)?;
        let count = bytes.len() as u64;
        // SAFETY: the parameters are the kernel's; the start is aligned to its words, and it goes through `count` bytes.
        unsafe {
            self.launch(&self.write_pattern, stream, elements(count / 4), |launch| {
                launch.arg(&mut bytes).arg(&count).arg(&seed);
            })
        }
    }

    /// Adds to the `u64` in `count` how many bytes are not as [`write_pattern`](Self::write_pattern) writes them.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn count_mismatches(
        &self,
        stream: &CudaStream,
        bytes: Region<'_, CudaMemory>,
        seed: u64,
        count: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        aligned(&bytes)?;
        apart(&[&bytes], &[&count.as_region()])?;
        let (bytes, mut count) = (stream.view::<u8>(bytes)?, stream.view_mut::<u64>(count)?);
        of_length("count", count.len(), 1)?;
        let len = bytes.len() as u64;
        // SAFETY: as in `write_pattern`; the count is one aligned `u64`.
        unsafe {
            self.launch(&self.count_mismatches, stream, elements(len / 4), |launch| {
                launch.arg(&bytes).arg(&len).arg(&seed).arg(&mut count);
            })
        }
    }

    /// Keeps `stream` busy for so long.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn delay(&self, stream: &CudaStream, time: Duration) -> Result<(), BackendError> {
        stream.queue().check_not_retired()?;
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        // SAFETY: the parameter is the kernel's, which touches no memory.
        unsafe {
            self.launch(&self.delay, stream, one_block(1), |launch| {
                launch.arg(&nanoseconds);
            })
        }
    }

    /// # Safety
    /// `push` pushes what `kernel` takes, and with that and `config` the kernel stays within the regions that were pushed,
    /// which are of `stream`.
    unsafe fn launch<'a>(
        &'a self,
        kernel: &'a CudaFunction,
        stream: &'a CudaStream,
        config: LaunchConfig,
        push: impl FnOnce(&mut LaunchArgs<'a>),
    ) -> Result<(), BackendError> {
        if !self.context.is_same(stream.cudarc().context()) {
            return Err(BackendError::invalid("stream", "it is one of another device than the kernels"));
        }
        // `cudarc` leaves a context current that was not.
        let _current = self.context.enter()?;
        let mut launch = stream.cudarc().launch_builder(kernel);
        push(&mut launch);
        // SAFETY: the caller's promise; kernel and stream are of one context, and regions are freed only behind its work.
        let launched = unsafe { launch.launch(config) };
        launched.map(|_| ()).map_err(|error| from_cudarc(self.context.library(), "cuLaunchKernel", error))
    }
}
