//! Selects a device by its name, and runs a command on the device's own type, so that figures include no
//! dispatch of an enum.

use crate::timing::Rivals;
use std::error::Error;
use vrampool::BackendError;
use vrampool::any::{self, AnyDevice, Name};
#[cfg(feature = "cuda")]
use vrampool::cuda::{self, CudaDevice};
use vrampool::host::{self, HostDevice};
#[cfg(feature = "opencl")]
use vrampool::opencl::{self, OpenClDevice};
#[cfg(feature = "wgpu")]
use vrampool::wgpu::{self, WgpuDevice};
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

/// Evaluates an expression with the [device](crate::device::open) of a name, of the device's own type. A macro, because
/// each crate has features of its own for the backends.
#[macro_export]
macro_rules! on_device {
    ($name:expr, |$device:ident| $act:expr) => {
        match $crate::device::open($name)? {
            #[cfg(feature = "cuda")]
            vrampool::any::AnyDevice::Cuda($device) => $act,
            #[cfg(feature = "opencl")]
            vrampool::any::AnyDevice::OpenCl($device) => $act,
            #[cfg(feature = "wgpu")]
            vrampool::any::AnyDevice::Wgpu($device) => $act,
            vrampool::any::AnyDevice::Host($device) => $act,
            other => {
                let name = &vrampool::Backend::properties(&other).name;
                Err(format!("the program has no kernels for {name}").into())
            }
        }
    };
}
pub(crate) use on_device;

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
