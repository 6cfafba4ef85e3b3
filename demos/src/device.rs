//! Devices with the kernels of the demonstrations. A command runs on the device's own type.

#[cfg(feature = "cuda")]
use crate::kernels::CudaKernels;
#[cfg(feature = "opencl")]
use crate::kernels::OpenClKernels;
#[cfg(feature = "wgpu")]
use crate::kernels::WgpuKernels;
use crate::kernels::{HostKernels, Kernels};
use vrampool::host::{Faults, HostDevice};
use vrampool::{Backend, BackendError};

/// A device that every demonstration works on.
pub(crate) trait Device: Backend {
    /// To train and to solve with.
    fn kernels(&self) -> Result<impl Kernels<Self>, BackendError>;

    /// A device with so much memory, in pages of so many bytes, where both can be chosen; else this one.
    fn with_pages(&self, bytes: u64, page: u64) -> Self {
        let _ = (bytes, page);
        self.clone()
    }

    /// Where failures of its calls are planned, if they can be.
    fn faults(&self) -> Option<&Faults> {
        None
    }
}

impl Device for HostDevice {
    fn kernels(&self) -> Result<impl Kernels<Self>, BackendError> {
        Ok(HostKernels)
    }

    fn with_pages(&self, bytes: u64, page: u64) -> Self {
        Self::builder().memory_limit(bytes).granularity(page).build()
    }

    fn faults(&self) -> Option<&Faults> {
        Some(Self::faults(self))
    }
}

#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
macro_rules! device_of {
    ($Device:ty, $Kernels:ty) => {
        impl Device for $Device {
            fn kernels(&self) -> Result<impl Kernels<Self>, BackendError> {
                <$Kernels>::load(self)
            }
        }
    };
}

#[cfg(feature = "cuda")]
device_of!(vrampool::cuda::CudaDevice, CudaKernels);
#[cfg(feature = "opencl")]
device_of!(vrampool::opencl::OpenClDevice, OpenClKernels);
#[cfg(feature = "wgpu")]
device_of!(vrampool::wgpu::WgpuDevice, WgpuKernels);
