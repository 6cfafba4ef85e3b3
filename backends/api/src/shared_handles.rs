//! Handles that share physical memory between processes.

use crate::{AllocationRequest, BackendError, Physical};
use std::fmt;

/// How a handle travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShareableKind {
    /// A file descriptor, within one host. Not on Windows.
    FileDescriptor,
    /// A handle of Windows, within one host.
    WindowsHandle,
    /// A fabric handle, between hosts of one NVLink fabric.
    Fabric,
}

/// A handle to physical memory, for another process.
#[derive(Debug)]
#[non_exhaustive]
pub enum ShareableHandle {
    /// To be passed over a socket. Dropping it closes it; the memory stays.
    #[cfg(unix)]
    FileDescriptor(std::os::fd::OwnedFd),
    /// To be duplicated into the other process. Dropping it closes it; the memory stays.
    #[cfg(windows)]
    WindowsHandle(std::os::windows::io::OwnedHandle),
    /// Bytes, to be passed in any way.
    Fabric([u8; 64]),
}

/// Operations of a device whose physical memory can be exported to, and imported from, another process.
/// [`Backend::shared_handles`](crate::Backend::shared_handles) returns it.
pub trait SharedHandles: fmt::Debug + Send + Sync {
    /// The kinds of handle that this device really makes, best first: tried, not read from an attribute.
    fn shareable_kinds(&self) -> &[ShareableKind];

    /// As [`VirtualMemory::create_physical`](crate::VirtualMemory::create_physical), with memory that can be
    /// exported as `shareable`.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for a kind that is not in [`shareable_kinds`](Self::shareable_kinds);
    /// else as there.
    fn create_shareable(
        &self,
        request: &AllocationRequest<'_>,
        shareable: ShareableKind,
    ) -> Result<Physical, BackendError>;

    /// A handle to `physical`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when it was not created shareable; else errors of the driver.
    fn export(&self, physical: &Physical) -> Result<ShareableHandle, BackendError>;

    /// The `bytes` of physical memory behind a handle.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when it is no handle to so many bytes; else errors of the driver.
    fn import(&self, handle: ShareableHandle, bytes: u64) -> Result<Physical, BackendError>;
}
