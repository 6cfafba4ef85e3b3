//! NVIDIA GPUs as devices of a pool.
//!
//! * The driver is opened at run time and every function looked up before any is called: without a driver,
//!   with an old one, or without a device, [`CudaDevice::open`] returns [`BackendError::Unavailable`].
//!   Nothing panics.
//! * A device is used in its primary context, as every other library uses it, or in
//!   [the program's own](CudaDevice::from_context). A call leaves the thread's current context as it found
//!   it.
//! * Streams are the program's own, [wrapped](CudaDevice::wrap_stream), or
//!   [raw handles](CudaDevice::wrap_raw_stream) of other libraries', the [null](CudaDevice::null_stream) and
//!   the [per-thread](CudaDevice::per_thread_stream) default stream, or new non-blocking ones. One stream has
//!   one id, however often it is wrapped.
//! * Kernels and libraries take regions as [`CudaView`] and [`CudaViewMut`], which launch, copy and pass to
//!   cuBLAS or NCCL through [`cudarc`], re-exported here. A view costs no event.
//! * [`DriverPool`] is one of the driver's own pools, which allocate and free in the order of a stream:
//!   CuPy's `MemoryAsyncPool`. A pool over it is made by `Source::Driver`.
//! * [Virtual memory](VirtualMemory): addresses reserved once, a [`CudaMemory`] like any other, and physical
//!   memory mapped there piece by piece, which [other processes](SharedHandles) can have too.
//! * [`TestKernels`] verify memory and the order of streams, in tests.
//! * The driver's error keeps its number, name and text. An error after which a context is of no more use is
//!   [`BackendError::DeviceLost`].
//!
//! ```no_run
//! use vrampool_cuda::{AllocationRequest, Backend, CudaDevice, Placement, Region, RegionMut};
//! # fn main() -> Result<(), vrampool_cuda::BackendError> {
//! let device = match CudaDevice::open(0) {
//!     Err(error) if error.is_unavailable() => return Ok(println!("{error}")),
//!     device => device?,
//! };
//! let stream = device.create_stream()?;
//! let memory = device.allocate(&AllocationRequest::new(4 * 1024, Placement::Device))?;
//! device.fill(&stream, RegionMut::whole(&memory, &stream), 7)?;
//! let mut bytes = [0; 4];
//! device.download(&stream, Region::new(&memory, 0, 4, &stream)?, &mut bytes)?;
//! assert_eq!(bytes, [7; 4]);
//! # Ok(())
//! # }
//! ```
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod device;
#[allow(unsafe_code, reason = "the one place that calls the driver; every block is argued")]
mod driver;
mod driver_pool;
mod error;
mod event;
mod event_cache;
mod listing;
mod memory;
mod physical;
mod shared;
mod shared_handles;
mod stream;
mod stream_core;
mod stream_ordered;
mod view;
mod virtual_memory;

pub use bytemuck;
pub use cudarc;
pub use device::CudaDevice;
pub use driver::TestKernels;
pub use driver_pool::{DriverPool, PoolHandle};
pub use event::CudaEvent;
pub use listing::list;
pub use memory::CudaMemory;
pub use stream::CudaStream;
pub use view::{CudaView, CudaViewMut};
pub use vrampool_backend::{
    AllocationRequest, Amount, Backend, BackendError, Capabilities, DeviceId, DeviceKind, DeviceListing,
    Event, Memory, MemoryInfo, MemoryKind, Physical, Placement, Properties, Region, RegionMut,
    ShareableHandle, ShareableKind, SharedHandles, Stream, StreamId, Usage, VirtualMemory,
};
