//! A reserve of address space in processes with a limit (`ulimit -v`, and `ulimit -d` for writable addresses).
//!
//! If large allocations took all addresses, the next small allocation or the start of a thread would end the
//! process, and an error could not be reported. So the remaining addresses are read before an allocation, by one
//! thread at a time. A trial allocation would leave no addresses to other threads meanwhile.

use crate::BackendError;
use crate::host_memory::{Left, group_memory_left};
use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes of the reserve, for threads and reports of errors.
const HEADROOM_BYTES: u64 = 4 << 20;

/// From this size on an allocation is large, bytes.
const LARGE_BYTES: usize = 64 << 10;

/// The address space of a new thread, bytes: its stack.
const STACK_BYTES: usize = 2 << 20;

/// Runs `take`, which takes so many bytes of addresses, and so many of them to write. `None` where a limit of the
/// process would leave less than some megabytes after that.
///
/// Without a limit when this is first called, no more than `take`; with one, some tens of microseconds more.
///
/// ```
/// use vrampool_backend::{BackendError, spi::with_headroom};
/// fn map(bytes: usize) -> Result<Vec<u8>, BackendError> {
///     with_headroom(bytes, bytes, || vec![0; bytes]).ok_or(BackendError::out_of_memory(bytes as u64, None))
/// }
/// assert!(map(100).is_ok());
/// ```
pub fn with_headroom<T>(addresses: usize, data: usize, take: impl FnOnce() -> T) -> Option<T> {
    static IS_LIMITED: OnceLock<bool> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let is_limited = || Left::now().addresses.or(Left::now().data).is_some();
    if !*IS_LIMITED.get_or_init(is_limited) {
        return Some(take());
    }
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let left = Left::now();
    let fits = |bytes: usize, left: Option<u64>| {
        left.is_none_or(|left| left >= (bytes as u64).saturating_add(HEADROOM_BYTES))
    };
    (fits(addresses, left.addresses) && fits(data, left.data)).then(take)
}

/// Runs `spawn`, which starts a thread, if there is room for it: a thread that has a stack and not the few pages
/// that it needs next ends the process.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let thread = std::thread::Builder::new().name("worker".into());
/// let thread = vrampool_backend::spi::start_thread(|| thread.spawn(|| 7))?;
/// # assert!(thread.join().is_ok_and(|answer| answer == 7));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`io::ErrorKind::OutOfMemory`] where there is no room; those of `spawn`.
pub fn start_thread<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    with_headroom(STACK_BYTES, STACK_BYTES, spawn).unwrap_or_else(|| Err(io::ErrorKind::OutOfMemory.into()))
}

/// Makes room in `vec` for so many more elements, with [headroom](with_headroom) if they are large, also in a
/// [control group](group_memory_left) with a limit. On an error the vector is empty.
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
    let mut take = || vec.try_reserve_exact(additional).is_ok();
    let is_taken = if bytes < LARGE_BYTES {
        take()
    } else {
        group_has(bytes as u64) && with_headroom(bytes, bytes, take) == Some(true)
    };
    if is_taken {
        return Ok(());
    }
    *vec = Vec::new();
    Err(BackendError::out_of_memory(bytes as u64, None))
}

/// Whether the control groups of this process leave so many bytes and headroom: a process that writes more than they
/// leave is ended.
fn group_has(bytes: u64) -> bool {
    group_memory_left().is_none_or(|left| left >= bytes.saturating_add(HEADROOM_BYTES))
}
