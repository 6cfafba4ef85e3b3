//! Contexts, memory, queues and events of the driver. This module is the only unsafe code of this backend.
//!
//! A call of the driver is unsafe because the object of a handle may not exist any more. So each handle is in a
//! value that owns the object or keeps its owner alive, and functions take these values, never handles:
//! [`Context`], [`Allocation`], [`Queue`], [`RawEvent`]. A call makes its context current, and restores the
//! earlier one.

mod allocation;
mod context;
mod device;
mod event;
mod foreign;
mod layouts;
mod library;
mod memory_pool;
mod peers;
mod queue;
mod shared_handles;
mod test_kernels;
mod virtual_memory;

pub(crate) use allocation::{Allocation, Origin, Span};
pub(crate) use context::{Context, Cover, Current};
pub(crate) use device::RawDevice;
pub(crate) use event::RawEvent;
pub(crate) use library::{BACKEND, Library};
pub(crate) use memory_pool::{Figure, RawPool};
pub(crate) use queue::{Queue, QueueName};
pub use test_kernels::TestKernels;
pub(crate) use virtual_memory::{PhysicalTraits, RawPhysical};
