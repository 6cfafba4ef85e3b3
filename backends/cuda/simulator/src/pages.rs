//! The system's calls that map addresses and make memory files.

use crate::code::{Answer, Code};
use parking_lot::RwLock;
use std::ffi::c_int;

/// Held shared by workers while they access memory, and exclusively while memory is unmapped.
pub(crate) static TOUCHING: RwLock<()> = RwLock::new(());

/// Maps zeroed memory that costs nothing until it is touched.
pub(crate) fn map_anonymous(bytes: u64, usable: bool) -> Option<u64> {
    let protection = if usable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then(|| start.expose_provenance() as u64)
}

/// Maps addresses that are not usable at `address`, if nothing is there.
pub(crate) fn map_at(address: u64, bytes: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let wished = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the flags have the system refuse addresses at which something is, so that nothing is replaced.
    let start = unsafe { libc::mmap(wished, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    let is_there = start == wished;
    if !is_there && start != libc::MAP_FAILED {
        // A system that does not know the flag.
        unmap(start.expose_provenance() as u64, bytes);
    }
    is_there
}

/// Releases addresses while no worker accesses memory.
pub(crate) fn unmap(address: u64, bytes: u64) {
    let _alone = TOUCHING.write();
    let start = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the range is one that this file mapped, whole, and that left the map of
    // addresses; no worker touches memory now, and later work finds that the range is not there.
    let _ = unsafe { libc::munmap(start, bytes as usize) };
}

/// Maps a file, or nothing, over a range of a reservation.
pub(crate) fn place(address: u64, bytes: u64, protection: c_int, file: Option<c_int>) -> bool {
    let _alone = TOUCHING.write();
    let flags = match file {
        Some(_) => libc::MAP_SHARED | libc::MAP_FIXED,
        None => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
    };
    let start = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the range lies in a reservation, which the driver mapped and nothing else has, so that nothing
    // else is replaced; no worker touches memory now.
    let placed = unsafe { libc::mmap(start, bytes as usize, protection, flags, file.unwrap_or(-1), 0) };
    placed != libc::MAP_FAILED
}

pub(crate) fn protect(address: u64, bytes: u64, protection: c_int) {
    let _alone = TOUCHING.write();
    let start = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the range is a mapping of a reservation; no worker touches memory now.
    let _ = unsafe { libc::mprotect(start, bytes as usize, protection) };
}

/// A memory file of so many bytes.
pub(crate) fn memory_file(bytes: u64) -> Answer<c_int> {
    // SAFETY: the name is a text that ends with a zero; the call makes a new descriptor.
    let file = unsafe { libc::memfd_create(c"simulated memory".as_ptr(), libc::MFD_CLOEXEC) };
    if file < 0 {
        return Err(Code::OUT_OF_MEMORY);
    }
    // SAFETY: the descriptor was made above and is this function's.
    if unsafe { libc::ftruncate(file, bytes as i64) } != 0 {
        // SAFETY: as above.
        let _ = unsafe { libc::close(file) };
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(file)
}

/// Another descriptor of the same file.
pub(crate) fn duplicate(file: c_int) -> Answer<c_int> {
    // SAFETY: a descriptor is a number; one that is not open is an error.
    let copy = unsafe { libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 0) };
    if copy < 0 { Err(Code::INVALID_VALUE) } else { Ok(copy) }
}

/// The size and the number of a file, if the descriptor is of one.
pub(crate) fn identify(file: c_int) -> Option<(u64, u64)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the call writes one `stat`, for which there is room.
    if unsafe { libc::fstat(file, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so the whole of it was written.
    let status = unsafe { status.assume_init() };
    Some((u64::try_from(status.st_size).ok()?, status.st_ino))
}
