//! Kernels for tests: writing a pattern, counting mismatches, and a delay.

use super::{Context, Cover};
use crate::device::CudaDevice;
use crate::error::from_cudarc;
use crate::memory::CudaMemory;
use crate::stream::CudaStream;
use cudarc::driver::{CudaFunction, DeviceSlice, LaunchArgs, LaunchConfig, PushKernelArg};
use std::mem;
use std::time::Duration;
use vrampool_backend::{BackendError, Region, RegionMut, fork};

/// The kernels, as the driver takes them: made from `test_kernels.cu`, which says how.
const PTX: &str = include_str!("test_kernels.ptx");
const THREADS: u32 = 256;
/// More than any device runs at once; each thread goes on to the next elements.
const MOST_BLOCKS: u64 = 4096;

/// Kernels that verify memory and the order of streams, compiled by the driver for one device: no toolkit is
/// needed. Tests use them, and so does `vrampool replay --touch`.
///
/// Each enqueues its work on `stream` and returns. Each refuses, as [`BackendError::InvalidArgument`],
/// regions of another stream or device, of the wrong size or alignment, and written ones that overlap others.
#[derive(Debug)]
pub struct TestKernels {
    write_pattern: CudaFunction,
    count_mismatches: CudaFunction,
    delay: CudaFunction,
    /// After the functions, with the last of which their module goes, and before the context itself.
    cover: Cover,
    context: Context,
}

impl Drop for TestKernels {
    fn drop(&mut self) {
        if fork::is_forked() {
            // All functions are of one module, which is the parent's: it is never dropped here.
            return mem::forget(self.write_pattern.clone());
        }
        self.cover = Cover::with(&self.context);
    }
}

impl TestKernels {
    /// The kernels, compiled for `device`.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn load(device: &CudaDevice) -> Result<Self, BackendError> {
        let context = &device.core.context;
        let _current = context.enter()?;
        let failed = |call, error| from_cudarc(context.library(), call, error);
        let module = context.cudarc().load_module(PTX.into());
        let module = module.map_err(|error| failed("cuModuleLoadData", error))?;
        let function =
            |name| module.load_function(name).map_err(|error| failed("cuModuleGetFunction", error));
        Ok(Self {
            write_pattern: function("write_pattern")?,
            count_mismatches: function("count_mismatches")?,
            delay: function("delay")?,
            cover: Cover::default(),
            context: context.clone(),
        })
    }

    /// Writes bytes that show which `seed` wrote them, and where. They begin at a multiple of 4.
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
        // SAFETY: the parameters are the kernel's; the start is aligned to its words, and it goes through
        // `count` bytes.
        unsafe {
            self.launch(&self.write_pattern, stream, elements(count / 4), |launch| {
                launch.arg(&mut bytes).arg(&count).arg(&seed);
            })
        }
    }

    /// Adds to the `u64` in `count` how many bytes are not as [`write_pattern`](Self::write_pattern) writes
    /// them.
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
        stream.check_regions(Some(&bytes), Some(&count.as_region()))?;
        let (bytes, mut count) = (stream.view::<u8>(bytes)?, stream.view_mut::<u64>(count)?);
        if count.len() != 1 {
            let reason = format!("it has {} elements, not 1", count.len());
            return Err(BackendError::invalid("count", reason));
        }
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
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: the parameter is the kernel's, which touches no memory.
        unsafe {
            self.launch(&self.delay, stream, config, |launch| {
                launch.arg(&nanoseconds);
            })
        }
    }

    /// # Safety
    /// `push` pushes what `kernel` takes, and with that and `config` the kernel stays within the regions that
    /// were pushed, which are of `stream`.
    unsafe fn launch<'a>(
        &'a self,
        kernel: &'a CudaFunction,
        stream: &'a CudaStream,
        config: LaunchConfig,
        push: impl FnOnce(&mut LaunchArgs<'a>),
    ) -> Result<(), BackendError> {
        if !self.context.is_same(stream.cudarc().context()) {
            return Err(BackendError::invalid("stream", "it belongs to another device than the kernels"));
        }
        // `cudarc` leaves a context current that was not.
        let _current = self.context.enter()?;
        let mut launch = stream.cudarc().launch_builder(kernel);
        push(&mut launch);
        // SAFETY: the caller's promise; kernel and stream are of one context, and regions are freed only
        // behind its work.
        let launched = unsafe { launch.launch(config) };
        launched.map(|_| ()).map_err(|error| from_cudarc(self.context.library(), "cuLaunchKernel", error))
    }
}

fn aligned(region: &Region<'_, CudaMemory>) -> Result<(), BackendError> {
    match region.address() {
        Some(address) if !address.is_multiple_of(4) => {
            Err(BackendError::invalid("region", "it does not begin at a multiple of 4"))
        }
        _ => Ok(()),
    }
}

/// As many threads as elements, or fewer, which take several in turn.
fn elements(count: u64) -> LaunchConfig {
    let blocks = count.div_ceil(u64::from(THREADS)).clamp(1, MOST_BLOCKS);
    LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}
