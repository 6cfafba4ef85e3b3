//! What PyTorch's `CUDAPluggableAllocator` takes: a pool for each device, by the device's number.
//!
//! * `filter`: the C++ function that says whose requests go to a private pool;
//! * `throw`: failures as PyTorch's own exceptions.

#[allow(unsafe_code, reason = "a C++ object is called, copied and destroyed; every block is argued")]
pub(crate) mod filter;
#[allow(unsafe_code, reason = "a C++ exception is made and thrown; every block is argued")]
mod throw;

pub use crate::snapshot::Span;
pub use filter::CppFunction;

use crate::blocks;
use crate::boundary::{self, Numbers, Out, Text, exports, guarded};
use crate::captured::{self, Route};
use crate::checkpoint::Wanted;
use crate::failure::{Failure, Status, check_no_callback};
use crate::options::Options;
use crate::pool::CPool;
use crate::private::Id;
use crate::uses::{self, Expected};
use crate::{last_error, registry, snapshot};
use filter::Filter;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use throw::find as thrower;
use vrampool::Backend;

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

/// `vrampool_mempool_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct MempoolId {
    /// The first of PyTorch's two numbers.
    pub first: u64,
    /// The second.
    pub second: u64,
}

impl From<MempoolId> for (u64, u64) {
    fn from(id: MempoolId) -> Self {
        (id.first, id.second)
    }
}

/// `vrampool_torch_visitor`.
pub type Visitor = Option<extern "C-unwind" fn(user: *mut c_void, span: &Span)>;

