//! Selects a device by its name, and runs a command on the device's own type, so that figures include no
//! dispatch of an enum.

use crate::timing::Rivals;
use std::error::Error;
use vrampool::any::{self, AnyDevice, Name};
#[cfg(feature = "cuda")]
use vrampool::cuda::{self, CudaDevice};
use vrampool::host::{self, HostDevice};
#[cfg(feature = "opencl")]
use vrampool::opencl::{self, OpenClDevice};
#[cfg(feature = "wgpu")]
use vrampool::wgpu::{self, WgpuDevice};
use vrampool::{Backend, BackendError};
use vrampool_trace::Touch;

/// A device that every command works on.
pub(crate) trait Device: Rivals {
    /// To write and verify with.
    fn touch(&self) -> Result<impl Touch<Self>, BackendError>;

    /// A device with so much memory, where one can have it as one likes; else this one.
    fn with_memory(&self, bytes: u64) -> Self {
        let _ = bytes;
        self.clone()
    }
}

impl Device for HostDevice {
    fn touch(&self) -> Result<impl Touch<Self>, BackendError> {
        Ok(host::TestKernels)
    }

    fn with_memory(&self, bytes: u64) -> Self {
        Self::builder().memory_limit(bytes).build()
    }
}

#[cfg(any(feature = "cuda", feature = "opencl", feature = "wgpu"))]
macro_rules! device_of {
    ($Device:ty, $TestKernels:ty) => {
        impl Device for $Device {
            fn touch(&self) -> Result<impl Touch<Self>, BackendError> {
                <$TestKernels>::load(self)
            }
        }
    };
}

#[cfg(feature = "cuda")]
device_of!(CudaDevice, cuda::TestKernels);
#[cfg(feature = "opencl")]
device_of!(OpenClDevice, opencl::TestKernels);
#[cfg(feature = "wgpu")]
device_of!(WgpuDevice, wgpu::TestKernels);

/// An operation on a device of any type.
pub(crate) trait Run {
    type Output;

    fn run<D: Device>(self, device: &D) -> Result<Self::Output, Box<dyn Error>>;
}

/// Calls `run` of the second argument with the [device](crate::device::open) of the first one's name, of the device's own type. A macro,
/// because each crate has features of its own for the backends.
#[macro_export]
macro_rules! run_on {
    ($name:expr, $what:expr) => {
        match $crate::device::open($name)? {
            #[cfg(feature = "cuda")]
            vrampool::any::AnyDevice::Cuda(device) => $what.run(&device),
            #[cfg(feature = "opencl")]
            vrampool::any::AnyDevice::OpenCl(device) => $what.run(&device),
            #[cfg(feature = "wgpu")]
            vrampool::any::AnyDevice::Wgpu(device) => $what.run(&device),
            vrampool::any::AnyDevice::Host(device) => $what.run(&device),
            other => Err(format!("the program has no kernels for {}", other.properties().name).into()),
        }
    };
}

/// Runs it on the [device of this name](open).
pub(crate) fn run<R: Run>(name: Option<&Name>, what: R) -> Result<R::Output, Box<dyn Error>> {
    run_on!(name, what)
}

/// Opens the device of this name; without a name that of `VRAMPOOL_BACKEND`, or the host.
///
/// # Errors
/// Without such a device.
pub fn open(name: Option<&Name>) -> Result<AnyDevice, Box<dyn Error>> {
    Ok(match name {
        Some(name) => any::open(&name.to_string())?,
        None => any::from_environment()?.unwrap_or_else(|| AnyDevice::Host(HostDevice::new())),
    })
}
