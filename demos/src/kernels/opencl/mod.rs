//! The kernels on OpenCL devices, compiled by the driver when they are loaded.

use super::shapes::{self, Product};
use super::{Activation, AdamStep, Kernels, Oscillator, View, ViewMut};
use std::ffi::{CStr, CString};
use vrampool::backend::DeviceKind;
use vrampool::opencl::opencl_sys::{
    CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT,
};
use vrampool::opencl::{Arguments, Grid, Kernel, OpenClDevice, OpenClMemory, OpenClStream, Program};
use vrampool::{Backend, BackendError, Region, RegionMut};

/// The kernels as every device's compiler takes them.
const SOURCE: &str = include_str!("kernels.cl");
/// The most items of a group, and of a side of a tile, where the device has as many.
const THREADS: u64 = 256;
const TILE: u64 = 16;
/// Rows and columns of a strip, the same as in the source.
const STRIP: (u64, u64) = (4, 16);
/// More than any device runs at once; each item goes on to the next elements.
const MOST_GROUPS: u64 = 4096;

/// The kernels, loaded on one device.
#[derive(Debug)]
pub(crate) struct OpenClKernels {
    multiply: Kernel,
    add_bias: Kernel,
    relu_backward: Kernel,
    sum_rows: Kernel,
    softmax_cross_entropy: Kernel,
    adam: Kernel,
    van_der_pol: Kernel,
    threads: u64,
    /// The items of a side of a group that multiplies; `None` where each item computes a strip.
    tile: Option<u64>,
}

impl OpenClKernels {
    pub(crate) fn load(device: &OpenClDevice) -> Result<Self, BackendError> {
        let most = device.info(CL_DEVICE_MAX_WORK_GROUP_SIZE)?.max(1);
        let threads = THREADS.min(1 << most.ilog2());
        let tile = TILE.min(1 << (threads.ilog2() / 2));
        let exact = device.info(CL_DEVICE_SINGLE_FP_CONFIG)? & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT;
        let exact = if exact == 0 { "" } else { " -cl-fp32-correctly-rounded-divide-sqrt" };
        let strips = device.properties().kind == DeviceKind::Cpu;
        let by_strips = if strips { " -DSTRIPS" } else { "" };
        let options = format!("-cl-std=CL1.2 -DTHREADS={threads} -DTILE={tile}{exact}{by_strips}");
        let program = Program::build(device, SOURCE, &CString::new(options).unwrap_or_default())?;
        let kernel = |name: &CStr| program.kernel(name);
        Ok(Self {
            multiply: kernel(c"multiply")?,
            add_bias: kernel(c"add_bias")?,
            relu_backward: kernel(c"relu_backward")?,
            sum_rows: kernel(c"sum_rows")?,
            softmax_cross_entropy: kernel(c"softmax_cross_entropy")?,
            adam: kernel(c"adam")?,
            van_der_pol: kernel(c"van_der_pol")?,
            threads,
            tile: (!strips).then_some(tile),
        })
    }

    /// As many items as elements, or fewer, which take several in turn.
    fn elements(&self, count: u64) -> Grid {
        self.groups(count.div_ceil(self.threads).clamp(1, MOST_GROUPS))
    }

    fn groups(&self, groups: u64) -> Grid {
        Grid::new(groups as usize, [self.threads as usize, 1])
    }

    /// The tiles of a product; or its strips, with one item a group, because strips are few and long.
    fn product_grid(&self, rows: u64, columns: u64) -> Grid {
        match self.tile {
            Some(tile) => Grid::new(
                (rows.div_ceil(tile) * columns.div_ceil(tile)) as usize,
                [tile as usize, tile as usize],
            ),
            None => {
                let strips = rows.div_ceil(STRIP.0) * columns.div_ceil(STRIP.1);
                Grid::new(strips.min(MOST_GROUPS) as usize, [1, 1])
            }
        }
    }
}

impl Kernels<OpenClDevice> for OpenClKernels {
    fn multiply(
        &self,
        stream: &OpenClStream,
        left: View<'_, OpenClMemory>,
        right: View<'_, OpenClMemory>,
        product: ViewMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let Product { rows, inner, columns } = shapes::product(&left, &right, &product)?;
        let (left_strides, right_strides) = (left.strides, right.strides);
        let (left, right) = (stream.view::<f32>(left.region)?, stream.view::<f32>(right.region)?);
        let product = stream.view_mut::<f32>(product.region)?;
        if product.as_view().is_empty() {
            return Ok(());
        }
        let arguments = Arguments::new()
            .view(&left)
            .long(left_strides.0 as u64)
            .long(left_strides.1 as u64)
            .view(&right)
            .long(right_strides.0 as u64)
            .long(right_strides.1 as u64)
            .view(product.as_view())
            .long(rows)
            .long(inner)
            .long(columns);
        // SAFETY: the arguments are the kernel's. It reads rows x inner and inner x columns elements at the
        // strides, and writes rows x columns; `shapes::product` found all of them to be in their regions.
        unsafe { self.multiply.launch(stream, self.product_grid(rows, columns), &arguments) }
    }

