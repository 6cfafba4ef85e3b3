//! Contexts, queues, events and memory of the driver. This module is the only unsafe code of this backend.
//!
//! A call of the driver is unsafe because the object of a handle may not exist any more. So each handle is in a
//! value that owns a count of the object, and functions take these values, never handles: [`Context`],
//! [`Allocation`], [`Queue`], [`RawEvent`]. The standard allows every call from any thread, except the call
//! that sets a kernel's arguments.

mod allocation;
mod calls;
mod context;
mod copies;
mod device;
mod foreign;
mod handle;
mod host_access;
mod host_side;
mod library;
mod program;
mod queue;
mod test_kernels;

pub(crate) use allocation::{Allocation, KERNEL, Origin, Span};
pub(crate) use context::{Context, RawEvent};
pub(crate) use device::RawDevice;
pub(crate) use handle::Handle;
pub(crate) use library::{BACKEND, Library};
pub use program::{Arguments, Grid, Kernel, Program};
pub(crate) use queue::Queue;
pub use test_kernels::TestKernels;
