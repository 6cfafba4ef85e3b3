//! Kernels of this crate's own: what a small network, a sweep, and a test of memory need.

use crate::device::WgpuDevice;
use crate::memory::{Span, WgpuMemory};
use crate::operand::{Adam, Factor, Operand, THREADS, TILE, apart, elements};
use crate::program::Program;
use crate::shared::Shared;
use crate::stream::WgpuStream;
use std::sync::Arc;
use vrampool_backend::{BackendError, Region, RegionMut};

const WGSL: &str = include_str!("kernels.wgsl");

/// Kernels that come with this crate, compiled by wgpu for one device. They are what `vrampool train`, `vrampool solve` and
/// `vrampool replay --touch` run, and no library for numbers.
///
/// Each enqueues its work on `stream` and returns. Floats are 32 bits wide, matrices row-major, and sums are made in one
/// order, so that a run can be repeated to the bit. Each refuses, as [`BackendError::InvalidArgument`], regions of another
/// stream or device, of memory without the usage `STORAGE`, of the wrong size or alignment, larger than the device can
/// bind, and written ones that overlap others. Regions may be parts of one buffer.
#[derive(Debug)]
pub struct Kernels {
    multiply: Program,
    add_bias: Program,
    relu_backward: Program,
    sum_rows: Program,
    softmax_cross_entropy: Program,
    adam: Program,
    van_der_pol: Program,
    write_pattern: Program,
    count_mismatches: Program,
    device: Arc<Shared>,
}

impl Kernels {
    /// The kernels, compiled for `device`.
    ///
    /// # Errors
    /// What wgpu reports.
    pub fn load(device: &WgpuDevice) -> Result<Self, BackendError> {
        let gpu = device.shared().gpu();
        let source = wgpu::ShaderSource::Wgsl(WGSL.into());
        let descriptor = wgpu::ShaderModuleDescriptor { label: Some("vrampool"), source };
        let module =
            gpu.ask("Device::create_shader_module", || gpu.device().create_shader_module(descriptor))?;
        let program = |name, operands| Program::new(gpu, &module, name, operands);
        let kernels = Self {
            multiply: program("multiply", 3)?,
            add_bias: program("add_bias", 2)?,
            relu_backward: program("relu_backward", 2)?,
            sum_rows: program("sum_rows", 2)?,
            softmax_cross_entropy: program("softmax_cross_entropy", 3)?,
            adam: program("adam", 4)?,
            van_der_pol: program("van_der_pol", 2)?,
            write_pattern: program("write_pattern", 1)?,
            count_mismatches: program("count_mismatches", 2)?,
            device: Arc::clone(device.shared()),
        };
        gpu.check()?;
        Ok(kernels)
    }

