//! Physical memory handed from one process to another.

use crate::{BackendError, MemoryKind, VirtualMemory};
use std::fmt;

/// How a handle travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShareableKind {
    /// A file descriptor, within one host.
    FileDescriptor,
    /// A fabric handle, between hosts of one NVLink fabric.
    Fabric,
}

/// A device whose physical memory can be exported to, and imported from, another process.
pub trait SharedHandles: VirtualMemory {
    /// The operating system's or the fabric's handle. Dropping it closes it; the memory stays.
    type Handle: fmt::Debug + Send + 'static;

    /// The kinds of handle that this device really makes, best first: tried, not read from an attribute.
    fn shareable_kinds(&self) -> &[ShareableKind];

    /// As [`VirtualMemory::create_physical`], with memory that can be exported as `shareable`.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for a kind that is not in [`shareable_kinds`](Self::shareable_kinds).
    fn create_shareable(
        &self,
        bytes: u64,
        kind: MemoryKind,
        shareable: ShareableKind,
    ) -> Result<Self::Physical, BackendError>;

    /// A handle to `physical`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when it was not created shareable; else what the driver reports.
    fn export(&self, physical: &Self::Physical) -> Result<Self::Handle, BackendError>;

    /// The `bytes` of physical memory behind a handle.
    ///
    /// # Errors
    /// What the driver reports.
    fn import(&self, handle: Self::Handle, bytes: u64) -> Result<Self::Physical, BackendError>;
}
