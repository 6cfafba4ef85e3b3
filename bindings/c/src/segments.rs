//! Memory whose physical side a caller releases and restores, at one address, as vLLM's allocator does.

use crate::failure::{Failure, Status};
use crate::streams::Home;
use crate::torch;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool::any::{AnyMemory, AnyStream};
use vrampool::backend::{AllocationRequest, Physical, VirtualMemory};
use vrampool::{Backend, Error, Memory, MemoryKind};

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

/// By address.
static SEGMENTS: Mutex<Option<HashMap<u64, Arc<Segment>>>> = Mutex::new(None);

#[derive(Debug)]
struct Segment {
    device: c_int,
    bytes: u64,
    address: u64,
    number: u64,
    /// A call frees it: no other does.
    is_going: AtomicBool,
    kind: MemoryKind,
    /// The addresses. Dropping them unmaps and releases the memory behind them.
    reservation: AnyMemory,
    /// The memory behind the addresses, if it is mapped.
    physical: Mutex<Option<Physical>>,
    /// The stream of the allocation.
    stream: AnyStream,
    home: Home,
}

/// Segments that were freed during a capture, which a wait for the work that uses them would invalidate, or that could
/// not be unmapped.
static DEFERRED: Mutex<Vec<Freed>> = Mutex::new(Vec::new());

/// A segment without a number, and the stream that was named with its free.
#[derive(Debug)]
struct Freed {
    segment: Arc<Segment>,
    user: Option<AnyStream>,
}

pub(crate) fn set_callbacks(
    on_malloc: Option<SegmentCallback>,
    on_free: Option<SegmentCallback>,
    user: *mut c_void,
) {
    *CALLBACKS.lock() = Callbacks { on_malloc, on_free, user: user as usize };
}

/// Reserves addresses, calls `on_malloc`, and maps memory. A failure after the call is followed by `on_free`.
pub(crate) fn allocate(size: u64, device: c_int, stream: usize) -> Result<u64, Failure> {
    release_deferred();
    let segment = Arc::new(Segment::reserve(size, device, stream)?);
    let address = segment.address;
    SEGMENTS.lock().get_or_insert_default().insert(address, Arc::clone(&segment));
    let callbacks = *CALLBACKS.lock();
    let mapped = segment.call(callbacks.on_malloc, callbacks.user, "allocation").and_then(|()| {
        segment.map().inspect_err(|_| {
            if let Err(failure) = segment.call(callbacks.on_free, callbacks.user, "release") {
                log::warn!("{}", failure.text);
            }
        })
    });
    if mapped.is_err() {
        let _ = remove(address);
    }
    mapped.map(|()| address)
}

/// Frees a segment after the work that uses it, which a capture defers. `stream` may use it too. A callback that
/// fails is reported, and keeps nothing.
pub(crate) fn free(address: u64, stream: usize) -> Result<(), Failure> {
    release_deferred();
    let segment = find(address)?;
    // Relaxed: only one call has to win.
    if segment.is_going.swap(true, Ordering::Relaxed) {
        return Err(none(address));
    }
    let callbacks = *CALLBACKS.lock();
    let called = segment.call(callbacks.on_free, callbacks.user, "release");
    drop(remove(address));
    let freed = Freed { user: segment.home.find(stream).ok(), segment };
    if freed.segment.is_captured(freed.user.as_ref()) {
        log::debug!("the segment at {address:#x} is freed after the capture");
        DEFERRED.lock().push(freed);
        return called;
    }
    release(freed).and(called)
}

/// Releases a segment after all work of the device. If that fails, the segment is deferred, because work may use it.
fn release(freed: Freed) -> Result<(), Failure> {
    let released = freed.segment.unmap().map(|_| ());
    if released.as_ref().is_err_and(|failure| failure.status != Status::DEVICE_LOST) {
        DEFERRED.lock().push(freed);
    }
    released
}

/// Releases the deferred segments that no captured work uses.
fn release_deferred() {
    let deferred = mem::take(&mut *DEFERRED.lock());
    for freed in deferred {
        if freed.segment.is_captured(freed.user.as_ref()) {
            DEFERRED.lock().push(freed);
        } else if let Err(failure) = release(freed) {
            log::warn!("the memory of a freed segment is not released yet: {}", failure.text);
        }
    }
}