    /// `product` = `left` · `right`.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn multiply(
        &self,
        stream: &WgpuStream,
        left: &Factor<'_>,
        right: &Factor<'_>,
        product: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let product = product.as_region();
        if left.columns != right.rows {
            let reason = format!("{} columns and {} rows are not compatible", left.columns, right.rows);
            return Err(BackendError::invalid("factors", reason));
        }
        apart(&[&left.region, &right.region], &[&product])?;
        let (a, [a_row, a_column]) = left.operand(stream)?;
        let (b, [b_row, b_column]) = right.operand(stream)?;
        let c = Operand::new(stream, &product)?;
        if left.rows.checked_mul(right.columns) != Some(c.words as usize) {
            let reason = format!("it has {} elements, not {} x {}", c.words, left.rows, right.columns);
            return Err(BackendError::invalid("product", reason));
        }
        if c.words == 0 {
            return Ok(());
        }
        // There is a product, so its sides are as small as its elements are few.
        let (rows, columns) = (left.rows as u32, right.columns as u32);
        if left.columns == 0 {
            return clear(&self.device, &product);
        }
        let most = self.device.limits().max_compute_workgroups_per_dimension;
        let groups = (columns.div_ceil(TILE), rows.div_ceil(TILE));
        let inner = u32::try_from(left.columns).ok().filter(|&inner| inner <= u32::MAX - TILE);
        let Some(inner) = inner.filter(|_| groups.0 <= most && groups.1 <= most) else {
            return Err(BackendError::invalid("product", format!("a side has more than {most} tiles")));
        };
        let parameters = [a.at, a_row, a_column, b.at, b_row, b_column, c.at, rows, inner, columns];
        self.multiply.run(&self.device, &[&a, &b, &c], &parameters, groups)
    }

    /// Adds `bias` to each row of `values`; what is below `floor` becomes it.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn add_bias(
        &self,
        stream: &WgpuStream,
        bias: Region<'_, WgpuMemory>,
        floor: f32,
        values: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let values = values.as_region();
        apart(&[&bias], &[&values])?;
        let (a, b) = (Operand::new(stream, &bias)?, Operand::new(stream, &values)?);
        if a.words == 0 {
            return Err(BackendError::invalid("bias", "it has no columns"));
        }
        if b.words == 0 {
            return Ok(());
        }
        let parameters = [a.at, a.words, floor.to_bits(), b.at, b.words];
        self.add_bias.run(&self.device, &[&a, &b], &parameters, elements(b.words))
    }

    /// The gradient becomes 0 where the output of ReLU is.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn relu_backward(
        &self,
        stream: &WgpuStream,
        outputs: Region<'_, WgpuMemory>,
        gradient: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let gradient = gradient.as_region();
        apart(&[&outputs], &[&gradient])?;
        let a = Operand::new(stream, &outputs)?;
        let b = Operand::of_length(stream, &gradient, a.words)?;
        if a.words == 0 {
            return Ok(());
        }
        self.relu_backward.run(&self.device, &[&a, &b], &[a.at, b.at, a.words], elements(a.words))
    }

    /// `sums` = the sum of the rows of `values`.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn sum_rows(
        &self,
        stream: &WgpuStream,
        values: Region<'_, WgpuMemory>,
        sums: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let sums = sums.as_region();
        apart(&[&values], &[&sums])?;
        let (a, b) = (Operand::new(stream, &values)?, Operand::new(stream, &sums)?);
        let columns = b.words;
        match a.words.checked_div(columns) {
            None => Ok(()),
            Some(0) => clear(&self.device, &sums),
            Some(rows) => {
                let parameters = [a.at, rows, b.at, columns];
                self.sum_rows.run(&self.device, &[&a, &b], &parameters, elements(columns))
            }
        }
    }

    /// Cross-entropy of the softmax of each row against its label, a `u32`, smoothed: the logits become the gradient of the
    /// mean loss, and to the two floats of `tally` are added the sum of the losses and the number of right answers.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn softmax_cross_entropy(
        &self,
        stream: &WgpuStream,
        labels: Region<'_, WgpuMemory>,
        smoothing: f32,
        logits: RegionMut<'_, WgpuMemory>,
        tally: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let (logits, tally) = (logits.as_region(), tally.as_region());
        apart(&[&labels], &[&logits, &tally])?;
        let (a, b) = (Operand::new(stream, &labels)?, Operand::new(stream, &logits)?);
        let c = Operand::of_length(stream, &tally, 2)?;
        let rows = a.words;
        let columns = b.words.checked_div(rows).unwrap_or(0);
        if columns == 0 || rows * columns != b.words || rows > u32::MAX - THREADS {
            let reason = format!("{} logits are no rows for {rows} labels", b.words);
            return Err(BackendError::invalid("logits", reason));
        }
        let parameters = [a.at, smoothing.to_bits(), b.at, rows, columns, c.at];
        self.softmax_cross_entropy.run(&self.device, &[&a, &b, &c], &parameters, (1, 1))
    }

    /// One step of Adam.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn adam(
        &self,
        stream: &WgpuStream,
        step: Adam,
        gradient: Region<'_, WgpuMemory>,
        values: RegionMut<'_, WgpuMemory>,
        [first, second]: [RegionMut<'_, WgpuMemory>; 2],
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let [values, first, second] = [values, first, second].map(|region| region.as_region());
        apart(&[&gradient], &[&values, &first, &second])?;
        let a = Operand::new(stream, &gradient)?;
        let written = |region| Operand::of_length(stream, region, a.words);
        let (b, c, d) = (written(&values)?, written(&first)?, written(&second)?);
        if a.words == 0 {
            return Ok(());
        }
        let [rate, beta_1, beta_2, epsilon] =
            [step.rate, step.beta_1, step.beta_2, step.epsilon].map(f32::to_bits);
        let parameters = [rate, beta_1, beta_2, epsilon, a.at, b.at, c.at, d.at, a.words];
        self.adam.run(&self.device, &[&a, &b, &c, &d], &parameters, elements(a.words))
    }

    /// Van der Pol's oscillator, by `steps` steps of Runge and Kutta from each sample to the next. `parameters` are three rows of as
    /// many floats as there are oscillators: mu, and where and how fast it is at first; each row of `states` is where they are at a
    /// sample.
    ///
    /// # Errors
    /// As [all](Self); also states that are not whole rows.
    pub fn van_der_pol(
        &self,
        stream: &WgpuStream,
        parameters: Region<'_, WgpuMemory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let states = states.as_region();
        apart(&[&parameters], &[&states])?;
        let (a, b) = (Operand::new(stream, &parameters)?, Operand::new(stream, &states)?);
        let runs = a.words / 3;
        if runs == 0 || !a.words.is_multiple_of(3) || !b.words.is_multiple_of(runs) {
            let reason = format!("{} parameters have no rows of states among {}", a.words, b.words);
            return Err(BackendError::invalid("states", reason));
        }
        let parameters = [a.at, runs, step.to_bits(), steps, b.at, b.words / runs];
        self.van_der_pol.run(&self.device, &[&a, &b], &parameters, elements(runs))
    }

    /// Writes bytes that tell which `seed` wrote them, and where. They begin at a multiple of 4.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn write_pattern(
        &self,
        stream: &WgpuStream,
        bytes: RegionMut<'_, WgpuMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.pieces(&bytes.as_region(), seed, |piece, seed, mask| {
            let a = Operand::bytes(stream, &piece)?;
            let [low, high] = halves(seed);
            let parameters = [low, high, a.at, a.words, mask];
            self.write_pattern.run(&self.device, &[&a], &parameters, elements(a.words))
        })
    }

    /// Adds to the `u64` in `count` how many bytes are not as [`write_pattern`](Self::write_pattern) writes them.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn count_mismatches(
        &self,
        stream: &WgpuStream,
        bytes: Region<'_, WgpuMemory>,
        seed: u64,
        count: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let count = count.as_region();
        apart(&[&bytes], &[&count])?;
        let b = Operand::of_length(stream, &count, 2)?;
        self.pieces(&bytes, seed, |piece, seed, mask| {
            let a = Operand::bytes(stream, &piece)?;
            let [low, high] = halves(seed);
            let parameters = [low, high, a.at, a.words, mask, b.at];
            self.count_mismatches.run(&self.device, &[&a, &b], &parameters, elements(a.words))
        })
    }

    fn check_stream(&self, stream: &WgpuStream) -> Result<(), BackendError> {
        if Arc::ptr_eq(stream.shared(), &self.device) {
            return Ok(());
        }
        Err(BackendError::invalid("stream", "it is one of another device than the kernels"))
    }

    /// Calls `run` for parts of `bytes` that the device can bind, in order, each with the seed of its first word and the mask
    /// of its last.
    fn pieces(
        &self,
        bytes: &Region<'_, WgpuMemory>,
        seed: u64,
        run: impl Fn(Region<'_, WgpuMemory>, u64, u32) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let limits = self.device.limits();
        // Less what a binding begins before its region.
        let most = limits.max_storage_buffer_binding_size.min(MOST_BOUND);
        let most = most.saturating_sub(u64::from(limits.min_storage_buffer_offset_alignment)) / 4 * 4;
        for start in (0..bytes.len()).step_by(most.max(4) as usize) {
            let piece = bytes.slice(start..bytes.len().min(start + most))?;
            let mask = match piece.len() % 4 {
                0 => u32::MAX,
                tail => (1 << (8 * tail)) - 1,
            };
            let first = seed.wrapping_add((start / 4 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            run(piece, first, mask)?;
        }
        Ok(())
    }
}

/// Bytes bound at once at most, so that the number of a word and of threads behind it are within 32 bits.
const MOST_BOUND: u64 = 1 << 30;

fn clear(device: &Shared, region: &Region<'_, WgpuMemory>) -> Result<(), BackendError> {
    device.clear(Span::new(region, wgpu::BufferUsages::COPY_DST, "region")?)
}

fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}
