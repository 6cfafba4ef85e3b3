//! Forked processes. A child process has a copy of its parent's memory, and none of its threads, streams and
//! devices.
//!
//! A child of a process that opened a device cannot use objects of the parent: a thread that the child does
//! not have may hold their locks, and the driver's state belongs to the parent. Therefore in such a child
//!
//! * every call that can fail returns [`BackendError::Forked`], before it takes a lock;
//! * every figure is zero or empty;
//! * a drop has no effect: the child's copy of the memory ends with the child, and the parent's memory is
//!   unchanged.
//!
//! A child of a process that opened no device starts afresh, and so does a program that is started by `exec`.
//! End a child by `_exit`: `exit` runs destructors of libraries and waits for locks of the parent's threads.

use crate::BackendError;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether this process was forked from one that had opened a device.
static CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that had [opened](opening) a device. As cheap as reading a
/// variable.
#[inline]
#[must_use]
pub fn is_child() -> bool {
    // Relaxed, here and below: a fork is between them, or they are one thread's.
    CHILD.load(Relaxed)
}

/// # Errors
/// [`BackendError::Forked`] in a child of a process that had opened a device.
#[inline]
pub fn check() -> Result<(), BackendError> {
    if is_child() { Err(BackendError::Forked) } else { Ok(()) }
}

/// Call it before a device or something on it is made: children that are forked from then on are noticed.
///
/// # Errors
/// As [`check`].
pub fn opening() -> Result<(), BackendError> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    check()?;
    // Two threads may both watch, which does no harm; none goes on before somebody does.
    if !WATCHED.load(Relaxed) {
        #[cfg(unix)]
        watch();
        WATCHED.store(true, Relaxed);
    }
    Ok(())
}

#[cfg(unix)]
#[allow(unsafe_code, reason = "the C library's way to notice a fork")]
fn watch() {
    extern "C" fn forked() {
        CHILD.store(true, Relaxed);
    }
    // SAFETY: the handler changes one word, which is all that a child of a process with threads may do. The
    // library that it is in stays loaded, or takes the registration with it. A failure means that there is no
    // memory for it: forks are then not noticed.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}
