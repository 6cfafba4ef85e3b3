//! What a fork leaves behind: a child has its parent's memory but none of its threads, and no device that the
//! parent opened.
//!
//! A child of a process that opened a device here gets an error from every call; nothing of its parent's is
//! touched. A child of one that did not starts afresh.

use crate::failure::{Failure, Status};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::backend::fork;

/// How many forks there are between this process and the one that loaded the library, counted since
/// [`watch`].
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Which process of a line of forks this is.
pub(crate) fn generation() -> u64 {
    // Relaxed: a fork is between them, or they are one thread's.
    FORKS.load(Ordering::Relaxed)
}

/// Counts forks from now on.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        #[cfg(unix)]
        if let Err(error) = at_fork() {
            log::warn!("forks of this process are not detected: {error}");
        }
    });
}

/// # Errors
/// In a child of a process that opened a device.
#[inline(always)]
pub(crate) fn check() -> Result<(), Failure> {
    if fork::is_child() { Err(forked()) } else { Ok(()) }
}

#[cold]
fn forked() -> Failure {
    Failure::new(
        Status::FORKED,
        "this process was forked from one that had opened a device, whose memory, streams and threads stay there; \
         start processes that use devices by spawning them, or fork before the first pool is made",
    )
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "the C library's way to notice a fork")]
fn at_fork() -> std::io::Result<()> {
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: what is registered does what a child of a process with threads may: it changes one word. The
    // library that it is in is not unloaded before the process ends, or takes the registration with it.
    match unsafe { libc::pthread_atfork(None, None, Some(forked)) } {
        0 => Ok(()),
        code => Err(std::io::Error::from_raw_os_error(code)),
    }
}