impl Segment {
    /// Addresses for `size` bytes, rounded up to the device's granularity, with nothing behind them.
    fn reserve(size: u64, device: c_int, stream: usize) -> Result<Self, Failure> {
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let home = Home::new(0, torch::options_for(device)?.open()?);
        let kind = home.device.properties().preferred_placement().into();
        let memory = home.device.virtual_memory().ok_or_else(crate::pool::not_virtual)?;
        let bytes = size.checked_next_multiple_of(memory.granularity(kind)?).ok_or_else(|| {
            Failure::new(Status::TOO_LARGE, format!("{size} bytes exceed the address space"))
        })?;
        let reservation = memory.reserve(bytes).map_err(Error::from)?;
        let address = reservation.address().ok_or_else(crate::pool::not_virtual)?;
        // Relaxed: only distinctness matters.
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let (is_going, physical) = (AtomicBool::new(false), Mutex::new(None));
        let stream = home.find(stream)?;
        Ok(Self { device, bytes, address, number, is_going, kind, reservation, physical, stream, home })
    }

    /// Calls a callback, if it is set.
    fn call(&self, callback: Option<SegmentCallback>, user: usize, of: &str) -> Result<(), Failure> {
        let Some(callback) = callback else { return Ok(()) };
        let status = callback(user as *mut c_void, self.device, self.bytes, self.address, self.number);
        if status == Status::OK {
            return Ok(());
        }
        let Self { bytes, address, .. } = self;
        let name = status.name();
        let text = format!("the callback for the {of} of {bytes} bytes at {address:#x} failed with {name}");
        Err(Failure::new(status, text))
    }

    fn memory(&self) -> Result<&dyn VirtualMemory<Memory = AnyMemory>, Failure> {
        self.home.device.virtual_memory().ok_or_else(crate::pool::not_virtual)
    }

    fn map(&self) -> Result<(), Failure> {
        let mut physical = self.physical.lock();
        if physical.is_some() {
            let text = format!("the segment at {:#x} is mapped already; nothing was done", self.address);
            return Err(Failure::new(Status::INVALID_ARGUMENT, text));
        }
        let request = AllocationRequest::new(self.bytes, self.kind);
        let mapped = self.memory()?.create_and_map(&self.reservation, 0, &request);
        *physical = Some(mapped.map_err(Error::from)?);
        Ok(())
    }

    /// Unmaps and releases the memory, after all work of the device, and returns whether there was any.
    fn unmap(&self) -> Result<bool, Failure> {
        let mut physical = self.physical.lock();
        if physical.is_none() {
            return Ok(false);
        }
        // Work on streams that are not known here may use it.
        self.home.drain()?;
        let memory = self.memory()?;
        let unmapped = physical.take().map(|mapped| memory.unmap_and_release(&self.reservation, 0, mapped));
        if let Some(Err(rejected)) = unmapped {
            *physical = Some(rejected.value);
            return Err(rejected.error.into());
        }
        Ok(true)
    }

    /// Whether a stream that may use it is captured.
    fn is_captured(&self, user: Option<&AnyStream>) -> bool {
        self.home.is_captured(user.into_iter().chain([&self.stream]))
    }
}

/// Releases the physical memory of a segment, or restores it.
pub(crate) fn change(
    device: c_int,
    bytes: u64,
    address: u64,
    number: u64,
    maps: bool,
) -> Result<(), Failure> {
    release_deferred();
    let segment = find(address)?;
    if (segment.device, segment.bytes, segment.number) != (device, bytes, number) {
        let Segment { device, bytes, number, .. } = &*segment;
        let text = format!(
            "the segment at {address:#x} belongs to device {device} and has {bytes} bytes and number {number}"
        );
        return Err(Failure::new(Status::MISMATCH, text));
    }
    if maps {
        return segment.map();
    }
    if segment.is_captured(None) {
        let text = format!(
            "the segment at {address:#x} may be used by a stream that is captured, and a wait for its work would \
             invalidate the capture; nothing was done: release it after the capture"
        );
        return Err(Failure::new(Status::CAPTURE, text));
    }
    if !segment.unmap()? {
        let text = format!("the segment at {address:#x} is unmapped already; nothing was done");
        return Err(Failure::new(Status::ASLEEP, text));
    }
    Ok(())
}

fn remove(address: u64) -> Option<Arc<Segment>> {
    SEGMENTS.lock().as_mut().and_then(|segments| segments.remove(&address))
}

fn find(address: u64) -> Result<Arc<Segment>, Failure> {
    SEGMENTS
        .lock()
        .as_ref()
        .and_then(|segments| segments.get(&address))
        .map(Arc::clone)
        .ok_or_else(|| none(address))
}

fn none(address: u64) -> Failure {
    Failure::new(Status::INVALID_POINTER, format!("no segment begins at {address:#x}; nothing was done"))
}
