//! Memory whose physical side somebody else takes away and gives back, at one address: what vLLM's allocator
//! does.

use crate::failure::{Failure, Status};
use crate::streams::Home;
use crate::torch;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool::any::AnyDevice;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::sleep::Offload;
use vrampool::{Backend, Memory};

/// Told of a segment once it is mapped: device, bytes, address, number.
pub type MallocCallback = extern "C" fn(*mut c_void, c_int, u64, u64, u64);
/// Told of a segment before it goes.
pub type FreeCallback = extern "C" fn(*mut c_void, u64);

#[derive(Debug, Clone, Copy)]
struct Told {
    on_malloc: Option<MallocCallback>,
    on_free: Option<FreeCallback>,
    /// Theirs, as a number: nothing here looks behind it.
    user: usize,
}

static TOLD: Mutex<Told> = Mutex::new(Told { on_malloc: None, on_free: None, user: 0 });

/// By address.
static SEGMENTS: Mutex<Option<HashMap<u64, Arc<Segment>>>> = Mutex::new(None);

#[derive(Debug)]
struct Segment {
    device: c_int,
    bytes: u64,
    number: u64,
    /// A call frees it: no other does.
    is_going: AtomicBool,
    arena: DeviceArena<AnyDevice>,
    /// All of the arena.
    _block: ArenaBuffer<AnyDevice>,
    home: Home,
}

pub(crate) fn tell(on_malloc: Option<MallocCallback>, on_free: Option<FreeCallback>, user: *mut c_void) {
    *TOLD.lock() = Told { on_malloc, on_free, user: user as usize };
}

pub(crate) fn allocate(size: u64, device: c_int, stream: usize) -> Result<u64, Failure> {
    static NUMBERS: AtomicU64 = AtomicU64::new(1);
    let options = torch::options_for(device)?;
    let home = Home::new(0, options.open()?);
    let kind = home.device.properties().preferred_placement().into();
    let memory = home.device.virtual_memory().ok_or_else(crate::pool::not_virtual)?;
    let granularity = memory.granularity(kind)?;
    let bytes = size.checked_next_multiple_of(granularity).ok_or_else(|| {
        Failure::new(Status::TOO_LARGE, format!("{size} bytes are more than addresses there are"))
    })?;
    let arena = DeviceArena::builder(&home.device)
        .memory(kind)
        .growing()
        .limit(bytes)
        .addresses(bytes)
        .piece_bytes(bytes)
        .build()?;
    let block = arena.allocate(bytes, &home.find(stream)?)?;
    let start = block.memory().address().ok_or_else(crate::pool::not_virtual)?;
    let address = start + block.offset()?;
    // Relaxed: only distinctness matters.
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let is_going = AtomicBool::new(false);
    let segment = Segment { device, bytes, number, is_going, arena, _block: block, home };
    SEGMENTS.lock().get_or_insert_default().insert(address, Arc::new(segment));
    let told = *TOLD.lock();
    if let Some(on_malloc) = told.on_malloc {
        on_malloc(told.user as *mut c_void, device, bytes, address, number);
    }
    Ok(address)
}

pub(crate) fn free(address: u64) -> Result<(), Failure> {
    // Relaxed: only one call has to win.
    if find(address)?.is_going.swap(true, Ordering::Relaxed) {
        return Err(none(address));
    }
    let told = *TOLD.lock();
    if let Some(on_free) = told.on_free {
        on_free(told.user as *mut c_void, address);
    }
    let taken = SEGMENTS.lock().as_mut().and_then(|segments| segments.remove(&address));
    let segment = taken.ok_or_else(|| none(address))?;
    // Work on streams that nobody here knows may use it.
    segment.home.drain()
}

/// Takes the physical memory of a segment away, or gives it some.
pub(crate) fn change(
    device: c_int,
    bytes: u64,
    address: u64,
    number: u64,
    maps: bool,
) -> Result<(), Failure> {
    let segment = find(address)?;
    if (segment.device, segment.bytes, segment.number) != (device, bytes, number) {
        let Segment { device, bytes, number, .. } = &*segment;
        let text =
            format!("the segment at {address:#x} is of device {device}, {bytes} bytes and number {number}");
        return Err(Failure::new(Status::MISMATCH, text));
    }
    if maps {
        let _ = segment.arena.wake()?;
    } else {
        segment.home.drain()?;
        let _ = segment.arena.sleep(Offload::Discard)?;
    }
    Ok(())
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
