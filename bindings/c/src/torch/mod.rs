//! What PyTorch's `CUDAPluggableAllocator` takes: a pool for each device, by the device's number.
//!
//! * `filter`: the C++ function that says whose requests go to a private pool;
//! * `throw`: failures as PyTorch's own exceptions.

#[allow(unsafe_code, reason = "a C++ object is called, copied and destroyed; every block is argued")]
pub(crate) mod filter;
#[allow(unsafe_code, reason = "a C++ exception is made and thrown; every block is argued")]
mod throw;

pub use filter::CppFunction;
pub(crate) use throw::find as thrower;

use crate::blocks::{self, Held};
use crate::checkpoint::Wanted;
use crate::failure::{Failure, Status, check_no_callback};
use crate::options::Options;
use crate::pool::CPool;
use crate::private::Id;
use crate::snapshot::{self, Span};
use crate::{boundary, last_error, registry, uses};
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::{Backend, internal};

/// As many as PyTorch has (C10_COMPILE_TIME_MAX_GPUS is 120).
const DEVICES: usize = 128;

/// What stands for the number in the name of a device.
const NUMBER: &str = "{}";

/// The handle of each device's pool; 0 where there is none.
static POOLS: [AtomicU64; DEVICES] = [const { AtomicU64::new(0) }; DEVICES];

/// How pools are to be. Held while one is made.
static OPTIONS: Mutex<Option<Options>> = Mutex::new(None);

/// How often they were set.
static CONFIGURATION: AtomicU64 = AtomicU64::new(0);

pub(crate) fn configure(text: Option<&str>) -> Result<(), Failure> {
    let options = Options::parse(text.unwrap_or_default())?;
    let mut present = OPTIONS.lock();
    if POOLS.iter().any(|pool| pool.load(Ordering::Acquire) != 0) {
        return Err(Failure::new(
            Status::BUSY,
            "PyTorch has a pool already; configure before its first allocation",
        ));
    }
    *present = Some(options);
    // Relaxed, here and below: only distinctness matters.
    CONFIGURATION.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// A unique number for each configuration.
pub(crate) fn configuration() -> u64 {
    CONFIGURATION.load(Ordering::Relaxed)
}

fn place(device: c_int) -> Result<&'static AtomicU64, Failure> {
    let place = usize::try_from(device).ok().and_then(|device| POOLS.get(device));
    place.ok_or_else(|| {
        Failure::invalid("device", &format!("{device} is not a device number, 0 to {}", DEVICES - 1))
    })
}

/// The handle of a device's pool.
#[inline(always)]
pub(crate) fn pool(device: c_int) -> Result<u64, Failure> {
    // Acquire: pairs with the release of the thread that made it.
    match place(device)?.load(Ordering::Acquire) {
        0 => make(device),
        handle => Ok(handle),
    }
}

#[cold]
#[inline(never)]
fn make(device: c_int) -> Result<u64, Failure> {
    let place = place(device)?;
    let options = OPTIONS.lock();
    let handle = place.load(Ordering::Acquire);
    if handle != 0 {
        return Ok(handle);
    }
    let own = options_of(options.as_ref(), device);
    let handle = registry::add(|handle| CPool::new(handle, own))?;
    place.store(handle, Ordering::Release);
    Ok(handle)
}

/// The devices that have a pool, and its handle.
pub(crate) fn pools() -> impl Iterator<Item = (usize, u64)> {
    let handles = POOLS.iter().map(|pool| pool.load(Ordering::Acquire)).enumerate();
    handles.filter(|&(_, handle)| handle != 0)
}

fn options_of(options: Option<&Options>, device: c_int) -> Options {
    let mut options = options.cloned().unwrap_or_default();
    let number = device.to_string();
    options.device = Some(options.device.as_deref().unwrap_or("cuda:{}").replace(NUMBER, &number));
    options.settings.name = Some(match &options.settings.name {
        Some(name) if name.contains(NUMBER) => name.replace(NUMBER, &number),
        Some(name) => format!("{name}-{number}"),
        None => format!("torch-{number}"),
    });
    options
}

/// Those of the pool that a device has, or would get.
pub(crate) fn options_for(device: c_int) -> Result<Options, Failure> {
    place(device)?;
    Ok(options_of(OPTIONS.lock().as_ref(), device))
}

pub(crate) fn shutdown() -> Result<(), Failure> {
    check_no_callback()?;
    let mut options = OPTIONS.lock();
    *options = None;
    CONFIGURATION.fetch_add(1, Ordering::Relaxed);
    let handles: Vec<_> = POOLS.iter().map(|pool| pool.swap(0, Ordering::AcqRel)).collect();
    drop(options);
    for handle in handles.into_iter().filter(|&handle| handle != 0) {
        // The program may have destroyed it by its handle.
        let _ = registry::remove(handle);
    }
    Ok(())
}

/// Does something with the pool of a device, made if there is none.
pub(crate) fn with<T>(device: c_int, act: impl FnOnce(&CPool) -> Result<T, Failure>) -> Result<T, Failure> {
    registry::with(pool(device)?, act)
}

