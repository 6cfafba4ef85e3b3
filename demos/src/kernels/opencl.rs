//! The kernels on OpenCL devices, compiled by the driver when they are loaded.

use super::launcher::{Argument, Function, KERNELS, Launcher, MOST_GROUPS, Work};
use std::ffi::CString;
use vrampool::backend::DeviceKind;
use vrampool::opencl::opencl_sys::{
    CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_SINGLE_FP_CONFIG, CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT,
};
use vrampool::opencl::{Arguments, Grid, Kernel, OpenClDevice, OpenClMemory, OpenClStream, Program};
use vrampool::{Backend, BackendError, Region, RegionMut};

/// The kernels as every device's compiler takes them.
const SOURCE: &str = include_str!("kernels.c");
/// The most items of a group, and of a side of a tile, where the device has as many.
const THREADS: u64 = 256;
const TILE: u64 = 16;
/// Rows and columns of a strip, the same as in the source.
const STRIP: (u64, u64) = (4, 16);

/// The kernels, loaded on one device.
#[derive(Debug)]
pub(crate) struct OpenClKernels {
    kernels: Vec<Kernel>,
    device: OpenClDevice,
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
        let kernel = |(name, _)| program.kernel(&CString::new(name).unwrap_or_default());
        let kernels = KERNELS.into_iter().map(kernel).collect::<Result<_, _>>()?;
        Ok(Self { kernels, device: device.clone(), threads, tile: (!strips).then_some(tile) })
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

impl Launcher<OpenClDevice> for OpenClKernels {
    fn device(&self) -> &OpenClDevice {
        &self.device
    }

    unsafe fn launch(
        &self,
        kernel: Function,
        stream: &OpenClStream,
        arguments: Vec<Argument<'_, OpenClMemory>>,
        work: Work,
    ) -> Result<(), BackendError> {
        let grid = match work {
            Work::Product(rows, columns) => self.product_grid(rows, columns),
            Work::Elements(count) => self.groups(count.div_ceil(self.threads).clamp(1, MOST_GROUPS)),
            Work::Group => self.groups(1),
        };
        let region = |argument: &_| match argument {
            Argument::Read(region) => Some(Region::clone(region)),
            Argument::Written(region) => Some(RegionMut::as_region(region)),
            Argument::Number(_) | Argument::Float(_) => None,
        };
        let views = arguments
            .iter()
            .map(|argument| region(argument).map(|region| stream.view::<f32>(region)).transpose());
        let views = views.collect::<Result<Vec<_>, _>>()?;
        let list = arguments.iter().zip(&views).fold(Arguments::new(), |list, argument| match argument {
            (_, Some(view)) => list.view(view),
            (Argument::Float(number), _) => list.float(*number),
            (Argument::Number(number), _) => list.long(*number),
            (Argument::Read(_) | Argument::Written(_), None) => list,
        });
        // SAFETY: the caller's promise; the views are of `stream`.
        unsafe { self.kernels[kernel as usize].launch(stream, grid, &list) }
    }
}
