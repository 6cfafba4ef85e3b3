//! Physical memory: ranges of files that exist in memory alone.
//!
//! What stays in this process is a range of one file, so that thousands of handles need one descriptor; given
//! back, it becomes a hole. What can be exported has a file of its own, sealed so that nobody can cut it.

use crate::device::DeviceCore;
use crate::driver::{Place, Space};
use crate::fault::Call;
use crate::stream::on_a_stream;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use vrampool_backend::{BackendError, MemoryKind, Physical, fork};

/// The size of the file that is cut into ranges, bytes. It has holes but for what is in use, and no range is
/// used twice.
const FILE_BYTES: u64 = 1 << 62;

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
}

/// Refuses to grow a file over the process's limit: that is not an error but a signal, which ends the
/// process.
pub(crate) fn check_file_size(call: &'static str, bytes: u64) -> Result<(), BackendError> {
    if getrlimit(Resource::Fsize).current.is_some_and(|limit| limit < bytes) {
        let reason = "the process's limit on the size of files (ulimit -f) is below it";
        return Err(BackendError::driver(call, -1, reason));
    }
    Ok(())
}

/// Where a device's physical memory that stays in this process comes from. Its file is made when it is first
/// needed.
#[derive(Debug, Default)]
pub(crate) struct Files {
    shared_out: Mutex<Option<(Arc<File>, u64)>>,
}

impl Files {
    /// A range of the file that nobody had before: it reads as zeros.
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

/// Whose a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A range of the device's own; gone with the last that uses it.
    Private,
    /// Made to be exported.
    Shareable,
    /// Another's, who pays for it.
    Imported,
}

/// Physical memory. Dropping it gives it back; handles and mappings share it.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) origin: Origin,
    pub(crate) device: Arc<DeviceCore>,
}

impl Backing {
    /// What the file's bytes at a range of this memory are.
    pub(crate) fn place(&self, range: Range<u64>) -> Place {
        let (space, offset) = (self.file.space, self.offset);
        Place { space, start: offset + range.start, end: offset + range.end }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if fork::is_child() {
            // The file is the parent's too.
            return;
        }
        if self.origin == Origin::Private {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A signal may interrupt it; nothing else fails on a file in memory.
            while fallocate(&self.file.descriptor, hole, self.offset, self.len) == Err(Errno::INTR) {}
        }
        if self.origin != Origin::Imported {
            self.device.capacity().give_back(self.len);
        }
    }
}

/// What a [`Physical`] of this backend is made of. When the last handle is dropped, and the reservations that
/// map it are, the memory is free as soon as queued work that uses it is done.
#[derive(Debug)]
pub(crate) struct Handle {
    backing: Arc<Backing>,
}

impl Handle {
    pub(crate) fn backing(&self) -> &Arc<Backing> {
        &self.backing
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        let device = &self.backing.device;
        // Counting cannot fail, and a lost device frees all the same.
        let _ = device.faults().check(Call::ReleasePhysical);
        if self.backing.origin != Origin::Imported {
            device.capacity().drop_later(self.backing.len);
        }
    }
}

/// Memory that the device pays for; `file` finds it.
pub(crate) fn create(
    device: &Arc<DeviceCore>,
    bytes: u64,
    kind: MemoryKind,
    origin: Origin,
    file: impl FnOnce() -> Result<(Arc<File>, u64), BackendError>,
) -> Result<Physical, BackendError> {
    device.capacity().take(bytes, !on_a_stream())?;
    match file() {
        Ok((file, offset)) => {
            let device = Arc::clone(device);
            Ok(handle(Backing { file, offset, len: bytes, kind, origin, device }))
        }
        Err(error) => {
            device.capacity().untake(bytes);
            Err(error)
        }
    }
}

/// The first handle to memory.
pub(crate) fn handle(backing: Backing) -> Physical {
    Physical::new(backing.len, Handle { backing: Arc::new(backing) })
}

/// What the system said when it made a file.
fn no_file(call: &'static str, error: Errno, requested: u64) -> BackendError {
    match error {
        Errno::NOSPC => BackendError::out_of_memory(requested, None),
        error => no_memory_or(call, error, requested),
    }
}

/// What the system said: no memory, which addresses and the table of mappings are too, or something else.
pub(crate) fn no_memory_or(call: &'static str, error: Errno, requested: u64) -> BackendError {
    match error {
        Errno::NOMEM => BackendError::out_of_memory(requested, None),
        error => driver_error(call, error),
    }
}

/// What the system said.
pub(crate) fn driver_error(call: &'static str, error: Errno) -> BackendError {
    BackendError::driver(call, error.raw_os_error().into(), error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostDevice;
    use vrampool_backend::Placement;

    #[test]
    fn memory_that_is_given_back_goes_back_to_the_system() {
        let device = HostDevice::builder().granularity(4096).build();
        let core = device.core();
        let create = || {
            let file = || core.files().take(1 << 20);
            create(core, 1 << 20, Placement::Device.into(), Origin::Private, file).expect("memory")
        };
        let [one, two] = [create(), create()];
        let (file, offset) = {
            let backing = one.driver::<Handle>().expect("the host's").backing();
            (Arc::clone(&backing.file), backing.offset)
        };
        let blocks = || fstat(&file.descriptor).expect("a file").st_blocks;
        let touch = |offset| {
            let written = rustix::io::pwrite(&file.descriptor, &[1; 1 << 16], offset).expect("written");
            assert_eq!(written, 1 << 16);
        };
        touch(offset);
        touch(two.driver::<Handle>().expect("the host's").backing().offset);
        let used = blocks();
        assert!(used >= 256, "two times 64 KiB in blocks of 512 bytes, not {used}");
        drop(one);
        assert_eq!(blocks(), used / 2);
    }

    #[test]
    fn memory_whose_file_cannot_be_had_costs_nothing() {
        let device = HostDevice::builder().capacity(1 << 20).build();
        let error = BackendError::invalid("a test", "there is none");
        let file = || Err(error.clone());
        let answer = create(device.core(), 1 << 20, Placement::Device.into(), Origin::Private, file);
        assert_eq!(answer.err(), Some(error.clone()));
        assert_eq!(device.core().capacity().info(), Ok((1 << 20, 1 << 20)));
        let much = HostDevice::builder().capacity(u64::MAX).build();
        let answer = much.core().files().take(FILE_BYTES + 1);
        assert!(answer.is_err_and(|error| error.is_out_of_memory()), "no file is as large");
        assert!(much.core().files().take(FILE_BYTES).is_ok() && much.core().files().take(1).is_ok());
    }
}
