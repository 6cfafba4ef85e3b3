//! Writing and verifying memory with the test kernels of the backend of an `AnyDevice`.
#![allow(unused_variables, reason = "no backend may be compiled in")]

#[cfg(feature = "host")]
use super::host_touch::HostTouch;
use super::touch::Touch;
use crate::any::{AnyDevice, AnyMemory, AnyStream};
use vrampool_backend::{BackendError, Region, RegionMut};
#[cfg(feature = "cuda")]
use vrampool_cuda::{CudaDevice, CudaMemory, CudaStream};
#[cfg(feature = "opencl")]
use vrampool_opencl::{OpenClDevice, OpenClMemory, OpenClStream};
#[cfg(feature = "wgpu")]
use vrampool_wgpu::{WgpuDevice, WgpuMemory, WgpuStream};

/// A backend's kernels have it all.
#[allow(unused_macros, reason = "no such backend may be compiled in")]
macro_rules! touch_by {
    ($Kernels:ty: $Device:ty, $Memory:ty, $Stream:ty) => {
        impl Touch<$Device> for $Kernels {
            fn write(
                &self,
                stream: &$Stream,
                bytes: RegionMut<'_, $Memory>,
                seed: u64,
            ) -> Result<(), BackendError> {
                self.write_pattern(stream, bytes, seed)
            }

            fn verify(
                &self,
                stream: &$Stream,
                bytes: Region<'_, $Memory>,
                seed: u64,
                count: RegionMut<'_, $Memory>,
            ) -> Result<(), BackendError> {
                self.count_mismatches(stream, bytes, seed, count)
            }
        }
    };
}

#[cfg(feature = "cuda")]
touch_by!(vrampool_cuda::TestKernels: CudaDevice, CudaMemory, CudaStream);
#[cfg(feature = "opencl")]
touch_by!(vrampool_opencl::TestKernels: OpenClDevice, OpenClMemory, OpenClStream);
#[cfg(feature = "wgpu")]
touch_by!(vrampool_wgpu::TestKernels: WgpuDevice, WgpuMemory, WgpuStream);

/// Writes and verifies on an [`AnyDevice`].
#[derive(Debug)]
pub struct AnyTouch(Touches);

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one, and which it is depends on the features")]
enum Touches {
    #[cfg(feature = "cuda")]
    Cuda(vrampool_cuda::TestKernels),
    #[cfg(feature = "opencl")]
    OpenCl(vrampool_opencl::TestKernels),
    #[cfg(feature = "wgpu")]
    Wgpu(vrampool_wgpu::TestKernels),
    #[cfg(feature = "host")]
    Host(HostTouch),
}

impl AnyTouch {
    /// For `device`, whose kernels it may have to compile.
    ///
    /// # Errors
    /// Errors that the driver reports.
    pub fn load(device: &AnyDevice) -> Result<Self, BackendError> {
        match *device {
            #[cfg(feature = "cuda")]
            AnyDevice::Cuda(ref device) => Ok(Self(Touches::Cuda(vrampool_cuda::TestKernels::load(device)?))),
            #[cfg(feature = "opencl")]
            AnyDevice::OpenCl(ref device) => {
                Ok(Self(Touches::OpenCl(vrampool_opencl::TestKernels::load(device)?)))
            }
            #[cfg(feature = "wgpu")]
            AnyDevice::Wgpu(ref device) => Ok(Self(Touches::Wgpu(vrampool_wgpu::TestKernels::load(device)?))),
            #[cfg(feature = "host")]
            AnyDevice::Host(_) => Ok(Self(Touches::Host(HostTouch))),
        }
    }
}

/// By the touch of the device's backend.
macro_rules! on_each {
    ($touch:expr, $own:ident => $result:expr) => {
        match $touch.0 {
            #[cfg(feature = "cuda")]
            Touches::Cuda(ref $own) => $result,
            #[cfg(feature = "opencl")]
            Touches::OpenCl(ref $own) => $result,
            #[cfg(feature = "wgpu")]
            Touches::Wgpu(ref $own) => $result,
            #[cfg(feature = "host")]
            Touches::Host(ref $own) => $result,
        }
    };
}

impl Touch<AnyDevice> for AnyTouch {
    fn write(
        &self,
        stream: &AnyStream,
        bytes: RegionMut<'_, AnyMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        on_each!(self, touch => touch.write(stream.try_into()?, bytes.project(|memory| memory.try_into())?, seed))
    }

    fn verify(
        &self,
        stream: &AnyStream,
        bytes: Region<'_, AnyMemory>,
        seed: u64,
        count: RegionMut<'_, AnyMemory>,
    ) -> Result<(), BackendError> {
        on_each!(self, touch => {
            let (bytes, count) = (bytes.project(|memory| memory.try_into())?, count.project(|memory| memory.try_into())?);
            touch.verify(stream.try_into()?, bytes, seed, count)
        })
    }
}
