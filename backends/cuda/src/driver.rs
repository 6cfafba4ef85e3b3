//! Contexts, memory, queues and events as the driver has them. With its parts, the only unsafe code of this
//! backend.
//!
//! What is unsafe about the driver is the life of what its handles name. So each handle is in a value that
//! owns what it names, or keeps the owner alive, and a function here takes such values, never a handle:
//! [`Context`], [`Allocation`], [`Queue`], [`RawEvent`]. A context is entered before a call and left after
//! it, and left as it was found.

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
pub(crate) use context::{Context, Cover};
pub(crate) use device::RawDevice;
pub(crate) use event::RawEvent;
pub(crate) use library::{BACKEND, Library};
pub(crate) use memory_pool::{Figure, RawPool};
pub(crate) use queue::{Queue, QueueName};
pub use test_kernels::TestKernels;
pub(crate) use virtual_memory::{PhysicalTraits, RawPhysical};
