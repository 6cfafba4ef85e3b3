//! Handles that share physical memory with another process.

use super::context::Context;
use super::layouts::{Location, handle_type};
use super::virtual_memory::RawPhysical;
use crate::error::{INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, OPERATING_SYSTEM};
use std::ffi::{c_int, c_void};
#[cfg(unix)]
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
#[cfg(windows)]
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle, RawHandle};
use vrampool_backend::{BackendError, ShareableHandle, ShareableKind};

/// The driver's results for a mapping of another size than the memory has: invalid, or (seen on an H200)
/// not supported.
const REFUSED_SIZE: [i64; 2] = [INVALID_VALUE as i64, NOT_SUPPORTED as i64];

impl RawPhysical {
    /// A handle to it. Refuses memory that was not made for one.
    pub(crate) fn export(&self) -> Result<ShareableHandle, BackendError> {
        match self.shareable() {
            #[cfg(unix)]
            Some(ShareableKind::FileDescriptor) => {
                let mut descriptor: c_int = -1;
                let place = (&raw mut descriptor).cast();
                // SAFETY: a descriptor is a `c_int`.
                unsafe { self.export_to(place, ShareableKind::FileDescriptor) }?;
                // SAFETY: the driver opened it just now, for the caller to close.
                let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
                // The copy is closed when another program is started, which would keep the memory otherwise.
                let copy = owned.try_clone().map_err(|error| {
                    BackendError::driver(
                        "fcntl",
                        i64::from(error.raw_os_error().unwrap_or(0)),
                        error.to_string(),
                    )
                })?;
                Ok(ShareableHandle::FileDescriptor(copy))
            }
            #[cfg(windows)]
            Some(ShareableKind::WindowsHandle) => {
                let mut handle: RawHandle = std::ptr::null_mut();
                // SAFETY: a handle is a pointer.
                unsafe { self.export_to((&raw mut handle).cast(), ShareableKind::WindowsHandle) }?;
                // SAFETY: the driver opened it just now, for the caller to close.
                Ok(ShareableHandle::WindowsHandle(unsafe { OwnedHandle::from_raw_handle(handle) }))
            }
            Some(ShareableKind::Fabric) => {
                let mut bytes = [0u8; 64];
                // SAFETY: a `CUmemFabricHandle` is 64 bytes.
                unsafe { self.export_to((&raw mut bytes).cast(), ShareableKind::Fabric) }?;
                Ok(ShareableHandle::Fabric(bytes))
            }
            _ => Err(BackendError::invalid("physical", "it was not created to be exported")),
        }
    }

    /// # Safety
    /// `to` has room for a handle of `kind`.
    unsafe fn export_to(&self, to: *mut c_void, kind: ShareableKind) -> Result<(), BackendError> {
        let library = self.context().library;
        let export = library.virtual_memory()?.cuMemExportToShareableHandle;
        let current = self.context().enter()?;
        let _relaxed = current.relaxed();
        // SAFETY: this value keeps its handle alive; the call writes one handle of the kind, for which there
        // is room.
        let code = unsafe { export(to, self.handle(), handle_type(kind), 0) };
        library.check("cuMemExportToShareableHandle", code)
    }
}

impl Context {
    /// The memory behind `handle`, of which the caller says that it has `bytes` bytes, a multiple of
    /// `granularity` and no more than there is, on the device of this number of the driver's.
    pub(crate) fn import(
        &self,
        handle: &ShareableHandle,
        bytes: u64,
        granularity: u64,
        device: c_int,
    ) -> Result<RawPhysical, BackendError> {
        let (kind, place) = match handle {
            #[cfg(unix)]
            ShareableHandle::FileDescriptor(descriptor) => {
                // The driver takes the number itself for a pointer.
                let number = usize::try_from(descriptor.as_raw_fd()).unwrap_or(usize::MAX);
                (ShareableKind::FileDescriptor, std::ptr::without_provenance_mut(number))
            }
            #[cfg(windows)]
            ShareableHandle::WindowsHandle(handle) => {
                (ShareableKind::WindowsHandle, handle.as_raw_handle().cast())
            }
            ShareableHandle::Fabric(bytes) => (ShareableKind::Fabric, bytes.as_ptr().cast_mut().cast()),
            _ => return Err(BackendError::unsupported("importing a handle of this kind")),
        };
        // SAFETY: `handle` keeps the descriptor or Windows' handle open, or has the 64 bytes.
        let physical = unsafe { self.import_from(place, kind, bytes) }?;
        if physical.location().is_some_and(|location| location != Location::device(device)) {
            return Err(BackendError::invalid("handle", "it is one to memory of another device"));
        }
        // The driver does not report how much it is, but refuses to map more, or less.
        let trial = self.reserve(bytes + granularity)?;
        let has = |bytes| match trial.map_first(bytes, 0, &physical) {
            Ok(()) => trial.unmap(0, bytes).map(|()| true),
            Err(BackendError::Driver { code, .. }) if REFUSED_SIZE.contains(&code) => Ok(false),
            Err(error) => Err(error),
        };
        if has(bytes)? && !has(bytes + granularity)? {
            return Ok(physical);
        }
        Err(BackendError::invalid("bytes", format!("the handle is not one to {bytes} bytes")))
    }

    /// # Safety
    /// `place` is a handle of `kind`, as the driver takes it: the number of a descriptor that is open, or
    /// where 64 bytes are.
    unsafe fn import_from(
        &self,
        place: *mut c_void,
        kind: ShareableKind,
        bytes: u64,
    ) -> Result<RawPhysical, BackendError> {
        let import = self.library.virtual_memory()?.cuMemImportFromShareableHandle;
        let mut handle = 0;
        let current = self.enter()?;
        let _relaxed = current.relaxed();
        // SAFETY: the caller's promise; the call writes one handle, which lives here. What is no handle the
        // driver refuses.
        let code = unsafe { import(&raw mut handle, place, handle_type(kind)) };
        if matches!(code, INVALID_VALUE | INVALID_HANDLE | OPERATING_SYSTEM) {
            let reason =
                format!("the driver answers {}: {}", self.library.name(code), self.library.text(code));
            return Err(BackendError::invalid("handle", reason));
        }
        current.served("cuMemImportFromShareableHandle", code, bytes)?;
        // SAFETY: the driver made the handle just now, and nothing else has it. If it is of another device,
        // the caller lets it go.
        Ok(unsafe { RawPhysical::adopt(self, handle, bytes, Some(kind)) })
    }
}
