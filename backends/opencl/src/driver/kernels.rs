//! Kernels of this crate's own: what a small network, a sweep, and a test of memory need.

use super::Context;
use super::operand::{Adam, Factor, aligned, apart, floats, of_length};
use super::program::{Arguments, Grid, Kernel, Program};
use crate::device::OpenClDevice;
use crate::memory::OpenClMemory;
use crate::stream::OpenClStream;
use opencl_sys as cl;
use std::ffi::{CStr, CString};
use vrampool_backend::{BackendError, DeviceKind, Region, RegionMut};

/// The kernels, as every device's compiler takes them.
const SOURCE: &str = include_str!("kernels.cl");
/// The most items of a group, and of a side of a tile, where the device has as many.
const THREADS: u64 = 256;
const TILE: u64 = 16;
/// Rows and columns of a strip, as the source has them.
const STRIP: (u64, u64) = (4, 16);
/// More than any device runs at once; each item goes on to the next elements.
const MOST_GROUPS: u64 = 4096;

/// Kernels that come with this crate, compiled by the driver for one device. They are what `vrampool train`, `vrampool solve` and
/// `vrampool replay --touch` run, and no library for numbers.
///
/// Each enqueues its work on `stream` and returns. Floats are 32 bits wide, matrices row-major, and sums are made in one
/// order, so that a run can be repeated to the bit. Each refuses, as [`BackendError::InvalidArgument`], regions of another
/// stream or device, of the wrong size or alignment, and written ones that overlap others. Threads may share them.
#[derive(Debug)]
pub struct Kernels {
    multiply: Kernel,
    add_bias: Kernel,
    relu_backward: Kernel,
    sum_rows: Kernel,
    softmax_cross_entropy: Kernel,
    adam: Kernel,
    van_der_pol: Kernel,
    write_pattern: Kernel,
    count_mismatches: Kernel,
    threads: u64,
    /// How many items a side of a group has that multiplies; `None` where each item does a strip.
    tile: Option<u64>,
    context: Context,
}

impl Kernels {
    /// The kernels, compiled for `device`.
    ///
    /// # Errors
    /// What the driver reports, with the compiler's log where it refuses them.
    pub fn load(device: &OpenClDevice) -> Result<Self, BackendError> {
        let context = device.shared().context();
        let most = context.device().number(cl::CL_DEVICE_MAX_WORK_GROUP_SIZE)?.max(1);
        let threads = THREADS.min(1 << most.ilog2());
        let tile = TILE.min(1 << (threads.ilog2() / 2));
        let exact = context.device().number(cl::CL_DEVICE_SINGLE_FP_CONFIG)?
            & cl::CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
        let exact = if exact == 0 { "" } else { " -cl-fp32-correctly-rounded-divide-sqrt" };
        let strips = device.shared().properties().kind == DeviceKind::Cpu;
        let by_strips = if strips { " -DSTRIPS" } else { "" };
        let options = format!("-cl-std=CL1.2 -DTHREADS={threads} -DTILE={tile}{exact}{by_strips}");
        let options = CString::new(options).unwrap_or_default();
        let program = Program::build(context, SOURCE, &options)?;
        let kernel = |name: &CStr| program.kernel(name);
        Ok(Self {
            multiply: kernel(c"multiply")?,
            add_bias: kernel(c"add_bias")?,
            relu_backward: kernel(c"relu_backward")?,
            sum_rows: kernel(c"sum_rows")?,
            softmax_cross_entropy: kernel(c"softmax_cross_entropy")?,
            adam: kernel(c"adam")?,
            van_der_pol: kernel(c"van_der_pol")?,
            write_pattern: kernel(c"write_pattern")?,
            count_mismatches: kernel(c"count_mismatches")?,
            threads,
            tile: (!strips).then_some(tile),
            context: context.clone(),
        })
    }

