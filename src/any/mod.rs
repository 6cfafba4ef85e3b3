//! A backend chosen at run time, of those that features compiled in.
//!
//! * [`open`] opens a device by its name; [`devices`] lists available devices, and why other backends are unavailable.
//! * [`AnyDevice`] is an enum of devices and a backend like any other: `Pool<AnyDevice>`,
//!   `DeviceArena<AnyDevice>`.
//! * A kernel needs the backend's own types: match on the enums, or ask them, as `AnyDevice::as_host` and
//!   `AnyStream::as_host`; regions give theirs by [`Region::project`](crate::Region::project).
//! * What belongs to another backend than the device is refused as an invalid argument, never a panic.
//!
//! | name | device |
//! |---|---|
//! | `auto` | what the environment variable `VRAMPOOL_BACKEND` names; without it the best there is |
//! | `cuda`, `cuda:1`, `cuda:GPU-01234567` | an NVIDIA GPU: the first, by number, by the beginning of its UUID |
//! | `opencl`, `opencl:1` | an OpenCL device: the first, by number |
//! | `wgpu`, `wgpu:1` | a GPU through Vulkan, Metal or DirectX 12: the first, by number |
//! | `host` | the host's own memory; the same device whenever it is opened |
//!
//! The best is a GPU by CUDA, else by OpenCL, else by wgpu, else the host's own memory. Of several the first
//! that does not share the host's memory comes first. A CPU behind a GPU's interface is opened only by its
//! name.
//!
//! ```
//! use vrampool::any::{self, AnyMemory};
//! use vrampool::{Backend, Pool};
//!
//! let device = any::open("host")?; // or "auto"
//! let stream = device.create_stream()?;
//! let pool = Pool::builder(&device).build()?;
//! let mut buffer = pool.allocate(4000, &stream)?;
//! let out = buffer.on_mut(&stream)?.project(AnyMemory::as_host)?;
//! stream.as_host()?.launch([], [out], |[], [out]: [&mut [f32]; 1]| out.fill(2.5))?;
//! # Ok::<(), vrampool::Error>(())
//! ```

pub(crate) mod available;
mod device;
mod family;
mod kernels;
mod name;
mod variants;
mod virtual_memory;

pub use available::{Absent, Devices, NotOpened};
pub use family::devices;
pub use name::{Name, from_environment, open};
pub use variants::{AnyDevice, AnyEvent, AnyMemory, AnyStream, AnyTestKernels};
pub use vrampool_backend::DeviceListing;

use vrampool_backend::BackendError;

/// A backend's devices.
#[derive(Debug)]
struct DeviceFamily {
    /// The backend's name, which is its feature's too.
    name: &'static str,
    /// The naming scheme of its devices.
    forms: &'static [&'static str],
    /// Its functions, if its feature is enabled.
    compiled: Option<Compiled>,
}

#[derive(Debug)]
struct Compiled {
    list: fn() -> Result<Vec<DeviceListing>, BackendError>,
    /// By a name that begins with the family's.
    open: fn(&str) -> Result<AnyDevice, BackendError>,
}
