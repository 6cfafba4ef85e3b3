//! The kernels on GPUs through wgpu, in WGSL. Regions that a kernel reads come before those that it writes.

use super::launcher::{Argument, Function, KERNELS, Launcher, MOST_GROUPS, Work};
use vrampool::BackendError;
use vrampool::wgpu::{Kernel, Program, WgpuDevice, WgpuMemory, WgpuStream};

const WGSL: &str = include_str!("kernels.wgsl");
/// The same as in `kernels.wgsl`.
const TILE: u64 = 16;
const THREADS: u64 = 256;

/// The kernels, loaded on one device.
#[derive(Debug)]
pub(crate) struct WgpuKernels {
    kernels: Vec<Kernel>,
    device: WgpuDevice,
}

impl WgpuKernels {
    pub(crate) fn load(device: &WgpuDevice) -> Result<Self, BackendError> {
        let program = Program::build(device, WGSL)?;
        let kernel = |(name, regions)| program.kernel(name, regions);
        let kernels = KERNELS.into_iter().map(kernel).collect::<Result<_, _>>()?;
        Ok(Self { kernels, device: device.clone() })
    }
}

impl Launcher<WgpuDevice> for WgpuKernels {
    fn device(&self) -> &WgpuDevice {
        &self.device
    }

    unsafe fn launch(
        &self,
        kernel: Function,
        stream: &WgpuStream,
        arguments: Vec<Argument<'_, WgpuMemory>>,
        work: Work,
    ) -> Result<(), BackendError> {
        let groups = match work {
            // Regions without elements cannot be bound.
            Work::Elements(0) => return Ok(()),
            Work::Elements(count) => (word(count.div_ceil(THREADS).min(MOST_GROUPS))?, 1),
            Work::Product(rows, columns) => (word(columns.div_ceil(TILE))?, word(rows.div_ceil(TILE))?),
            Work::Group => (1, 1),
        };
        let (mut read, mut written, mut words) = (Vec::new(), Vec::new(), Vec::new());
        for argument in arguments {
            match argument {
                Argument::Read(region) => read.push(region),
                Argument::Written(region) => written.push(region),
                Argument::Number(number) => words.push(word(number)?),
                Argument::Float(number) => words.push(number.to_bits()),
            }
        }
        self.kernels[kernel as usize].launch(stream, &read, &written, &words, groups)
    }
}

/// A size as the kernels have it: 32 bits, with room for the threads behind the last element.
fn word(size: u64) -> Result<u32, BackendError> {
    let fits = u32::try_from(size).ok().filter(|&size| size <= u32::MAX - THREADS as u32);
    fits.ok_or_else(|| {
        BackendError::invalid("region", format!("{size} elements are more than 32 bits count"))
    })
}