/// Frees the block in any case, and then returns an error if the arguments were wrong.
#[inline(always)]
pub(crate) fn free(address: u64, bytes: u64, device: c_int, stream: usize) -> Result<(), Failure> {
    let is_right = |held: &Held| is_right(held, bytes, device);
    match blocks::remove_plain(address, Some(stream), is_right) {
        Some(buffer) => {
            internal::release(buffer);
            Ok(())
        }
        None => free_elsewhere((address, bytes, device, stream)),
    }
}

#[inline(always)]
fn is_right(held: &Held, bytes: u64, device: c_int) -> bool {
    held.memory.requested() == bytes
        && place(device).is_ok_and(|pool| pool.load(Ordering::Acquire) == held.pool)
}

/// Frees a block on the general path: it is recorded, of a graph, freed on another stream, or the call has a wrong
/// size or device.
#[inline(never)]
fn free_elsewhere((address, bytes, device, stream): (u64, u64, c_int, usize)) -> Result<(), Failure> {
    let mut held = blocks::remove(address, |_| Ok(()))?;
    let (is_right, requested) = (is_right(&held, bytes, device), held.memory.requested());
    let recorded = uses::unless_asleep(uses::record_surely(&mut held, stream));
    held.free();
    if is_right {
        return recorded;
    }
    let text = format!(
        "{address:#x} was freed as {bytes} bytes of device {device}; it has {requested} bytes, or belongs to another device"
    );
    Err(Failure::new(Status::MISMATCH, text))
}

/// Throws what PyTorch expects where it is there; else keeps why not, and answers null.
#[cold]
#[inline(never)]
pub(crate) fn throw_or_null(failure: &Failure, size: usize, device: c_int) -> *mut c_void {
    let is_out_of_memory = matches!(failure.status, Status::OUT_OF_MEMORY | Status::TOO_LARGE);
    let mut reported = failure.clone();
    if is_out_of_memory {
        // As PyTorch's own begins: programs look for it.
        let mib = size as f64 / f64::from(1 << 20);
        reported.text = format!(
            "CUDA out of memory. Tried to allocate {mib:.2} MiB on device {device}. vrampool: {}",
            reported.text
        );
    }
    let _ = last_error::keep(&reported);
    match boundary::guarded(|| Ok(thrower())) {
        Ok(Some(thrower)) => thrower.throw(is_out_of_memory, &reported.text),
        _ => ptr::null_mut(),
    }
}

pub(crate) fn reset() {
    for (_, pool) in pools() {
        let trimmed = registry::with(pool, |pool| Ok(pool.trim(0)));
        log::debug!("emptied: {trimmed:?}");
    }
}

pub(crate) fn limit_to(fraction: f64, device: c_int) -> Result<(), Failure> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(Failure::invalid("fraction", &format!("{fraction} is not between 0 and 1")));
    }
    with(device, |pool| {
        let total = pool.home.device.memory_info()?.total_bytes;
        pool.set_limit((total as f64 * fraction) as u64)
    })
}

/// Does something with a private pool of a device. An error if `act` returns that there is none.
pub(crate) fn on_private(device: c_int, id: Id, act: impl FnOnce(&CPool, Id) -> bool) -> Result<(), Failure> {
    with(device, |pool| act(pool, id).then_some(()).ok_or_else(|| no_private(id)))
}

fn no_private(id: Id) -> Failure {
    Failure::invalid("id", &format!("there is no private pool {id:?}, or no allocation to it was begun"))
}

/// Frees the live blocks of a private pool, and makes these live.
pub(crate) fn restore(device: c_int, id: Id, wanted: &[Wanted]) -> Result<(), Failure> {
    with(device, |pool| {
        let private = pool.captures.private(id).ok_or_else(|| no_private(id))?;
        pool.restore_private(&private, wanted)
    })
}

/// The memory of a device's pool, if it has one: all spans of all segments, or the live blocks alone.
pub(crate) fn spans(device: c_int, is_live_only: bool) -> Result<Vec<Span>, Failure> {
    match place(device)?.load(Ordering::Acquire) {
        0 => Ok(Vec::new()),
        handle if is_live_only => Ok(snapshot::live_spans(handle)),
        handle => Ok(registry::get(handle)?.spans()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lack_of_memory_is_reported_as_one() {
        let text = |status| {
            assert!(throw_or_null(&Failure::new(status, "why"), 1 << 20, 0).is_null(), "no PyTorch is here");
            last_error::copied()
        };
        for status in [Status::OUT_OF_MEMORY, Status::TOO_LARGE] {
            assert!(text(status).starts_with("CUDA out of memory. Tried to allocate 1.00 MiB"));
        }
        for status in [Status::CAPTURE, Status::DEVICE, Status::ASLEEP, Status::FORKED] {
            assert_eq!(text(status), "why", "{}", status.name());
        }
    }
}
