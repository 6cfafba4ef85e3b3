//! Children of the test's process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use vrampool::Error;
use vrampool::backend::BackendError;

/// Runs `act` in a child, which must end well, destructors included. One that waits is ended by a signal.
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) fn in_child(act: impl FnOnce()) {
    in_child_that_ends(act, std::process::exit);
}

/// As [`in_child`], with the call by which the child ends.
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) fn in_child_that_ends(act: impl FnOnce(), end: fn(i32) -> !) {
    // SAFETY: the child goes on with a copy of this thread alone. It uses the C library's allocator, which is
    // usable in a child.
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
            assert_eq!((ended, status), (child, 0), "it ended by a signal, or not well");
        }
    }
}

pub(crate) fn assert_forked<T>(outcome: Result<T, Error>) {
    assert!(outcome.is_err_and(|error| error.is_forked()));
}

#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) fn assert_refused<T>(outcome: Result<T, BackendError>) {
    assert!(matches!(outcome, Err(BackendError::Forked)));
}

/// Ends a child at once. The standard library's own end of a process waits for ever where another thread of
/// the parent was starting or ending a thread; a driver's may, too.
#[allow(dead_code, reason = "each test file uses a part of it")]
pub(crate) fn end_at_once(code: i32) -> ! {
    // SAFETY: a call without memory.
    unsafe { libc::_exit(code) }
}
