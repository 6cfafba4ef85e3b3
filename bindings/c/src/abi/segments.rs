//! Segments in the shape of vLLM.

use crate::boundary::{Numbers, Out, Text, guard, guarded};
use crate::failure::Status;
use crate::segments::{self, SegmentCallback};
use crate::sleep::{CopyCallback, progress_to};
use crate::{last_error, segment_contents};
use std::ffi::{c_int, c_void};
use std::ptr;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_callbacks(
    on_malloc: Option<SegmentCallback>,
    on_free: Option<SegmentCallback>,
    user: *mut c_void,
) -> Status {
    guard(|| {
        segments::set_callbacks(on_malloc, on_free, user);
        Ok(())
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    if size == 0 {
        return ptr::null_mut();
    }
    let allocated = guarded(|| segments::allocate(size as u64, device, stream as usize));
    last_error::or_null(allocated.map(|address| address as *mut c_void))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_free(
    address: *mut c_void,
    _size: usize,
    _device: c_int,
    stream: *mut c_void,
) {
    if !address.is_null()
        && let Err(failure) = guarded(|| segments::free(address as u64, stream as usize))
    {
        let _ = last_error::keep(&failure);
        log::error!("segment {address:?}: {}", failure.text);
    }
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_unmap_and_release(
    device: c_int,
    bytes: u64,
    address: u64,
    handle: u64,
) -> Status {
    guard(|| segments::change(device, bytes, address, handle, false))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_create_and_map(
    device: c_int,
    bytes: u64,
    address: u64,
    handle: u64,
) -> Status {
    guard(|| segments::change(device, bytes, address, handle, true))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_tag(handle: u64, tag: Text<'_>) -> Status {
    guard(|| segments::set_tag(handle, tag.required("tag")?))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_is_asleep(handle: u64, is_asleep: Out<'_, c_int>) -> Status {
    guard(|| is_asleep.answer("is_asleep", || Ok(segments::is_asleep(handle).map_or(-1, c_int::from))))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segments_save(
    handles: Numbers<'_>,
    count: usize,
    on_progress: Option<CopyCallback>,
    user: *mut c_void,
) -> Status {
    guard(|| segment_contents::save(handles.read(count, "handles")?, &progress_to(on_progress, user)))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segments_restore(
    handles: Numbers<'_>,
    count: usize,
    on_progress: Option<CopyCallback>,
    user: *mut c_void,
) -> Status {
    guard(|| segment_contents::restore(handles.read(count, "handles")?, &progress_to(on_progress, user)))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segments_forget(handles: Numbers<'_>, count: usize, keep_memory: c_int) -> Status {
    guard(|| segment_contents::forget(handles.read(count, "handles")?, keep_memory != 0))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_segment_saved(
    handle: u64,
    address: Out<'_, *mut c_void>,
    bytes: Out<'_, u64>,
) -> Status {
    guard(|| {
        address.check("address")?;
        let (start, length) = segment_contents::saved(handle)?.unwrap_or_default();
        address.set(ptr::with_exposed_provenance_mut(start as usize));
        bytes.set(length);
        Ok(())
    })
}
