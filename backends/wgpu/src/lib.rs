//! wgpu's devices as devices of a pool.
//!
//! * A device is [opened](WgpuDevice::open) here, with all the limits its adapter has, or is
//!   [the program's own](WgpuDevice::from_parts), whose error handler and callbacks stay as they are. Without
//!   a driver or a device, opening is [`BackendError::Unavailable`]. Nothing panics.
//! * [`Usage`] is wgpu's `BufferUsages`: memory of one usage is never served for another.
//! * There is one queue. All streams of a device append to one list of commands, which goes to the queue when
//!   it is long enough, or some code asks how far it is, or wants to submit something: so work is done in the
//!   order in which the calls were made, a wait costs nothing, and nothing is blocked for it.
//! * [`WgpuStream::view`] gives a region as a `BufferBinding`; [`WgpuStream::encode`] and
//!   [`WgpuStream::submit`] put the program's own commands in order with those of all others.
//! * Memory that is dropped counts as taken until the work that may use it is done; more than 32 MiB of it is
//!   submitted and, before more is allocated, waited for.
//! * Reading and waiting have an `async` form on every platform: [`WgpuDevice::read`], [`WgpuDevice::finish`].
//!   In a browser, where nothing can block, they are the only form, a device is opened by [`WgpuDevice::request`],
//!   and what would block is [`BackendError::WouldBlock`].
//! * Host-visible memory stays mapped. Uploads and downloads go through bounded pools of mapped buffers.
//! * Out of memory, a refused argument and a lost device are distinguished, by wgpu's error scopes.
//! * A [`Program`] has kernels whose launches are recorded with the pool's operations, without a submission
//!   each.
//! * [`TestKernels`] verify memory and the order of streams, in tests.
//!
//! ```no_run
//! use vrampool_wgpu::{AllocationRequest, Backend, Placement, Region, RegionMut, WgpuDevice};
//! # fn main() -> Result<(), vrampool_wgpu::BackendError> {
//! let device = match WgpuDevice::open(0) {
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

mod batch;
mod deferred;
mod device;
#[allow(unsafe_code, reason = "the one place that goes below wgpu; every block is argued")]
mod driver;
mod dropped;
mod error;
mod event;
mod gpu;
mod listing;
mod memory;
mod opening;
mod operand;
mod partial_word;
mod program;
mod recorder;
mod shared;
mod staging;
mod stream;
mod test_kernels;
mod transfer;
mod view;
mod waiting;

pub use device::WgpuDevice;
pub use event::WgpuEvent;
pub use listing::list;
pub use memory::WgpuMemory;
pub use program::{Kernel, Program};
pub use stream::WgpuStream;
pub use test_kernels::TestKernels;
pub use view::{WgpuView, WgpuViewMut};
pub use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Capabilities, DeviceId, DeviceKind, DeviceListing, Event,
    Memory, MemoryInfo, MemoryKind, Placement, Properties, Region, RegionMut, Stream, StreamId, Usage,
};
pub use wgpu;
