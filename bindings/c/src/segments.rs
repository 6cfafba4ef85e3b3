//! Memory whose physical side a caller releases and restores, at one address, as vLLM's allocator does.

use crate::boundary::{Out, Text, exports, guarded};
use crate::failure::{Failure, Status, check_no_callback};
use crate::last_error;
use crate::segment::Segment;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool::any::AnyStream;

/// A `vrampool_segment_callback`: user, device, bytes, address, number.
pub type SegmentCallback = extern "C" fn(*mut c_void, c_int, u64, u64, u64) -> Status;

#[derive(Debug, Clone, Copy)]
struct Callbacks {
    on_malloc: Option<SegmentCallback>,
    on_free: Option<SegmentCallback>,
    /// The caller's, as a number: it is never dereferenced here.
    user: usize,
}

static CALLBACKS: Mutex<Callbacks> = Mutex::new(Callbacks { on_malloc: None, on_free: None, user: 0 });

/// By number.
static SEGMENTS: Mutex<BTreeMap<u64, Arc<Segment>>> = Mutex::new(BTreeMap::new());

/// Segments that were freed during a capture, which a wait for the work that uses them would invalidate, or during a
/// copy of their contents, or that could not be unmapped.
static DEFERRED: Mutex<Vec<Freed>> = Mutex::new(Vec::new());

/// A segment without a number, and the stream that was named with its free.
#[derive(Debug)]
struct Freed {
    segment: Arc<Segment>,
    user: Option<AnyStream>,
}

exports! {
    fn vrampool_segment_callbacks(
        on_malloc: Option<SegmentCallback>,
        on_free: Option<SegmentCallback>,
        user: *mut c_void,
    ) {
        *CALLBACKS.lock() = Callbacks { on_malloc, on_free, user: user as usize };
        Ok(())
    }

    extern "C" fn vrampool_segment_alloc(size: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
        if size == 0 {
            return ptr::null_mut();
        }
        let allocated = guarded(|| allocate(size as u64, device, stream as usize));
        last_error::or_null(allocated.map(|address| address as *mut c_void))
    }

    extern "C" fn vrampool_segment_free(address: *mut c_void, _size: usize, _device: c_int, stream: *mut c_void) {
        if !address.is_null()
            && let Err(failure) = guarded(|| free(address as u64, stream as usize))
        {
            let _ = last_error::keep(&failure);
            log::error!("segment {address:?}: {}", failure.text);
        }
    }

    fn vrampool_segment_unmap_and_release(device: c_int, bytes: u64, address: u64, handle: u64) {
        let segment = named(device, bytes, address, handle)?;
        segment.check_not_captured()?;
        if !segment.unmap()? {
            let text = format!("the segment at {address:#x} is unmapped already; nothing was done");
            return Err(Failure::new(Status::ASLEEP, text));
        }
        Ok(())
    }

    fn vrampool_segment_create_and_map(device: c_int, bytes: u64, address: u64, handle: u64) {
        named(device, bytes, address, handle)?.map()
    }

    fn vrampool_segment_tag(handle: u64, tag: Text<'_>) {
        let tag = tag.required("tag")?;
        check_no_callback()?;
        let unknown = || Failure::invalid("handle", &format!("{handle} is not the number of a segment"));
        get(handle).ok_or_else(unknown)?.set_tag(tag);
        Ok(())
    }

    fn vrampool_segment_is_asleep(handle: u64, is_asleep: Out<'_, c_int>) {
        // -1 without such a segment.
        let of = |segment: Arc<Segment>| c_int::from(segment.is_asleep.load(Ordering::Relaxed));
        is_asleep.answer("is_asleep", || Ok(get(handle).map_or(-1, of)))
    }
}

/// Reserves addresses, calls `on_malloc`, and maps memory. A failure after the call is followed by `on_free`.
fn allocate(size: u64, device: c_int, stream: usize) -> Result<u64, Failure> {
    release_deferred();
    let segment = Arc::new(Segment::reserve(size, device, stream)?);
    SEGMENTS.lock().insert(segment.number, Arc::clone(&segment));
    let callbacks = *CALLBACKS.lock();
    let mapped = call(&segment, callbacks.on_malloc, callbacks.user, "allocation").and_then(|()| {
        segment.map().inspect_err(|_| {
            if let Err(failure) = call(&segment, callbacks.on_free, callbacks.user, "release") {
                log::warn!("{}", failure.text);
            }
        })
    });
    if mapped.is_err() {
        let _ = SEGMENTS.lock().remove(&segment.number);
    }
    mapped.map(|()| segment.address)
}