    fn add_bias(
        &self,
        stream: &OpenClStream,
        bias: Region<'_, OpenClMemory>,
        activation: Activation,
        values: ViewMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let [columns, count] = shapes::bias(&bias, &values.region)?;
        let (bias, values) = (stream.view::<f32>(bias)?, stream.view_mut::<f32>(values.region)?);
        let arguments = Arguments::new()
            .view(&bias)
            .long(columns)
            .float(activation.floor())
            .view(values.as_view())
            .long(count);
        // SAFETY: the arguments are the kernel's; it goes through `count` values, and its bias has `columns`,
        // not 0.
        unsafe { self.add_bias.launch(stream, self.elements(count), &arguments) }
    }

    fn relu_backward(
        &self,
        stream: &OpenClStream,
        outputs: Region<'_, OpenClMemory>,
        gradient: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let count = shapes::elementwise(&outputs, &[&gradient])?;
        let (outputs, gradient) = (stream.view::<f32>(outputs)?, stream.view_mut::<f32>(gradient)?);
        let arguments = Arguments::new().view(&outputs).view(gradient.as_view()).long(count);
        // SAFETY: the arguments are the kernel's; both regions have `count` elements.
        unsafe { self.relu_backward.launch(stream, self.elements(count), &arguments) }
    }

    fn sum_rows(
        &self,
        stream: &OpenClStream,
        values: View<'_, OpenClMemory>,
        sums: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = shapes::sums(&values.region, &sums)?;
        let (values, sums) = (stream.view::<f32>(values.region)?, stream.view_mut::<f32>(sums)?);
        let arguments = Arguments::new().view(&values).long(rows).view(sums.as_view()).long(columns);
        // SAFETY: the arguments are the kernel's; rows x columns are at most as many as there are values.
        unsafe { self.sum_rows.launch(stream, self.elements(columns), &arguments) }
    }

    fn softmax_cross_entropy(
        &self,
        stream: &OpenClStream,
        labels: Region<'_, OpenClMemory>,
        smoothing: f32,
        logits: ViewMut<'_, OpenClMemory>,
        tally: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let [rows, columns] = shapes::logits(&labels, &logits.region, &tally)?;
        let labels = stream.view::<u32>(labels)?;
        let (logits, tally) = (stream.view_mut::<f32>(logits.region)?, stream.view_mut::<f32>(tally)?);
        let arguments = Arguments::new()
            .view(&labels)
            .float(smoothing)
            .view(logits.as_view())
            .long(rows)
            .long(columns)
            .view(tally.as_view());
        // SAFETY: the arguments are the kernel's, and so is the one group. It goes through rows x columns
        // logits, as many labels as rows, and two floats of the tally; a label that is no column is taken for
        // the last.
        unsafe { self.softmax_cross_entropy.launch(stream, self.groups(1), &arguments) }
    }

    fn adam(
        &self,
        stream: &OpenClStream,
        step: AdamStep,
        gradient: Region<'_, OpenClMemory>,
        values: RegionMut<'_, OpenClMemory>,
        [first, second]: [RegionMut<'_, OpenClMemory>; 2],
    ) -> Result<(), BackendError> {
        let count = shapes::elementwise(&gradient, &[&values, &first, &second])?;
        let (gradient, values) = (stream.view::<f32>(gradient)?, stream.view_mut::<f32>(values)?);
        let (first, second) = (stream.view_mut::<f32>(first)?, stream.view_mut::<f32>(second)?);
        let arguments = Arguments::new()
            .float(step.rate)
            .float(step.beta_1)
            .float(step.beta_2)
            .float(step.epsilon)
            .view(&gradient)
            .view(values.as_view())
            .view(first.as_view())
            .view(second.as_view())
            .long(count);
        // SAFETY: the arguments are the kernel's; all four regions have `count` elements.
        unsafe { self.adam.launch(stream, self.elements(count), &arguments) }
    }
}

impl Oscillator<OpenClDevice> for OpenClKernels {
    fn solve(
        &self,
        stream: &OpenClStream,
        parameters: Region<'_, OpenClMemory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let [runs, samples] = shapes::oscillators(&parameters, &states)?;
        let (parameters, states) = (stream.view::<f32>(parameters)?, stream.view_mut::<f32>(states)?);
        let arguments = Arguments::new()
            .view(&parameters)
            .float(step)
            .long(u64::from(steps))
            .view(states.as_view())
            .long(runs)
            .long(samples);
        // SAFETY: the arguments are the kernel's; it reads three rows of `runs`, and writes `samples` rows,
        // which are all there are.
        unsafe { self.van_der_pol.launch(stream, self.elements(runs), &arguments) }
    }
}
