//! OpenCL devices as devices of a pool.
//!
//! * The library is opened at run time and every function looked up before any is called: without a library,
//!   a platform or a device, [`OpenClDevice::open`] returns [`BackendError::Unavailable`]. Nothing panics.
//! * All callers that open a device by its number or name share one context of it. A device of
//!   [the program's own context](OpenClDevice::from_context), or [one by itself](OpenClDevice::builder), is
//!   another one.
//! * Streams are queues that run work in order, new ones or [the program's own](OpenClDevice::wrap_queue). One queue
//!   has one id, however often it is wrapped.
//! * Kernels take regions as [`OpenClView`] and [`OpenClViewMut`]: a buffer and an offset.
//! * A [`Program`] is compiled here, for callers without an OpenCL library of their own, and its kernels are
//!   launched on streams.
//! * [`TestKernels`] verify memory and the order of streams, in tests.
//! * The driver's error keeps its number and name. An error after which a context is of no more use is
//!   [`BackendError::DeviceLost`]; where the number is one that says both, the context is tried.
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod deferred;
mod device;
#[allow(unsafe_code, reason = "the one place that calls the driver; every block is argued")]
mod driver;
mod error;
mod event;
mod listing;
mod memory;
mod releases;
mod shared;
mod stream;
mod stream_core;
mod view;

pub use bytemuck;
pub use device::{OpenClBuilder, OpenClDevice};
pub use driver::{Arguments, Grid, Kernel, Program, TestKernels};
pub use event::OpenClEvent;
pub use listing::list;
pub use memory::OpenClMemory;
pub use opencl_sys;
pub use stream::OpenClStream;
pub use view::{OpenClView, OpenClViewMut};
pub use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Capabilities, DeviceId, DeviceKind, DeviceListing, Event,
    Memory, MemoryInfo, MemoryKind, Placement, Properties, Region, RegionMut, Stream, StreamId, Usage,
};
