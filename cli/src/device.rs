//! Selects a device by its name, and runs a command on the device's own type, so that figures include no
//! dispatch of an enum.

#[cfg(feature = "cuda")]
use crate::kernels::CudaKernels;
#[cfg(feature = "opencl")]
use crate::kernels::OpenClKernels;
#[cfg(feature = "wgpu")]
use crate::kernels::WgpuKernels;
use crate::kernels::{HostKernels, Kernels, Oscillator};
use crate::timing::Rivals;
use std::error::Error;
use std::time::Duration;
use vrampool::any::{self, AnyDevice, Name};
#[cfg(feature = "cuda")]
use vrampool::cuda::{self, CudaDevice};
use vrampool::host::{self, Faults, HostDevice};
#[cfg(feature = "opencl")]
use vrampool::opencl::{self, OpenClDevice};
#[cfg(feature = "wgpu")]
use vrampool::wgpu::{self, WgpuDevice};
use vrampool::{Backend, BackendError};
use vrampool_trace::Touch;

/// A device that every command works on.
pub(crate) trait Device: Rivals {
    /// To train with.
    fn kernels(&self) -> Result<impl Kernels<Self>, BackendError>;

    /// To write and verify with.
    fn touch(&self) -> Result<impl Touch<Self>, BackendError>;

    /// To solve with.
    fn oscillator(&self) -> Result<impl Oscillator<Self>, BackendError>;

    /// A device with so much memory, where one can have it as one likes; else this one.
    fn with_memory(&self, bytes: u64) -> Self {
        let _ = bytes;
        self.clone()
    }

    /// As [`with_memory`](Self::with_memory), with pages of virtual memory of so many bytes.
    fn with_pages(&self, bytes: u64, page: u64) -> Self {
        let _ = page;
        self.with_memory(bytes)
    }

    /// Where failures of its calls are planned, if they can be.
    fn faults(&self) -> Option<&Faults> {
        None
    }

    /// A device each of whose copies and kernels takes so much longer, where one can have it as one likes.
    fn with_latency(&self, latency: Duration) -> Option<Self> {
        let _ = latency;
        None
    }
}

impl Device for HostDevice {
    fn kernels(&self) -> Result<impl Kernels<Self>, BackendError> {
        Ok(HostKernels)
    }

    fn touch(&self) -> Result<impl Touch<Self>, BackendError> {
        Ok(host::TestKernels)
    }

    fn oscillator(&self) -> Result<impl Oscillator<Self>, BackendError> {
        Ok(HostKernels)
    }

    fn with_memory(&self, bytes: u64) -> Self {
        Self::builder().memory_limit(bytes).build()
    }

    fn with_pages(&self, bytes: u64, page: u64) -> Self {
        Self::builder().memory_limit(bytes).granularity(page).build()
    }

    fn faults(&self) -> Option<&Faults> {
        Some(Self::faults(self))
    }

    fn with_latency(&self, latency: Duration) -> Option<Self> {
        Some(Self::builder().work_latency(latency).build())
    }
}

#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
macro_rules! device_of {
    ($Device:ty, $Kernels:ty, $TestKernels:ty) => {
        impl Device for $Device {
            fn kernels(&self) -> Result<impl Kernels<Self>, BackendError> {
                <$Kernels>::load(self)
            }

            fn touch(&self) -> Result<impl Touch<Self>, BackendError> {
                <$TestKernels>::load(self)
            }

            fn oscillator(&self) -> Result<impl Oscillator<Self>, BackendError> {
                <$Kernels>::load(self)
            }
        }
    };
}

#[cfg(feature = "cuda")]
device_of!(CudaDevice, CudaKernels, cuda::TestKernels);
#[cfg(feature = "opencl")]
device_of!(OpenClDevice, OpenClKernels, opencl::TestKernels);
#[cfg(feature = "wgpu")]
device_of!(WgpuDevice, WgpuKernels, wgpu::TestKernels);

/// What to do, on a device of whatever type.
pub(crate) trait Run {
    type Output;

    fn run<D: Device>(self, device: &D) -> Result<Self::Output, Box<dyn Error>>;
}

/// Does it on the device of this name; without one on that of `VRAMPOOL_BACKEND`, or the host.
pub(crate) fn run<R: Run>(name: Option<&Name>, what: R) -> Result<R::Output, Box<dyn Error>> {
    let device = match name {
        Some(name) => any::open(&name.to_string())?,
        None => match any::from_environment()? {
            Some(device) => device,
            None => AnyDevice::Host(HostDevice::new()),
        },
    };
    match device {
        #[cfg(feature = "cuda")]
        AnyDevice::Cuda(device) => what.run(&device),
        #[cfg(feature = "opencl")]
        AnyDevice::OpenCl(device) => what.run(&device),
        #[cfg(feature = "wgpu")]
        AnyDevice::Wgpu(device) => what.run(&device),
        AnyDevice::Host(device) => what.run(&device),
        other => Err(format!("the program has no kernels for {}", other.properties().name).into()),
    }
}
