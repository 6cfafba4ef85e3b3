//! Sharing of physical memory between processes on Linux: a file in memory.

use crate::device::HostDevice;
use crate::error::driver_error;
use crate::fault::Call;
use crate::file::File;
use crate::physical::{self, Backing, Origin};
use rustix::fs::{
    MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat, fstatfs,
};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vrampool_backend::{
    AllocationRequest, BackendError, MemoryKind, Physical, ShareableHandle, ShareableKind, SharedHandles,
    arguments,
};

/// The type that `statfs` returns for files in memory (`TMPFS_MAGIC` in Linux's `magic.h`).
const MEMORY_FILES: u64 = 0x0102_1994;

/// Exported memory keeps its size: it is sealed, so that no holder of a handle can truncate it and make
/// accesses of the others fail. It is charged to the device that created it, as long as *that* device uses it.
///
/// Within a process the work of all devices on the same bytes is ordered, imported memory included. Between processes
/// it is not: the program synchronizes them, as with GPUs.
impl SharedHandles for HostDevice {
    fn shareable_kinds(&self) -> &[ShareableKind] {
        &[ShareableKind::FileDescriptor]
    }

    fn create_shareable(
        &self,
        request: &AllocationRequest<'_>,
        shareable: ShareableKind,
    ) -> Result<Physical, BackendError> {
        self.core.faults.check(Call::CreatePhysical)?;
        if shareable != ShareableKind::FileDescriptor {
            return Err(BackendError::unsupported("handles that are not file descriptors"));
        }
        let &AllocationRequest { bytes, kind, .. } = request;
        arguments::check_granularity(0, bytes, self.core.granularity)?;
        self.core.pause_before_allocation();
        physical::create(&self.core, bytes, kind, Origin::Shareable, || Ok((Arc::new(sealed(bytes)?), 0)))
    }

    /// Imported memory can be exported again.
    fn export(&self, physical: &Physical) -> Result<ShareableHandle, BackendError> {
        self.core.faults.check(Call::Export)?;
        let backing = self.check_physical(physical)?.backing();
        if backing.origin == Origin::Private {
            return Err(BackendError::invalid("physical", "it was not created shareable"));
        }
        let copy = rustix::io::fcntl_dupfd_cloexec(backing.file.descriptor(), 0);
        Ok(ShareableHandle::FileDescriptor(copy.map_err(|error| driver_error("dup", error))?))
    }

    fn import(&self, handle: ShareableHandle, bytes: u64) -> Result<Physical, BackendError> {
        self.core.faults.check(Call::Import)?;
        arguments::check_granularity(0, bytes, self.core.granularity)?;
        let ShareableHandle::FileDescriptor(descriptor) = handle else {
            return Err(BackendError::unsupported("handles that are not file descriptors"));
        };
        check_handle(&descriptor, bytes)?;
        Ok(physical::handle(Backing {
            file: Arc::new(File::new(descriptor)?),
            offset: 0,
            len: bytes,
            kind: MemoryKind::default(),
            origin: Origin::Imported,
            device: Arc::clone(&self.core),
            _commitment: None,
        }))
    }
}

/// A file that stays as large as it is, and stays writable.
fn sealed(bytes: u64) -> Result<File, BackendError> {
    let file = File::create(bytes, MemfdFlags::ALLOW_SEALING)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(file.descriptor(), seals).map_err(|error| driver_error("fcntl", error))?;
    Ok(file)
}

/// Refuses whatever is not memory of that size, or could stop to be.
fn check_handle(descriptor: &OwnedFd, bytes: u64) -> Result<(), BackendError> {
    let invalid = |reason: &str| Err(BackendError::invalid("handle", reason));
    let system = fstatfs(descriptor).map_err(|error| driver_error("fstatfs", error))?;
    #[allow(clippy::unnecessary_cast, reason = "its type differs between processors")]
    if system.f_type as u64 != MEMORY_FILES {
        return invalid("it is not a file in memory");
    }
    // A file that cannot be sealed at all says so by an error.
    let seals = fcntl_get_seals(descriptor).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        return invalid("the file is not sealed against being cut");
    }
    let flags = fcntl_getfl(descriptor).map_err(|error| driver_error("fcntl", error))?;
    if flags & OFlags::RWMODE != OFlags::RDWR || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE)
    {
        return invalid("the file cannot be written");
    }
    let size = fstat(descriptor).map_err(|error| driver_error("fstat", error))?.st_size;
    if u64::try_from(size).is_ok_and(|size| size >= bytes) {
        return Ok(());
    }
    invalid("the file is smaller")
}
