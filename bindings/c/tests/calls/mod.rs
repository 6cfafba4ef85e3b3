//! Calls that succeed, as most tests make them.
#![allow(dead_code, reason = "each program uses some of them")]

use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vrampool_c::boundary::{Out, Text};
use vrampool_c::*;

#[track_caller]
pub(crate) fn ok(status: Status) {
    assert_eq!(status, Status::OK, "{}", last_error_text());
}

pub(crate) fn pool(options: &CStr) -> u64 {
    let mut pool = 0;
    ok(vrampool_create(Text::from(options), Out::from(&mut pool)));
    pool
}

pub(crate) fn stream(pool: u64) -> *mut c_void {
    let mut stream = ptr::null_mut();
    ok(vrampool_stream_create(pool, Out::from(&mut stream)));
    stream
}

pub(crate) fn allocate(pool: u64, bytes: u64, stream: *mut c_void) -> *mut c_void {
    let mut address = ptr::null_mut();
    ok(vrampool_allocate(pool, bytes, stream, Out::from(&mut address)));
    address
}

/// Frees a block of any pool.
pub(crate) fn free(address: *mut c_void) {
    ok(vrampool_free(0, address, ptr::null_mut()));
}

pub(crate) fn stats(pool: u64) -> Stats {
    let mut stats = Stats { struct_size: size_of::<Stats>(), ..Stats::default() };
    ok(vrampool_get_stats(pool, Out::from(&mut stats)));
    stats
}

/// PyTorch's pool, of which a process has one: tests that use it run one at a time. Dropping it shuts the pool down.
pub(crate) struct Torch {
    pub(crate) pool: u64,
    _alone: MutexGuard<'static, ()>,
}

impl Torch {
    pub(crate) fn new(options: &CStr) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let (mut pool, alone) = (0, ALONE.lock().unwrap_or_else(PoisonError::into_inner));
        ok(vrampool_torch_shutdown());
        ok(vrampool_torch_configure(Text::from(options)));
        ok(vrampool_torch_pool(0, Out::from(&mut pool)));
        Self { pool, _alone: alone }
    }
}

impl Drop for Torch {
    fn drop(&mut self) {
        let _ = vrampool_torch_shutdown();
    }
}

/// Free bytes of the pool's device.
pub(crate) fn free_bytes(pool: u64) -> u64 {
    let mut free = 0;
    ok(vrampool_memory_info(pool, Out::from(&mut free), Out::null()));
    free
}

/// A segment of PyTorch's first device: what identifies it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) bytes: u64,
    pub(crate) address: u64,
    pub(crate) number: u64,
}

/// Segments that [`on_malloc`] was called with, and nothing has removed.
pub(crate) static SEGMENTS: Mutex<Vec<Segment>> = Mutex::new(Vec::new());

pub(crate) extern "C" fn on_malloc(_: *mut c_void, _: i32, bytes: u64, address: u64, number: u64) -> Status {
    SEGMENTS.lock().expect("no test fails under it").push(Segment { bytes, address, number });
    Status::OK
}

impl Segment {
    pub(crate) fn new(bytes: usize, stream: *mut c_void) -> Self {
        ok(vrampool_segment_callbacks(Some(on_malloc), None, ptr::null_mut()));
        assert!(!vrampool_segment_alloc(bytes, 0, stream).is_null(), "{}", last_error_text());
        SEGMENTS.lock().expect("no test fails under it").pop().expect("the callback is called")
    }

    pub(crate) fn place(&self) -> *mut c_void {
        self.address as *mut c_void
    }

    pub(crate) fn unmap(&self) -> Status {
        vrampool_segment_unmap_and_release(0, self.bytes, self.address, self.number)
    }

    pub(crate) fn map(&self) -> Status {
        vrampool_segment_create_and_map(0, self.bytes, self.address, self.number)
    }

    pub(crate) fn free(&self, stream: *mut c_void) -> Status {
        vrampool_clear_error();
        vrampool_segment_free(self.place(), 0, 0, stream);
        vrampool_last_error_code()
    }
}
