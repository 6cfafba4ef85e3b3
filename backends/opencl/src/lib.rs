//! OpenCL devices as devices of a pool.
#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod account;
mod deferred;
mod device;
#[allow(unsafe_code, reason = "the one place that calls the driver; every block is argued")]
mod driver;
mod error;
mod event;
mod listing;
mod memory;
mod shared;
mod stream;
mod view;

pub use device::{OpenClBuilder, OpenClDevice};
pub use driver::{Adam, Factor, Kernels};
pub use event::OpenClEvent;
pub use listing::{Listed, list};
pub use memory::OpenClMemory;
pub use opencl_sys;
pub use stream::{OpenClStream, QueueOrder};
pub use view::{OpenClSubBuffer, OpenClView, OpenClViewMut};
pub use vrampool_backend::{
    Backend, BackendError, Capabilities, DeviceId, DeviceKind, Event, Memory, MemoryInfo, MemoryKind,
    Placement, Properties, Region, RegionMut, Stream, StreamId, Usage,
};
