//! Calls that succeed, as most tests make them.

use std::ffi::{CStr, c_void};
use std::ptr;
use vrampool_c::boundary::{Out, Text};
use vrampool_c::*;

pub(crate) fn pool(options: &CStr) -> u64 {
    let mut pool = 0;
    assert_eq!(
        vrampool_create(Text::from(options), Out::from(&mut pool)),
        Status::OK,
        "{}",
        last_error_text()
    );
    pool
}

pub(crate) fn stream(pool: u64) -> *mut c_void {
    let mut stream = ptr::null_mut();
    assert_eq!(vrampool_stream_create(pool, Out::from(&mut stream)), Status::OK, "{}", last_error_text());
    stream
}

pub(crate) fn allocate(pool: u64, bytes: u64, stream: *mut c_void) -> *mut c_void {
    let mut address = ptr::null_mut();
    let status = vrampool_allocate(pool, bytes, stream, Out::from(&mut address));
    assert_eq!(status, Status::OK, "{}", last_error_text());
    address
}