    /// `product` = `left` · `right`.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn multiply(
        &self,
        stream: &OpenClStream,
        left: &Factor<'_>,
        right: &Factor<'_>,
        product: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let (rows, inner, columns) = (left.rows as u64, left.columns as u64, right.columns as u64);
        if left.columns != right.rows {
            let reason = format!("{} columns and {} rows are not compatible", left.columns, right.rows);
            return Err(BackendError::invalid("factors", reason));
        }
        apart(&[&left.region, &right.region], &[&product.as_region()])?;
        let (left_at, right_at) = (left.view(stream)?, right.view(stream)?);
        let product = floats(stream, product, Some(left.rows.saturating_mul(right.columns)))?;
        if product.is_empty() {
            return Ok(());
        }
        let arguments = Arguments::default()
            .region(left_at.region())
            .long(left.strides.0 as u64)
            .long(left.strides.1 as u64)
            .region(right_at.region())
            .long(right.strides.0 as u64)
            .long(right.strides.1 as u64)
            .region(product.region())
            .long(rows)
            .long(inner)
            .long(columns);
        let grid = match self.tile {
            Some(tile) => Grid {
                groups: (rows.div_ceil(tile) * columns.div_ceil(tile)) as usize,
                group: [tile as usize, tile as usize],
            },
            None => self.strips(rows.div_ceil(STRIP.0) * columns.div_ceil(STRIP.1)),
        };
        // SAFETY: the arguments are the kernel's. It reads rows x inner and inner x columns elements at the strides, which
        // `Factor::view` found to be in the regions, and writes rows x columns, which the product has.
        unsafe { self.launch(&self.multiply, stream, grid, &arguments) }
    }

    /// Adds `bias` to each row of `values`; what is below `floor` becomes it.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn add_bias(
        &self,
        stream: &OpenClStream,
        bias: Region<'_, OpenClMemory>,
        floor: f32,
        values: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&bias], &[&values.as_region()])?;
        let (bias, values) = (stream.view::<f32>(bias)?, floats(stream, values, None)?);
        let (columns, count) = (bias.len() as u64, values.len() as u64);
        if columns == 0 {
            return Err(BackendError::invalid("bias", "it has no columns"));
        }
        let arguments = Arguments::default()
            .region(bias.region())
            .long(columns)
            .float(floor)
            .region(values.region())
            .long(count);
        // SAFETY: the arguments are the kernel's; it goes through `count` values, and its bias has `columns`, not 0.
        unsafe { self.launch(&self.add_bias, stream, self.elements(count), &arguments) }
    }

    /// The gradient becomes 0 where the output of ReLU is.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn relu_backward(
        &self,
        stream: &OpenClStream,
        outputs: Region<'_, OpenClMemory>,
        gradient: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&outputs], &[&gradient.as_region()])?;
        let outputs = stream.view::<f32>(outputs)?;
        let gradient = floats(stream, gradient, Some(outputs.len()))?;
        let count = outputs.len() as u64;
        let arguments = Arguments::default().region(outputs.region()).region(gradient.region()).long(count);
        // SAFETY: the arguments are the kernel's; both regions have `count` elements.
        unsafe { self.launch(&self.relu_backward, stream, self.elements(count), &arguments) }
    }

    /// `sums` = the sum of the rows of `values`.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn sum_rows(
        &self,
        stream: &OpenClStream,
        values: Region<'_, OpenClMemory>,
        sums: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&values], &[&sums.as_region()])?;
        let (values, sums) = (stream.view::<f32>(values)?, floats(stream, sums, None)?);
        let columns = sums.len() as u64;
        let rows = (values.len() as u64).checked_div(columns).unwrap_or(0);
        let arguments =
            Arguments::default().region(values.region()).long(rows).region(sums.region()).long(columns);
        // SAFETY: the arguments are the kernel's; rows x columns are at most as many as there are values.
        unsafe { self.launch(&self.sum_rows, stream, self.elements(columns), &arguments) }
    }

    /// Cross-entropy of the softmax of each row against its label, a `u32`, smoothed: the logits become the gradient of the
    /// mean loss, and to the two floats of `tally` are added the sum of the losses and the number of right answers.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn softmax_cross_entropy(
        &self,
        stream: &OpenClStream,
        labels: Region<'_, OpenClMemory>,
        smoothing: f32,
        logits: RegionMut<'_, OpenClMemory>,
        tally: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&labels], &[&logits.as_region(), &tally.as_region()])?;
        let labels = stream.view::<u32>(labels)?;
        let (logits, tally) = (floats(stream, logits, None)?, floats(stream, tally, Some(2))?);
        let rows = labels.len() as u64;
        let columns = (logits.len() as u64).checked_div(rows).unwrap_or(0);
        if columns == 0 || rows * columns != logits.len() as u64 {
            let reason = format!("{} logits are no rows for {rows} labels", logits.len());
            return Err(BackendError::invalid("logits", reason));
        }
        let arguments = Arguments::default()
            .region(labels.region())
            .float(smoothing)
            .region(logits.region())
            .long(rows)
            .long(columns)
            .region(tally.region());
        // SAFETY: the arguments are the kernel's, and so is the one group. It goes through rows x columns logits, as many
        // labels as rows, and two floats of the tally; a label that is no column is taken for the last.
        unsafe { self.launch(&self.softmax_cross_entropy, stream, self.groups(1), &arguments) }
    }

    /// One step of Adam.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn adam(
        &self,
        stream: &OpenClStream,
        step: Adam,
        gradient: Region<'_, OpenClMemory>,
        values: RegionMut<'_, OpenClMemory>,
        [first, second]: [RegionMut<'_, OpenClMemory>; 2],
    ) -> Result<(), BackendError> {
        apart(&[&gradient], &[&values.as_region(), &first.as_region(), &second.as_region()])?;
        let gradient = stream.view::<f32>(gradient)?;
        let written = |region| floats(stream, region, Some(gradient.len()));
        let (values, first, second) = (written(values)?, written(first)?, written(second)?);
        let count = gradient.len() as u64;
        let arguments = Arguments::default()
            .float(step.rate)
            .float(step.beta_1)
            .float(step.beta_2)
            .float(step.epsilon)
            .region(gradient.region())
            .region(values.region())
            .region(first.region())
            .region(second.region())
            .long(count);
        // SAFETY: the arguments are the kernel's; all four regions have `count` elements.
        unsafe { self.launch(&self.adam, stream, self.elements(count), &arguments) }
    }

    /// Van der Pol's oscillator, by `steps` steps of Runge and Kutta from each sample to the next. `parameters` are three rows of as
    /// many floats as there are oscillators: mu, and where and how fast it is at first; each row of `states` is where they are at a
    /// sample.
    ///
    /// # Errors
    /// As [all](Self); also states that are not whole rows.
    pub fn van_der_pol(
        &self,
        stream: &OpenClStream,
        parameters: Region<'_, OpenClMemory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        apart(&[&parameters], &[&states.as_region()])?;
        let (parameters, states) = (stream.view::<f32>(parameters)?, floats(stream, states, None)?);
        let (runs, count) = (parameters.len() as u64 / 3, states.len() as u64);
        if runs == 0 || parameters.len() as u64 != 3 * runs || !count.is_multiple_of(runs) {
            let reason = format!("{} parameters have no rows of states among {count}", parameters.len());
            return Err(BackendError::invalid("states", reason));
        }
        let (steps, samples) = (u64::from(steps), count / runs);
        let arguments = Arguments::default()
            .region(parameters.region())
            .float(step)
            .long(steps)
            .region(states.region())
            .long(runs)
            .long(samples);
        // SAFETY: the arguments are the kernel's; it reads three rows of `runs`, and writes `samples` rows, which are all there are.
        unsafe { self.launch(&self.van_der_pol, stream, self.elements(runs), &arguments) }
    }

    /// Writes bytes that tell which `seed` wrote them, and where. They begin at a multiple of 4.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn write_pattern(
        &self,
        stream: &OpenClStream,
        bytes: RegionMut<'_, OpenClMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        aligned(&bytes.as_region())?;
        let bytes = stream.view_mut::<u8>(bytes)?;
        let count = bytes.len() as u64;
        let arguments = Arguments::default().region(bytes.region()).long(count).long(seed);
        // SAFETY: the arguments are the kernel's; the start is aligned to its words, and it goes through `count` bytes.
        unsafe { self.launch(&self.write_pattern, stream, self.elements(count / 4), &arguments) }
    }

    /// Adds to the `u64` in `count` how many bytes are not as [`write_pattern`](Self::write_pattern) writes them.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn count_mismatches(
        &self,
        stream: &OpenClStream,
        bytes: Region<'_, OpenClMemory>,
        seed: u64,
        count: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        aligned(&bytes)?;
        apart(&[&bytes], &[&count.as_region()])?;
        let (bytes, count) = (stream.view::<u8>(bytes)?, stream.view_mut::<u64>(count)?);
        of_length("count", count.len(), 1)?;
        let len = bytes.len() as u64;
        let arguments =
            Arguments::default().region(bytes.region()).long(len).long(seed).region(count.region());
        // SAFETY: as in `write_pattern`; the count is one aligned `u64`, and groups are as large as the kernel asks for.
        unsafe { self.launch(&self.count_mismatches, stream, self.elements(len / 4), &arguments) }
    }

    /// As many items as elements, or fewer, which take several in turn.
    fn elements(&self, count: u64) -> Grid {
        self.groups(count.div_ceil(self.threads).clamp(1, MOST_GROUPS) as usize)
    }

    /// One item a group, because strips are few and long.
    fn strips(&self, count: u64) -> Grid {
        Grid { groups: count.min(MOST_GROUPS) as usize, group: [1, 1] }
    }

    fn groups(&self, groups: usize) -> Grid {
        Grid { groups, group: [self.threads as usize, 1] }
    }

    /// # Safety
    /// `arguments` are what `kernel` takes, and with them and `grid` it stays within the regions among them, which are of
    /// `stream`.
    unsafe fn launch(
        &self,
        kernel: &Kernel,
        stream: &OpenClStream,
        grid: Grid,
        arguments: &Arguments,
    ) -> Result<(), BackendError> {
        if !self.context.is_same(stream.shared().context()) {
            return Err(BackendError::invalid("stream", "it is one of another device than the kernels"));
        }
        // SAFETY: the caller's promise; kernel and stream are of one context, and regions are freed only behind its work.
        unsafe { kernel.launch(stream.raw(), grid, arguments) }
    }
}
