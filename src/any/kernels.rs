//! Kernels for tests of a backend that is chosen at run time.
#![allow(unused_variables, reason = "no backend may be compiled in")]

use super::variants::{AnyDevice, AnyMemory, AnyStream, AnyTestKernels, on_each};
use vrampool_backend::{BackendError, Region, RegionMut};

impl AnyTestKernels {
    /// The test kernels of the device's backend, compiled for `device` where that is needed.
    ///
    /// # Errors
    /// Errors that the driver reports.
    pub fn load(device: &AnyDevice) -> Result<Self, BackendError> {
        match *device {
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(ref device) => vrampool_cuda::TestKernels::load(device).map(Self::Cuda),
            #[cfg(feature = "opencl")]
            AnyDevice::OpenCl(ref device) => vrampool_opencl::TestKernels::load(device).map(Self::OpenCl),
            #[cfg(feature = "wgpu")]
            AnyDevice::Wgpu(ref device) => vrampool_wgpu::TestKernels::load(device).map(Self::Wgpu),
            #[cfg(feature = "host")]
            AnyDevice::Host(_) => Ok(Self::Host(vrampool_host::TestKernels)),
        }
    }

    /// Writes bytes that show which `seed` wrote them, and where. The work is enqueued on `stream`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a stream or memory of another backend, and errors of the
    /// backend's own kernels.
    pub fn write_pattern(
        &self,
        stream: &AnyStream,
        bytes: RegionMut<'_, AnyMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        on_each!(self, kernels => {
            let bytes = bytes.project(|memory| memory.try_into())?;
            kernels.write_pattern(stream.try_into()?, bytes, seed)
        })
    }

    /// Adds to the little-endian `u64` in `count` how many of `bytes` are not as
    /// [`write_pattern`](Self::write_pattern) writes them.
    ///
    /// # Errors
    /// As [`write_pattern`](Self::write_pattern).
    pub fn count_mismatches(
        &self,
        stream: &AnyStream,
        bytes: Region<'_, AnyMemory>,
        seed: u64,
        count: RegionMut<'_, AnyMemory>,
    ) -> Result<(), BackendError> {
        on_each!(self, kernels => {
            let (bytes, count) = (bytes.project(|memory| memory.try_into())?, count.project(|memory| memory.try_into())?);
            kernels.count_mismatches(stream.try_into()?, bytes, seed, count)
        })
    }
}
