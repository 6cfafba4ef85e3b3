//! What a fork leaves behind: a child has its parent's memory but none of its threads, and no device that the
//! parent opened.
//!
//! A child of a process that opened a device here gets an error from every call; nothing of its parent's is
//! touched. A child of one that did not starts afresh.

use crate::failure::{Failure, Status};
use arc_swap::ArcSwapOption;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool::backend::fork;

/// Changes with each fork between this process and the one that loaded the library, from [`watch`] on.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Notices forks from now on.
fn watch() {
    static WATCHED: AtomicBool = AtomicBool::new(false);
    // Relaxed: two threads may both watch, which does no harm; none continues before one of them does. A `Once` would
    // keep a child waiting that is forked meanwhile.
    if !WATCHED.load(Ordering::Relaxed) {
        #[cfg(unix)]
        at_fork();
        WATCHED.store(true, Ordering::Relaxed);
    }
}

/// A value of this process. A forked child has a new one, whatever threads of its parent did with theirs at the fork:
/// they may have locked it, or be needed to end it. The parent's value is never dropped in the child.
pub(crate) struct OfProcess<T>(ArcSwapOption<(u64, T)>);

impl<T: Default> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        Self(ArcSwapOption::const_empty())
    }

    /// Takes no lock.
    pub(crate) fn get(&self) -> Arc<(u64, T)> {
        watch();
        // Relaxed: a fork is between them, or they are one thread's.
        let process = FORKS.load(Ordering::Relaxed);
        loop {
            let found = self.0.load_full();
            if let Some(own) = found.as_ref().filter(|of| of.0 == process) {
                return Arc::clone(own);
            }
            drop(self.0.compare_and_swap(&found, Some(Arc::new((process, T::default())))));
            mem::forget(found);
        }
    }
}

/// # Errors
/// In a child of a process that opened a device.
#[inline(always)]
pub(crate) fn check() -> Result<(), Failure> {
    if fork::is_forked() { Err(forked()) } else { Ok(()) }
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
fn at_fork() {
    extern "C" fn forked() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: what is registered does what a child of a process with threads may: it changes one word. The library that
    // it is in is not unloaded before the process ends, or takes the registration with it. A failure means that there
    // is no memory for it: forks are then not noticed.
    let _ = unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}