/// Frees a segment after the work that uses it, which a capture defers. `stream` may use it too. A callback that
/// fails is reported, and keeps nothing.
fn free(address: u64, stream: usize) -> Result<(), Failure> {
    release_deferred();
    let segment = find(address)?;
    // Relaxed: only one call has to win. The callback finds the segment.
    if segment.is_going.swap(true, Ordering::Relaxed) {
        return Err(none(address));
    }
    let callbacks = *CALLBACKS.lock();
    let called = call(&segment, callbacks.on_free, callbacks.user, "release");
    let _ = SEGMENTS.lock().remove(&segment.number);
    release(Freed { user: segment.place.home.find(stream).ok(), segment }).and(called)
}

/// Releases a segment after all work of the device. If that fails, the segment is deferred, because work may use it;
/// also if captured work uses it, and while its contents are copied, because a caller that waited for that could hold
/// what the copy's callback needs.
fn release(freed: Freed) -> Result<(), Failure> {
    let is_captured = freed.segment.is_captured(freed.user.as_ref());
    let Some(released) = (!is_captured).then(|| freed.segment.try_unmap()).flatten() else {
        DEFERRED.lock().push(freed);
        return Ok(());
    };
    let released = released.map(drop);
    if released.as_ref().is_err_and(|failure| failure.status != Status::DEVICE_LOST) {
        DEFERRED.lock().push(freed);
    }
    released
}

/// Releases the deferred segments that no captured work uses.
pub(crate) fn release_deferred() {
    let deferred = mem::take(&mut *DEFERRED.lock());
    for freed in deferred {
        if let Err(failure) = release(freed) {
            log::warn!("the memory of a freed segment is not released yet: {}", failure.text);
        }
    }
}

/// Calls a callback with a segment, if it is set.
fn call(segment: &Segment, callback: Option<SegmentCallback>, user: usize, of: &str) -> Result<(), Failure> {
    let Some(callback) = callback else { return Ok(()) };
    let Segment { device, bytes, address, number, .. } = segment;
    let status = callback(user as *mut c_void, *device, *bytes, *address, *number);
    if status == Status::OK {
        return Ok(());
    }
    let name = status.name();
    let text = format!("the callback for the {of} of {bytes} bytes at {address:#x} failed with {name}");
    Err(Failure::new(status, text))
}

/// The segment whose memory a caller releases or restores.
fn named(device: c_int, bytes: u64, address: u64, number: u64) -> Result<Arc<Segment>, Failure> {
    check_no_callback()?;
    release_deferred();
    // Without a look at all segments, unless the number is another one's.
    let numbered = get(number).filter(|segment| segment.address == address);
    let segment = numbered.map_or_else(|| find(address), Ok)?;
    if (segment.device, segment.bytes, segment.number) != (device, bytes, number) {
        let Segment { device, bytes, number, .. } = &*segment;
        let text = format!(
            "the segment at {address:#x} belongs to device {device} and has {bytes} bytes and number {number}"
        );
        return Err(Failure::new(Status::MISMATCH, text));
    }
    Ok(segment)
}

pub(crate) fn get(number: u64) -> Option<Arc<Segment>> {
    SEGMENTS.lock().get(&number).cloned()
}

/// The segments with these numbers that exist, in the order of the numbers.
pub(crate) fn numbered(numbers: &[u64]) -> Vec<Arc<Segment>> {
    let numbers: BTreeSet<u64> = numbers.iter().copied().collect();
    numbers.into_iter().filter_map(get).collect()
}

fn find(address: u64) -> Result<Arc<Segment>, Failure> {
    let segments = SEGMENTS.lock();
    segments.values().find(|segment| segment.address == address).cloned().ok_or_else(|| none(address))
}

fn none(address: u64) -> Failure {
    Failure::new(Status::INVALID_POINTER, format!("no segment begins at {address:#x}; nothing was done"))
}
