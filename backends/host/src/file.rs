//! Files that exist in memory alone.

use crate::driver::Space;
use crate::error::{driver_error, no_memory_or};
use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vrampool_backend::{BackendError, Scarce, spi};

/// The size of the file that is cut into ranges, bytes. It has holes but for what is in use, and no range is
/// used twice.
pub(crate) const FILE_BYTES: u64 = 1 << 62;

/// A file in memory.
#[derive(Debug)]
pub(crate) struct File {
    descriptor: OwnedFd,
    space: Space,
}

impl File {
    pub(crate) fn new(descriptor: OwnedFd) -> Result<Self, BackendError> {
        let stat = fstat(&descriptor).map_err(|error| driver_error("fstat", error))?;
        #[allow(clippy::unnecessary_cast, reason = "their types differ between processors")]
        let space = Space::File { device: stat.st_dev as u64, inode: stat.st_ino as u64 };
        Ok(Self { descriptor, space })
    }

    pub(crate) fn create(bytes: u64, flags: MemfdFlags) -> Result<Self, BackendError> {
        check_file_size("ftruncate", bytes)?;
        let descriptor = memfd_create("vrampool", MemfdFlags::CLOEXEC | flags)
            .map_err(|error| no_file("memfd_create", error, bytes))?;
        ftruncate(&descriptor, bytes).map_err(|error| no_file("ftruncate", error, bytes))?;
        Self::new(descriptor)
    }

    pub(crate) fn descriptor(&self) -> &OwnedFd {
        &self.descriptor
    }

    pub(crate) fn space(&self) -> Space {
        self.space
    }
}

/// Refuses to grow a file over the process's limit on the size of files.
pub(crate) fn check_file_size(call: &'static str, bytes: u64) -> Result<(), BackendError> {
    spi::check_file_size(bytes).map_err(|error| BackendError::driver(call, -1, error.to_string()))
}

/// Where a device's physical memory that stays in this process comes from. Its file is made when it is first
/// needed.
#[derive(Debug, Default)]
pub(crate) struct Files {
    shared_out: Mutex<Option<(Arc<File>, u64)>>,
}

impl Files {
    /// A range of the file that nothing had before: it reads as zeros.
    pub(crate) fn take(&self, bytes: u64) -> Result<(Arc<File>, u64), BackendError> {
        if bytes > FILE_BYTES {
            return Err(BackendError::out_of_memory(bytes, None));
        }
        let mut shared_out = self.shared_out.lock();
        let (file, next) = match &mut *shared_out {
            Some((file, next)) if FILE_BYTES - *next >= bytes => (file, next),
            slot => {
                let file = Arc::new(File::create(FILE_BYTES, MemfdFlags::empty())?);
                let (file, next) = slot.insert((file, 0));
                (file, next)
            }
        };
        let offset = *next;
        *next += bytes;
        Ok((Arc::clone(file), offset))
    }
}

/// Converts an error of making a file.
fn no_file(call: &'static str, error: Errno, requested: u64) -> BackendError {
    match error {
        Errno::NOSPC => BackendError::out_of_memory(requested, None),
        error => no_memory_or(call, error, requested, Scarce::Memory),
    }
}
