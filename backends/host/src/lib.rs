//! A device made of the host: the default backend, and the test bed of every promise.
//!
//! * Each [`HostStream`] is a worker thread that runs copies, fills and [kernels](HostStream::launch) in
//!   order and *later*. A wait that was forgotten shows as wrong data, as it would on a GPU.
//! * Wrong data is all it can be. A kernel claims the ranges it touches, all at once; a claim that meets
//!   another one waits for it and is counted in [`HostDevice::races`]. So a missing wait is never undefined
//!   behaviour, and a test can ask whether one was missing.
//! * Its size, kind, latency and [`Faults`] are chosen when it is [built](HostDevice::builder): the n-th call
//!   of a kind fails, memory runs out at a byte, the device is lost.
//! * On Linux it has [virtual memory](VirtualMemory) that is real: reserved addresses into which memory is
//!   mapped, which [another process](SharedHandles) may map too. Work on what is not mapped there is an
//!   error, not the end of the process.
//! * Pages that nothing touches cost nothing: large memory is mapped and not written.
//!
//! ```
//! use vrampool_host::{AllocationRequest, Backend, HostDevice, Placement, Region, RegionMut};
//! # fn main() -> Result<(), vrampool_host::BackendError> {
//! let device = HostDevice::new();
//! let stream = device.create_stream()?;
//! let memory = device.allocate(&AllocationRequest::new(4 * 1024, Placement::Device))?;
//! stream.launch([], [RegionMut::whole(&memory, &stream)], |[], [out]: [&mut [f32]; 1]| out.fill(2.5))?;
//! let mut bytes = [0; 4];
//! device.download(&stream, Region::new(&memory, 0, 4, &stream)?, &mut bytes)?;
//! assert_eq!(f32::from_le_bytes(bytes), 2.5);
//! # Ok(())
//! # }
//! ```
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod builder;
mod capacity;
#[cfg(target_os = "linux")]
mod committed;
mod device;
#[allow(unsafe_code, reason = "the one place in which bytes become slices; every block is argued")]
mod driver;
#[cfg(target_os = "linux")]
mod error;
mod fault;
#[cfg(target_os = "linux")]
mod file;
mod memory;
#[cfg(target_os = "linux")]
mod physical;
mod shared;
#[cfg(target_os = "linux")]
mod shared_handles;
mod stream;
mod test_kernels;
#[cfg(target_os = "linux")]
mod virtual_memory;
mod worker;

pub use builder::HostBuilder;
pub use bytemuck;
pub use device::HostDevice;
pub use fault::{Call, Faults};
pub use memory::HostMemory;
pub use stream::{HostEvent, HostStream};
pub use test_kernels::TestKernels;
pub use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Capabilities, DeviceId, DeviceKind, Event, Memory, MemoryInfo,
    MemoryKind, Physical, Placement, Properties, Region, RegionMut, ShareableHandle, ShareableKind,
    SharedHandles, Stream, StreamId, Usage, VirtualMemory,
};
