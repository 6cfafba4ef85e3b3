//! The contract between a pool and a device.
//!
//! * A [`Backend`] is one device. It allocates [`Memory`], creates [`Stream`]s, records [`Event`]s, copies
//!   and fills.
//! * Memory **frees itself on drop**, so there is no `free` to call twice and the pool needs no `unsafe`.
//! * An operation takes a [`Region`]: a range of a memory *as seen from one stream*. A region made for one
//!   stream is refused on another, so that a use that was not recorded cannot reach the device.
//! * Work on a stream runs in order and later. [`Backend::record`] marks a point in a stream,
//!   [`Backend::wait`] makes another stream wait for it, and the host is blocked only by
//!   [`Backend::synchronize`] and [`Backend::download`].
//! * [`VirtualMemory`] and [`SharedHandles`] are optional and have traits of their own. A device states what
//!   it has in [`Properties::capabilities`]; a pool never asks which backend it is.
//! * A [`Hook`] watches a pool. It is here, and not with the pool, because a driver's own pool calls hooks
//!   too.
//!
//! The traits are not sealed. New methods have defaults that return [`BackendError::Unsupported`].
#![doc = include_str!("../README.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]
// One call of the C library's, in `fork`.
#![deny(unsafe_code)]
// Not in the workspace's lints, because tests may.
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod access;
mod amount;
pub mod arguments;
pub mod conformance;
mod control_group;
mod device;
mod dropped_memory;
mod error;
mod file_size;
pub mod fork;
mod headroom;
mod hold;
mod hook;
mod hooks;
mod host_memory;
mod ledger;
mod listing;
pub mod logging;
mod mappings;
mod memory;
mod open_devices;
mod properties;
mod region;
mod request;
mod scarce;
mod shared_handles;
pub mod spi;
mod stream;
mod virtual_memory;
mod wait_out;

pub use amount::{Amount, InvalidAmount};
pub use device::Backend;
pub use error::BackendError;
pub use hold::HeldMemory;
pub use hook::{Holder, Hook, HookCalls, HookEvent, Outcome};
pub use listing::DeviceListing;
pub use memory::{Memory, MemoryKind, Placement, Usage};
pub use properties::{Capabilities, DeviceId, DeviceKind, MemoryInfo, Properties};
pub use region::{Region, RegionMut};
pub use request::AllocationRequest;
pub use scarce::Scarce;
pub use shared_handles::{ShareableHandle, ShareableKind, SharedHandles};
pub use stream::{CaptureId, Event, Stream, StreamId};
pub use virtual_memory::{Physical, VirtualMemory};
