//! What a process leaves of its addresses where it may have so many bytes of them and no more (`ulimit -v`, and
//! `ulimit -d` for those that it may write).
//!
//! When large allocations leave nothing, the next small one ends the process, and so does the start of a
//! thread: both are what reports that memory ran out.

use crate::BackendError;
use std::io;

/// Bytes that are left: a thread's stack, and then what threads and reports of errors take.
const HEADROOM_BYTES: usize = 4 << 20;

/// From this size on an allocation is large, bytes.
const LARGE_BYTES: usize = 64 << 10;

/// Whether this process can still have some megabytes of addresses. A backend calls it after it has taken
/// many, and gives them back and reports that memory ran out if it cannot.
///
/// Always `true` where addresses are not limited. Takes some microseconds.
///
/// ```
/// use vrampool_backend::{BackendError, spi::has_headroom};
/// fn keep<T>(memory: T, bytes: u64) -> Result<T, BackendError> {
///     if has_headroom() { Ok(memory) } else { Err(BackendError::out_of_memory(bytes, None)) }
/// }
/// # assert!(keep((), 1).is_ok());
/// ```
#[must_use]
pub fn has_headroom() -> bool {
    #[cfg(unix)]
    return memmap2::MmapOptions::new().len(HEADROOM_BYTES).map_anon().is_ok();
    #[cfg(not(unix))]
    return true;
}

/// Call it before a thread is started: a thread that has a stack and not the few pages that it needs next
/// ends the process.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let thread = std::thread::Builder::new().name("worker".into());
/// vrampool_backend::spi::check_headroom_for_thread()?;
/// let thread = thread.spawn(|| 7)?;
/// # assert!(thread.join().is_ok_and(|answer| answer == 7));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`] where [`has_headroom`] answers `false`.
pub fn check_headroom_for_thread() -> io::Result<()> {
    if has_headroom() { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

/// Makes room in `vec` for so many more elements, and leaves [headroom](has_headroom). On an error the vector is
/// empty.
///
/// ```
/// use vrampool_backend::spi::reserve;
/// let mut bytes: Vec<u8> = Vec::new();
/// reserve(&mut bytes, 1 << 20)?;
/// assert!(bytes.capacity() >= 1 << 20);
/// assert!(reserve(&mut bytes, usize::MAX).unwrap_err().is_out_of_memory());
/// assert_eq!(bytes.capacity(), 0);
/// # Ok::<(), vrampool_backend::BackendError>(())
/// ```
///
/// # Errors
/// [`BackendError::OutOfMemory`] where the process has no such memory.
pub fn reserve<T>(vec: &mut Vec<T>, additional: usize) -> Result<(), BackendError> {
    if vec.capacity() - vec.len() >= additional {
        return Ok(());
    }
    let bytes = additional.saturating_mul(size_of::<T>());
    let has_room = vec.try_reserve_exact(additional).is_ok() && (bytes < LARGE_BYTES || has_headroom());
    if has_room {
        return Ok(());
    }
    *vec = Vec::new();
    Err(BackendError::out_of_memory(bytes as u64, None))
}
