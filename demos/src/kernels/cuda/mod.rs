//! The kernels on NVIDIA GPUs: PTX that the driver compiles when it is loaded, so that no toolkit is needed.

use super::launcher::{Argument, Function, KERNELS, Launcher, MOST_GROUPS, Work};
use vrampool::BackendError;
use vrampool::cuda::cudarc::driver::{CudaFunction, DriverError, LaunchConfig, PushKernelArg};
use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream, CudaView, CudaViewMut};

/// The kernels as the driver takes them, made from `kernels.c`, which says how.
const PTX: &str = include_str!("kernels.ptx");
/// The same as in `kernels.c`.
const TILE: u64 = 16;
const THREADS: u64 = 256;

/// The kernels, loaded on one device.
#[derive(Debug)]
pub(crate) struct CudaKernels {
    kernels: Vec<CudaFunction>,
    device: CudaDevice,
}

impl CudaKernels {
    pub(crate) fn load(device: &CudaDevice) -> Result<Self, BackendError> {
        let module = device.context().load_module(PTX.into()).map_err(failed("cuModuleLoadData"))?;
        let function = |(name, _)| module.load_function(name).map_err(failed("cuModuleGetFunction"));
        let kernels = KERNELS.into_iter().map(function).collect::<Result<_, _>>()?;
        Ok(Self { kernels, device: device.clone() })
    }
}

/// An argument as it is pushed: by its place.
enum Pushed<'a> {
    View(CudaView<'a, f32>),
    ViewMut(CudaViewMut<'a, f32>),
    Number(u64),
    Float(f32),
}

impl Launcher<CudaDevice> for CudaKernels {
    fn device(&self) -> &CudaDevice {
        &self.device
    }

    unsafe fn launch(
        &self,
        kernel: Function,
        stream: &CudaStream,
        arguments: Vec<Argument<'_, CudaMemory>>,
        work: Work,
    ) -> Result<(), BackendError> {
        if stream.cudarc().context().cu_ctx() != self.device.context().cu_ctx() {
            return Err(BackendError::invalid("stream", "it belongs to another device than the kernels"));
        }
        let (groups, threads) = match work {
            Work::Product(rows, columns) => {
                (rows.div_ceil(TILE).saturating_mul(columns.div_ceil(TILE)), (TILE as u32, TILE as u32, 1))
            }
            Work::Elements(count) => (count.div_ceil(THREADS).clamp(1, MOST_GROUPS), (THREADS as u32, 1, 1)),
            Work::Group => (1, (THREADS as u32, 1, 1)),
        };
        let Some(groups) = i32::try_from(groups).ok() else {
            return Err(BackendError::invalid("product", "it has more tiles than a launch has blocks"));
        };
        let pushed = arguments.into_iter().map(|argument| {
            Ok(match argument {
                Argument::Read(region) => Pushed::View(stream.view(region)?),
                Argument::Written(region) => Pushed::ViewMut(stream.view_mut(region)?),
                Argument::Number(number) => Pushed::Number(number),
                Argument::Float(number) => Pushed::Float(number),
            })
        });
        let mut pushed = pushed.collect::<Result<Vec<_>, BackendError>>()?;
        let mut launch = stream.cudarc().launch_builder(&self.kernels[kernel as usize]);
        for argument in &mut pushed {
            match argument {
                Pushed::View(view) => launch.arg(&*view),
                Pushed::ViewMut(view) => launch.arg(view),
                Pushed::Number(number) => launch.arg(&*number),
                Pushed::Float(number) => launch.arg(&*number),
            };
        }
        let config =
            LaunchConfig { grid_dim: (groups as u32, 1, 1), block_dim: threads, shared_mem_bytes: 0 };
        // SAFETY: the caller's promise. Kernel and stream are of one context, and the memory of a region is
        // freed only behind the work on its stream.
        let launched = unsafe { launch.launch(config) };
        launched.map(drop).map_err(failed("cuLaunchKernel"))
    }
}

/// The error of a driver's call, in the contract's words.
fn failed(call: &'static str) -> impl Fn(DriverError) -> BackendError {
    move |error| BackendError::driver(call, error.0 as i64, error.to_string())
}
