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
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Whether this process was forked from one that had opened a device.
static CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process was forked from one that had [opened](opening) a device. As cheap as reading a
/// variable.
#[inline]
#[must_use]
pub fn is_forked() -> bool {
    // Relaxed, here and below: a fork is between them, or they are one thread's.
    CHILD.load(Relaxed)
}

/// # Errors
/// [`BackendError::Forked`] in a child of a process that had opened a device.
#[inline]
pub fn check() -> Result<(), BackendError> {
    if is_forked() { Err(BackendError::Forked) } else { Ok(()) }
}

/// Call it before a device or something on it is made: children that are forked from then on are noticed.
///
/// # Errors
/// As [`check`].
pub fn opening() -> Result<(), BackendError> {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    check()?;
    // Two threads may both watch, which does no harm; none goes on before some code does.
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

/// An `Arc` whose value is never dropped in a forked [child](is_forked), where the value's locks may be held
/// forever, and its driver's state belongs to the parent.
///
/// ```
/// use vrampool_backend::fork::ForkArc;
/// let device = ForkArc::new(7);
/// let stream_of_it = device.clone();
/// drop(device);
/// assert_eq!((*stream_of_it, ForkArc::into_inner(stream_of_it)), (7, Some(7)));
/// ```
#[derive(Debug)]
pub struct ForkArc<T>(Arc<T>);

impl<T> ForkArc<T> {
    /// Creates the first handle of `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    /// Returns a handle that does not keep the value.
    #[must_use]
    pub fn downgrade(this: &Self) -> Weak<T> {
        Arc::downgrade(&this.0)
    }

    /// Returns the value, if this is its only handle.
    #[must_use]
    pub fn into_inner(this: Self) -> Option<T> {
        let value = Arc::clone(&this.0);
        drop(this);
        Arc::into_inner(value)
    }
}

impl<T> From<Arc<T>> for ForkArc<T> {
    fn from(value: Arc<T>) -> Self {
        Self(value)
    }
}

impl<T> Clone for ForkArc<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for ForkArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for ForkArc<T> {
    fn drop(&mut self) {
        if is_forked() {
            mem::forget(Arc::clone(&self.0));
        }
    }
}
