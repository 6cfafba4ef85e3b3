//! Contexts, queues, events and memory as the driver has them. With its parts, the only unsafe code of this
//! backend.
//!
//! What is unsafe about the driver is the life of what its handles name. So each handle is in a value that
//! owns a count of what it names, and a function here takes such values, never a handle: [`Context`],
//! [`Allocation`], [`Queue`], [`RawEvent`]. The standard lets every call be made from any thread, but the one
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

pub(crate) use allocation::{Allocation, KERNEL, Origin, Span, SubBuffer};
pub(crate) use context::{Context, RawEvent};
pub(crate) use device::RawDevice;
pub(crate) use handle::Handle;
pub(crate) use library::{BACKEND, Library};
pub use program::{Arguments, Grid, Kernel, Program};
pub(crate) use queue::Queue;
pub use queue::QueueOrder;
pub use test_kernels::TestKernels;
