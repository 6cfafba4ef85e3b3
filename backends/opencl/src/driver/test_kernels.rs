//! Kernels for tests: writing a pattern and counting mismatches.

use super::program::{Arguments, Grid, Kernel, Program};
use crate::device::OpenClDevice;
use crate::memory::OpenClMemory;
use crate::stream::OpenClStream;
use opencl_sys as cl;
use std::ffi::CString;
use vrampool_backend::{BackendError, Region, RegionMut};

/// The kernels, as every device's compiler takes them.
const SOURCE: &str = include_str!("test_kernels.cl");
/// The most items of a group, where the device has as many.
const THREADS: u64 = 256;
/// More than any device runs at once; each item goes on to the next elements.
const MOST_GROUPS: u64 = 4096;

/// Kernels that verify memory and the order of streams, compiled by the driver for one device. Tests use
/// them, and so does `vrampool replay --touch`.
///
/// Each enqueues its work on `stream` and returns. Each refuses, as [`BackendError::InvalidArgument`],
/// regions of another stream or device, of the wrong size or alignment, and written ones that overlap others.
/// Threads may share them.
#[derive(Debug)]
pub struct TestKernels {
    write_pattern: Kernel,
    count_mismatches: Kernel,
    threads: u64,
}

impl TestKernels {
    /// The kernels, compiled for `device`.
    ///
    /// # Errors
    /// Errors of the driver, with the compiler's log where it refuses them.
    pub fn load(device: &OpenClDevice) -> Result<Self, BackendError> {
        let most = device.info(cl::CL_DEVICE_MAX_WORK_GROUP_SIZE)?.max(1);
        let threads = THREADS.min(1 << most.ilog2());
        let options = CString::new(format!("-cl-std=CL1.2 -DTHREADS={threads}")).unwrap_or_default();
        let program = Program::build(device, SOURCE, &options)?;
        Ok(Self {
            write_pattern: program.kernel(c"write_pattern")?,
            count_mismatches: program.kernel(c"count_mismatches")?,
            threads,
        })
    }

    /// Writes bytes that show which `seed` wrote them, and where. They begin at a multiple of 4.
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
        let arguments = Arguments::new().view(&bytes).long(count).long(seed);
        // SAFETY: the arguments are the kernel's; the start is aligned to its words, and it goes through
        // `count` bytes.
        unsafe { self.write_pattern.launch(stream, self.elements(count / 4), &arguments) }
    }

    /// Adds to the `u64` in `count` how many bytes are not as [`write_pattern`](Self::write_pattern) writes
    /// them.
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
        stream.check_regions(Some(&bytes), Some(&count.as_region()))?;
        let (bytes, count) = (stream.view::<u8>(bytes)?, stream.view_mut::<u64>(count)?);
        if count.len() != 1 {
            let reason = format!("it has {} elements, not 1", count.len());
            return Err(BackendError::invalid("count", reason));
        }
        let len = bytes.len() as u64;
        let arguments = Arguments::new().view(&bytes).long(len).long(seed).view(&count);
        // SAFETY: as in `write_pattern`; the count is one aligned `u64`, and groups are as large as the
        // kernel asks for.
        unsafe { self.count_mismatches.launch(stream, self.elements(len / 4), &arguments) }
    }

    /// As many items as elements, or fewer, which take several in turn.
    fn elements(&self, count: u64) -> Grid {
        let groups = count.div_ceil(self.threads).clamp(1, MOST_GROUPS);
        Grid { groups: groups as usize, group: [self.threads as usize, 1] }
    }
}

fn aligned(region: &Region<'_, OpenClMemory>) -> Result<(), BackendError> {
    match region.offset().is_multiple_of(4) {
        true => Ok(()),
        false => Err(BackendError::invalid("region", "it does not begin at a multiple of 4")),
    }
}
