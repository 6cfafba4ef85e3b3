//! Physical memory: ranges of files that exist in memory alone.
//!
//! Memory that stays in this process is a range of one file, so that thousands of handles need one descriptor.
//! A released range becomes a hole. Exportable memory has a separate file, sealed so that nothing can cut it.

use crate::committed::{Commitment, Exhausted, Place, commit};
use crate::driver;
use crate::fault::Call;
use crate::file::File;
use crate::shared::DeviceCore;
use crate::worker::on_a_stream;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{BackendError, MemoryKind, Physical, fork};

/// The origin of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A range of the device's own, which is released with its last user.
    Private,
    /// Made to be exported.
    Shareable,
    /// Another process's or device's, to which it is charged.
    Imported,
}

/// Physical memory. Dropping it releases it; handles and mappings share it.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) kind: MemoryKind,
    pub(crate) origin: Origin,
    pub(crate) device: Arc<DeviceCore>,
    /// Ends after the file has its hole.
    pub(crate) _commitment: Option<Commitment>,
}

impl Backing {
    /// Returns the place in the file of a range of this memory.
    pub(crate) fn place(&self, range: Range<u64>) -> driver::Place {
        let (space, offset) = (self.file.space(), self.offset);
        driver::Place { space, start: offset + range.start, end: offset + range.end }
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The file is the parent's too.
            return;
        }
        if self.origin == Origin::Private {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // A signal may interrupt it; nothing else fails on a file in memory.
            while fallocate(self.file.descriptor(), hole, self.offset, self.len) == Err(Errno::INTR) {}
        }
        if self.origin != Origin::Imported {
            self.device.capacity.release(self.len);
        }
    }
}

/// The state of a [`Physical`] of this backend. Once the last handle and all reservations that map it are dropped,
/// the memory is free as soon as queued work that uses it is complete.
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
        if fork::is_forked() {
            return;
        }
        let device = &self.backing.device;
        // Counting cannot fail, and a lost device frees all the same.
        let _ = device.faults.check(Call::ReleasePhysical);
        if self.backing.origin != Origin::Imported {
            device.capacity.drop_later(self.backing.len);
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
    let may_wait = !on_a_stream();
    device.capacity.take(bytes, may_wait)?;
    let made = commit_for(device, bytes, may_wait).and_then(|commitment| Ok((commitment, file()?)));
    match made {
        Ok((commitment, (file, offset))) => {
            if let Some(commitment) = &commitment {
                commitment.set_place(Place::File(Arc::clone(&file)));
            }
            let device = Arc::clone(device);
            Ok(handle(Backing { file, offset, len: bytes, kind, origin, device, _commitment: commitment }))
        }
        Err(error) => {
            device.capacity.untake(bytes);
            Err(error)
        }
    }
}

/// Commits bytes of a device that the process's control group bounds, after dropped memory if need be.
fn commit_for(
    device: &Arc<DeviceCore>,
    bytes: u64,
    may_wait: bool,
) -> Result<Option<Commitment>, BackendError> {
    if !device.slabs.ranges().are_committed() {
        return Ok(None);
    }
    loop {
        match commit(bytes) {
            Ok(commitment) => return Ok(commitment),
            Err(_) if may_wait && device.capacity.wait_for_dropped() => {}
            Err(Exhausted { available_bytes }) => {
                return Err(BackendError::out_of_memory(bytes, Some(available_bytes)));
            }
        }
    }
}

/// The first handle to memory.
pub(crate) fn handle(backing: Backing) -> Physical {
    Physical::new(backing.len, Handle { backing: Arc::new(backing) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostDevice;
    use crate::file::FILE_BYTES;
    use rustix::fs::fstat;
    use vrampool_backend::Placement;

    #[test]
    fn memory_that_is_released_goes_back_to_the_system() {
        let device = HostDevice::builder().granularity(4096).build();
        let core = &device.core;
        let create = || {
            let file = || core.files.take(1 << 20);
            create(core, 1 << 20, Placement::Device.into(), Origin::Private, file).expect("memory")
        };
        let [one, two] = [create(), create()];
        let (file, offset) = {
            let backing = one.driver::<Handle>().expect("the host's").backing();
            (Arc::clone(&backing.file), backing.offset)
        };
        let blocks = || fstat(file.descriptor()).expect("a file").st_blocks;
        let touch = |offset| {
            let written = rustix::io::pwrite(file.descriptor(), &[1; 1 << 16], offset).expect("written");
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
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let error = BackendError::invalid("a test", "there is none");
        let file = || Err(error.clone());
        let answer = create(&device.core, 1 << 20, Placement::Device.into(), Origin::Private, file);
        assert_eq!(answer.err(), Some(error.clone()));
        assert_eq!(device.core.capacity.info(), (1 << 20, 1 << 20));
        let much = HostDevice::builder().memory_limit(u64::MAX).build();
        let answer = much.core.files.take(FILE_BYTES + 1);
        assert!(answer.is_err_and(|error| error.is_out_of_memory()), "no file is as large");
        assert!(much.core.files.take(FILE_BYTES).is_ok() && much.core.files.take(1).is_ok());
    }
}
