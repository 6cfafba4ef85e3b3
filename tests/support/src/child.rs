//! Forked children of a test's process.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vrampool_backend::BackendError;

/// Runs `act` in a child, which must exit with success, destructors included. An alarm ends a hung child.
pub fn in_child(act: impl FnOnce()) {
    in_child_that_ends(act, std::process::exit);
}

/// As [`in_child`], with the function that ends the child.
pub fn in_child_that_ends(act: impl FnOnce(), end: fn(i32) -> !) {
    // SAFETY: the child continues with a copy of this thread alone. It uses the C library's allocator, which
    // is usable in a child.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: a call without memory.
            unsafe { libc::alarm(60) };
            let outcome = catch_unwind(AssertUnwindSafe(act));
            end(if outcome.is_ok() { 0 } else { 1 });
        }
        child => {
            assert!(child > 0, "no process");
            let mut status = 0;
            // SAFETY: the child is this process's own, and the status a variable.
            let ended = unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!((ended, status), (child, 0), "the child failed, or a signal ended it");
        }
    }
}

/// Checks that a call failed with [`BackendError::Forked`], whichever error wraps it.
///
/// # Panics
///
/// If it did not.
pub fn assert_forked<T, E: Error>(outcome: Result<T, E>) {
    let error = outcome.err().expect("an object made before the fork was usable");
    // By its text: errors that wrap it are transparent, so it is no source of theirs.
    assert_eq!(error.to_string(), BackendError::Forked.to_string());
}

/// Ends a child at once.
///
/// The standard library's exit blocks forever if another thread of the parent was starting or ending a
/// thread; a driver's exit handlers may block, too.
pub fn end_at_once(code: i32) -> ! {
    // SAFETY: a call without memory.
    unsafe { libc::_exit(code) }
}

/// Runs `work` again and again on three threads, and meanwhile `in_the_middle` so many times.
pub fn while_busy(work: impl Fn(u64) + Sync, times: usize, mut in_the_middle: impl FnMut()) {
    let (goes_on, rounds) = (AtomicBool::new(true), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (goes_on, rounds, work) = (&goes_on, &rounds, &work);
            scope.spawn(move || {
                while goes_on.load(Ordering::Relaxed) {
                    work(thread);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Also after a panic, for which the scope would wait.
        let _ends = Ends(&goes_on);
        for _ in 0..times {
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 5 {
                thread::yield_now();
            }
            in_the_middle();
        }
    });
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
