//! Callbacks, each of which calls the library again.

use super::{Caller, Choices, Shared};
use fastrand::Rng;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;
use vrampool_c::*;

/// The most calls of callbacks in one process: each line that is logged makes one, which may log another.
const MOST: u64 = 20_000;

thread_local! {
    /// Calls of a callback call none.
    static IS_NESTED: Cell<bool> = const { Cell::new(false) };
}

/// Makes a random call within a callback, which is served or refused.
pub(super) fn call_again(user: *mut c_void) {
    assert!(!user.is_null());
    // SAFETY: what all threads share, until no callback is called any more.
    let shared = unsafe { &*user.cast_const().cast::<Shared>() };
    if IS_NESTED.replace(true) {
        return;
    }
    let nth = shared.nested.load(Ordering::Relaxed);
    if nth < MOST {
        let mut caller = Caller::new(shared, Choices::Random(Rng::with_seed(nth), 1), true);
        caller.call();
        caller.finish();
        shared.nested.fetch_add(1, Ordering::Relaxed);
    }
    IS_NESTED.set(false);
}

/// Told of copies.
pub(super) extern "C" fn copied(user: *mut c_void, copied: u64, total: u64) {
    assert!(copied <= total);
    call_again(user);
}

pub(super) extern "C" fn on_segment(user: *mut c_void, _: c_int, bytes: u64, address: u64, _: u64) -> Status {
    call_again(user);
    if (bytes ^ address >> 20) % 8 == 1 { Status::CAPTURE } else { Status::OK }
}

pub(super) extern "C" fn work(user: *mut c_void, chunk: *const Chunk) -> Status {
    assert!(!chunk.is_null());
    call_again(user);
    Status::OK
}

pub(super) extern "C" fn refuse(user: *mut c_void, _: *const Chunk) -> Status {
    call_again(user);
    Status::CAPTURE
}

pub(super) extern "C" fn progress(user: *mut c_void, chunks: u64, done: u64, runs: u64) {
    assert!(chunks > 0 && done <= runs);
    call_again(user);
}
