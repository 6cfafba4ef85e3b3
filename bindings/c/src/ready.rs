//! Allocating and freeing without a call that may wait, for callers in Rust that hold a lock meanwhile: that of
//! an interpreter, which they release for the other calls.
//!
//! Neither the device is waited for, nor a lock that is held during a call of its driver.

use crate::blocks;
use crate::boundary::guarded;
use crate::registry;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use vrampool::any::AnyDevice;
use vrampool::{Buffer, internal};

/// Allocates a block of idle memory, under `tag`, or under that of this thread's scope. Returns its address.
///
/// `None` is no failure: [`vrampool_allocate`](crate::vrampool_allocate) or
/// [`vrampool_allocate_tagged`](crate::vrampool_allocate_tagged) serves the request, or says why not.
#[inline]
#[must_use]
pub fn allocate(pool: u64, tag: Option<&str>, bytes: u64, stream: usize) -> Option<*mut c_void> {
    let allocated = guarded(|| registry::with(pool, |pool| Ok(pool.allocate_ready(tag, bytes, stream))));
    allocated.ok().flatten().map(|address| address as *mut c_void)
}

/// What became of a block.
#[derive(Debug)]
#[must_use]
pub enum Freed {
    /// It is free.
    Done,
    /// It is this caller's to free, by dropping this, which may wait.
    Later(Buffer<AnyDevice>),
    /// Nothing changed: [`vrampool_free_at`](crate::vrampool_free_at) frees it, or reports why not.
    No,
}

/// Frees the block whose address is at `place`, which becomes null in the same step, behind the work on the
/// stream that it was allocated for.
#[inline]
pub fn free_at(place: &AtomicPtr<c_void>) -> Freed {
    let freed = guarded(|| {
        // Acquire and release, as `vrampool_free_at`.
        let address = place.swap(ptr::null_mut(), Ordering::AcqRel);
        if address.is_null() {
            return Ok(Freed::No);
        }
        let Some(buffer) = blocks::remove_plain(address as u64, None, |_| true) else {
            place.store(address, Ordering::Release);
            return Ok(Freed::No);
        };
        Ok(internal::release_ready(buffer).map_or(Freed::Done, Freed::Later))
    });
    freed.unwrap_or(Freed::No)
}