exports! {
    fn vrampool_torch_configure(options: Text<'_>) {
        let options = Options::parse(options.optional("options")?.unwrap_or_default())?;
        let mut present = OPTIONS.lock();
        if pools().next().is_some() {
            let text = "PyTorch has a pool already; configure before its first allocation";
            return Err(Failure::new(Status::BUSY, text));
        }
        *present = Some(options);
        // Relaxed, here and below: only distinctness matters.
        CONFIGURATION.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn vrampool_torch_pool(device: c_int, pool: Out<'_, u64>) {
        pool.answer("pool", || with(device, |pool| Ok(pool.handle)))
    }

    fn vrampool_torch_pools(json: Out<'_, *mut c_char>) {
        json.answer("json", || {
            let pool = |(device, pool)| json!({ "device": device, "pool": pool });
            Ok(boundary::give_text(pools().map(pool).collect::<Value>().to_string()))
        })
    }

    fn vrampool_torch_shutdown() {
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

    extern "C-unwind" fn vrampool_torch_alloc(
        size: usize,
        device: c_int,
        stream: *mut c_void,
    ) -> *mut c_void {
        allocate(size, device, stream).unwrap_or_else(|failure| throw_or_null(&failure, size, device))
    }

    extern "C-unwind" fn vrampool_torch_alloc_or_null(
        size: usize,
        device: c_int,
        stream: *mut c_void,
    ) -> *mut c_void {
        last_error::or_null(allocate(size, device, stream))
    }

    extern "C" fn vrampool_torch_free(address: *mut c_void, size: usize, device: c_int, stream: *mut c_void) {
        if !address.is_null() {
            let expected = Expected { pool: Some(known_pool(device)), bytes: Some(size as u64) };
            reported(|| uses::free(address as u64, stream as usize, expected, free_elsewhere));
        }
    }

    extern "C" fn vrampool_torch_throws() -> c_int {
        c_int::from(guarded(|| Ok(thrower().is_some())).unwrap_or(false))
    }

    extern "C" fn vrampool_torch_init(device_count: c_int) {
        // A pool is made when it is needed, so that a process takes no memory of devices that it does not use.
        log::debug!("PyTorch has {device_count} devices");
    }

    extern "C" fn vrampool_torch_reset() {
        reported(|| {
            for (_, pool) in pools() {
                let trimmed = registry::with(pool, |pool| Ok(pool.trim(0)));
                log::debug!("emptied: {trimmed:?}");
            }
            Ok(())
        });
    }

    extern "C" fn vrampool_torch_memory_fraction(fraction: f64, device: c_int) {
        reported(|| {
            if !(0.0..=1.0).contains(&fraction) {
                return Err(Failure::invalid("fraction", &format!("{fraction} is not between 0 and 1")));
            }
            with(device, |pool| {
                let total = pool.home.device.memory_info()?.total_bytes;
                pool.set_limit((total as f64 * fraction) as u64)
            })
        });
    }

    extern "C" fn vrampool_torch_base_alloc(address: *mut c_void, size: Out<'_, usize>) -> *mut c_void {
        let around = guarded(|| Ok(blocks::around(address as u64))).ok().flatten();
        let (start, bytes) = around.unwrap_or((address as u64, 0));
        size.set(usize::try_from(bytes).unwrap_or(0));
        start as *mut c_void
    }

    extern "C" fn vrampool_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
        if !address.is_null() {
            reported(|| uses::record_stream(address as u64, stream as usize));
        }
    }

    /// As the header says; unlike the others it is C++'s promise that `filter` is null or what the header says.
    extern "C-unwind" fn vrampool_torch_begin_allocate_to_pool(
        device: c_int,
        id: MempoolId,
        filter: CppFunction,
    ) {
        let filter = Filter::copy_of(filter);
        reported(|| with(device, |pool| pool.begin_private(id.into(), filter)));
    }

    extern "C" fn vrampool_torch_end_allocate_to_pool(device: c_int, id: MempoolId) {
        reported(|| on_private(device, id.into(), |pool, id| pool.captures.end(id, &pool.home)));
    }

    extern "C" fn vrampool_torch_release_pool(device: c_int, id: MempoolId) {
        reported(|| on_private(device, id.into(), |pool, id| pool.captures.release(id, &pool.home)));
    }

    fn vrampool_torch_pool_create(device: c_int, id: MempoolId) {
        with(device, |pool| pool.create_private(id.into()))
    }

    fn vrampool_torch_pool_uses(device: c_int, id: MempoolId, uses: Out<'_, u64>) {
        uses.answer("uses", || with(device, |pool| Ok(pool.captures.uses(id.into()))))
    }

    fn vrampool_torch_pool_use_on_oom(device: c_int, id: MempoolId, is_used: c_int) {
        on_private(device, id.into(), |pool, id| pool.captures.use_on_oom(id, is_used != 0))
    }

    fn vrampool_torch_pool_restore(
        device: c_int,
        id: MempoolId,
        addresses: Numbers<'_>,
        requested: Numbers<'_>,
        streams: Numbers<'_>,
        count: usize,
    ) {
        let addresses = addresses.read(count, "addresses")?;
        let requested = requested.read(count, "requested")?;
        let streams = streams.read(count, "streams")?;
        let blocks = addresses.iter().zip(requested).zip(streams);
        let wanted: Vec<_> = blocks
            .map(|((&address, &requested), &stream)| Wanted { address, requested, stream: stream as usize })
            .collect();
        with(device, |pool| {
            let private = pool.captures.private(id.into()).ok_or_else(|| no_private(id.into()))?;
            pool.restore_private(&private, &wanted)
        })
    }

    extern "C-unwind" fn vrampool_torch_visit(
        device: c_int,
        is_live_only: c_int,
        visitor: Visitor,
        user: *mut c_void,
    ) -> Status {
        match guarded(|| spans(device, is_live_only != 0)) {
            Ok(spans) => {
                // Out here: what C++ throws goes on to its caller.
                spans.iter().for_each(|span| visitor.into_iter().for_each(|visitor| visitor(user, span)));
                Status::OK
            }
            Err(failure) => last_error::keep(&failure),
        }
    }
}

#[inline(always)]
fn allocate(size: usize, device: c_int, stream: *mut c_void) -> Result<*mut c_void, Failure> {
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    let address = match captured::are_any_routes() {
        false => guarded(|| registry::allocate(pool(device)?, size as u64, stream as usize))?,
        true => allocate_routed(size, device, stream)?,
    };
    Ok(address as *mut c_void)
}

/// Serves a request that may have to go to a private pool.
#[cold]
fn allocate_routed(size: usize, device: c_int, stream: *mut c_void) -> Result<u64, Failure> {
    let routes = guarded(|| with(device, |pool| Ok(pool.captures.routes())))?;
    // Asked out here: what such a function of C++'s throws goes on to its caller.
    let accepts = |route: &&Route| route.filter.as_ref().is_none_or(|filter| filter.accepts(stream));
    let route = routes.iter().find(accepts);
    let (bytes, stream) = (size as u64, stream as usize);
    let serve = |pool: &CPool| match route {
        None => pool.allocate(bytes, stream),
        Some(route) => pool.allocate_private(&route.private, bytes, stream),
    };
    guarded(|| with(device, serve))
}

/// Runs `act` for a caller that takes no status. A failure is logged, and kept as the last error.
fn reported(act: impl FnOnce() -> Result<(), Failure>) {
    if let Err(failure) = guarded(act) {
        report(&failure);
    }
}

#[cold]
fn report(failure: &Failure) {
    let _ = last_error::keep(failure);
    log::error!("{}", failure.text);
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
fn pool(device: c_int) -> Result<u64, Failure> {
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
fn pools() -> impl Iterator<Item = (usize, u64)> {
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

/// Does something with the pool of a device, made if there is none.
fn with<T>(device: c_int, act: impl FnOnce(&CPool) -> Result<T, Failure>) -> Result<T, Failure> {
    registry::with(pool(device)?, act)
}

/// The handle of a device's pool, if it has one.
#[inline(always)]
fn known_pool(device: c_int) -> u64 {
    place(device).map_or(0, |pool| pool.load(Ordering::Acquire))
}

/// Frees the block in any case, and then returns an error if the arguments were wrong.
#[inline(never)]
fn free_elsewhere(address: u64, stream: usize, expected: Expected) -> Result<(), Failure> {
    let (mut held, home) = uses::remove(address, |_| Ok(()))?;
    let checked = expected.check(&held);
    let recorded = uses::unless_asleep(uses::record_surely(&mut held, &home, stream));
    held.free(&home);
    checked.and(recorded)
}

/// Throws what PyTorch expects where it is there; else keeps why not, and answers null.
#[cold]
#[inline(never)]
fn throw_or_null(failure: &Failure, size: usize, device: c_int) -> *mut c_void {
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
    match guarded(|| Ok(thrower())) {
        Ok(Some(thrower)) => thrower.throw(is_out_of_memory, &reported.text),
        _ => ptr::null_mut(),
    }
}

/// Does something with a private pool of a device. An error if `act` returns that there is none.
fn on_private(device: c_int, id: Id, act: impl FnOnce(&CPool, Id) -> bool) -> Result<(), Failure> {
    with(device, |pool| act(pool, id).then_some(()).ok_or_else(|| no_private(id)))
}

fn no_private(id: Id) -> Failure {
    Failure::invalid("id", &format!("there is no private pool {id:?}, or no allocation to it was begun"))
}

/// The memory of a device's pool, if it has one: all spans of all segments, or the live blocks alone.
fn spans(device: c_int, is_live_only: bool) -> Result<Vec<Span>, Failure> {
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
