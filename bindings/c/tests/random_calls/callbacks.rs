//! Callbacks, each of which calls the library again.

use super::{Caller, Choices, Shared};
use fastrand::Rng;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::Ordering;
use vrampool_c::*;

/// The most calls of callbacks in one process after which a line that is logged makes none, because that may log
/// another.
const MOST: u64 = 20_000;

/// The calls of each callback; `VRAMPOOL_NESTED` of them, if set.
fn count() -> u64 {
    std::env::var("VRAMPOOL_NESTED").ok().and_then(|count| count.parse().ok()).unwrap_or(4)
}

thread_local! {
    /// Calls of a callback call none.
    static IS_NESTED: Cell<bool> = const { Cell::new(false) };
}

/// Makes random calls within a callback, each of which is served or refused.
fn call_again(user: *mut c_void, is_line: bool) {
    assert!(!user.is_null());
    // SAFETY: what all threads share, until no callback is called any more.
    let shared = unsafe { &*user.cast_const().cast::<Shared>() };
    if IS_NESTED.replace(true) {
        return;
    }
    let before = shared.nested.load(Ordering::Relaxed);
    let calls = if is_line { u64::from(before < MOST) } else { count() };
    let mut caller = Caller::new(shared, Choices::Random(Rng::with_seed(before), calls), true);
    while !caller.choices.are_over() {
        caller.call();
        shared.nested.fetch_add(1, Ordering::Relaxed);
    }
    caller.finish();
    IS_NESTED.set(false);
}

pub(super) extern "C" fn look(user: *mut c_void, level: c_int, target: *const c_char, text: *const c_char) {
    assert!((1..=5).contains(&level) && !target.is_null() && !text.is_null());
    call_again(user, true);
}

/// Called with the progress of copies.
pub(super) extern "C" fn copied(user: *mut c_void, copied: u64, total: u64) {
    assert!(copied <= total);
    call_again(user, false);
}

pub(super) extern "C" fn on_segment(user: *mut c_void, _: c_int, bytes: u64, address: u64, _: u64) -> Status {
    call_again(user, false);
    if (bytes ^ address >> 20) % 8 == 1 { Status::CAPTURE } else { Status::OK }
}

pub(super) extern "C" fn work(user: *mut c_void, chunk: *const Chunk) -> Status {
    assert!(!chunk.is_null());
    call_again(user, false);
    Status::OK
}

pub(super) extern "C" fn refuse(user: *mut c_void, _: *const Chunk) -> Status {
    call_again(user, false);
    Status::CAPTURE
}

pub(super) extern "C" fn progress(user: *mut c_void, chunks: u64, done: u64, runs: u64) {
    assert!(chunks > 0 && done <= runs);
    call_again(user, false);
}
