//! What PyTorch takes.

use crate::boundary::{self, Numbers, Out, Text, guard, guarded};
use crate::captured::{self, Route};
use crate::checkpoint::Wanted;
use crate::failure::{Failure, Status};
use crate::pool::CPool;
use crate::torch;
use crate::torch::filter::Filter;
use crate::{blocks, last_error, registry, uses};
use serde_json::{Value, json};
use std::ffi::{c_char, c_int, c_void};
use std::ptr;

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

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_configure(options: Text<'_>) -> Status {
    guard(|| torch::configure(options.optional("options")?))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_pool(device: c_int, pool: Out<'_, u64>) -> Status {
    guard(|| pool.answer("pool", || torch::with(device, |pool| Ok(pool.handle))))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_pools(json: Out<'_, *mut c_char>) -> Status {
    guard(|| {
        json.answer("json", || {
            let pool = |(device, pool)| json!({ "device": device, "pool": pool });
            Ok(boundary::give_text(torch::pools().map(pool).collect::<Value>().to_string()))
        })
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_shutdown() -> Status {
    guard(torch::shutdown)
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn vrampool_torch_alloc(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    allocate(size, device, stream).unwrap_or_else(|failure| torch::throw_or_null(&failure, size, device))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn vrampool_torch_alloc_or_null(
    size: usize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    last_error::or_null(allocate(size, device, stream))
}

#[inline(always)]
fn allocate(size: usize, device: c_int, stream: *mut c_void) -> Result<*mut c_void, Failure> {
    if size == 0 {
        return Ok(ptr::null_mut());
    }
    let address = match captured::are_any_routes() {
        false => guarded(|| registry::allocate(torch::pool(device)?, size as u64, stream as usize))?,
        true => allocate_routed(size, device, stream)?,
    };
    Ok(address as *mut c_void)
}

/// Serves a request that may have to go to a private pool.
#[cold]
fn allocate_routed(size: usize, device: c_int, stream: *mut c_void) -> Result<u64, Failure> {
    let routes = guarded(|| torch::with(device, |pool| Ok(pool.captures.routes())))?;
    // Asked out here: what such a function of C++'s throws goes on to its caller.
    let accepts = |route: &&Route| route.filter.as_ref().is_none_or(|filter| filter.accepts(stream));
    let route = routes.iter().find(accepts);
    let (bytes, stream) = (size as u64, stream as usize);
    let serve = |pool: &CPool| match route {
        None => pool.allocate(bytes, stream),
        Some(route) => pool.allocate_private(&route.private, bytes, stream),
    };
    guarded(|| torch::with(device, serve))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_free(address: *mut c_void, size: usize, device: c_int, stream: *mut c_void) {
    if !address.is_null() {
        reported(|| torch::free(address as u64, size as u64, device, stream as usize));
    }
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_throws() -> c_int {
    c_int::from(guarded(|| Ok(torch::thrower().is_some())).unwrap_or(false))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_init(device_count: c_int) {
    // A pool is made when it is needed, so that a process takes no memory of devices that it does not use.
    log::debug!("PyTorch has {device_count} devices");
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_reset() {
    reported(|| {
        torch::reset();
        Ok(())
    });
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_memory_fraction(fraction: f64, device: c_int) {
    reported(|| torch::limit_to(fraction, device));
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_base_alloc(address: *mut c_void, size: Out<'_, usize>) -> *mut c_void {
    let around = guarded(|| Ok(blocks::around(address as u64))).ok().flatten();
    let (start, bytes) = around.unwrap_or((address as u64, 0));
    size.set(usize::try_from(bytes).unwrap_or(0));
    start as *mut c_void
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_record_stream(address: *mut c_void, stream: *mut c_void) {
    if !address.is_null() {
        reported(|| uses::record_stream(address as u64, stream as usize));
    }
}

/// As the header says; unlike the others it is C++'s promise that `filter` is null or what the header says.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn vrampool_torch_begin_allocate_to_pool(
    device: c_int,
    id: MempoolId,
    filter: CppFunction,
) {
    let filter = Filter::copy_of(filter);
    reported(|| torch::with(device, |pool| pool.begin_private(id.into(), filter)));
}

pub use crate::torch::CppFunction;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_end_allocate_to_pool(device: c_int, id: MempoolId) {
    reported(|| torch::on_private(device, id.into(), |pool, id| pool.captures.end(id, &pool.home)));
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_release_pool(device: c_int, id: MempoolId) {
    reported(|| torch::on_private(device, id.into(), |pool, id| pool.captures.release(id, &pool.home)));
}

pub use crate::snapshot::Span;

/// `vrampool_torch_visitor`.
pub type Visitor = Option<extern "C-unwind" fn(user: *mut c_void, span: &Span)>;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_pool_create(device: c_int, id: MempoolId) -> Status {
    guard(|| torch::with(device, |pool| pool.create_private(id.into())))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_pool_uses(device: c_int, id: MempoolId, uses: Out<'_, u64>) -> Status {
    guard(|| uses.answer("uses", || torch::with(device, |pool| Ok(pool.captures.uses(id.into())))))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_pool_use_on_oom(device: c_int, id: MempoolId, is_used: c_int) -> Status {
    guard(|| torch::on_private(device, id.into(), |pool, id| pool.captures.use_on_oom(id, is_used != 0)))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_torch_pool_restore(
    device: c_int,
    id: MempoolId,
    addresses: Numbers<'_>,
    requested: Numbers<'_>,
    streams: Numbers<'_>,
    count: usize,
) -> Status {
    guard(|| {
        let addresses = addresses.read(count, "addresses")?;
        let requested = requested.read(count, "requested")?;
        let streams = streams.read(count, "streams")?;
        let blocks = addresses.iter().zip(requested).zip(streams);
        let wanted: Vec<_> = blocks
            .map(|((&address, &requested), &stream)| Wanted { address, requested, stream: stream as usize })
            .collect();
        torch::restore(device, id.into(), &wanted)
    })
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn vrampool_torch_visit(
    device: c_int,
    is_live_only: c_int,
    visitor: Visitor,
    user: *mut c_void,
) -> Status {
    match guarded(|| torch::spans(device, is_live_only != 0)) {
        Ok(spans) => {
            // Out here: what C++ throws goes on to its caller.
            spans.iter().for_each(|span| visitor.into_iter().for_each(|visitor| visitor(user, span)));
            Status::OK
        }
        Err(failure) => last_error::keep(&failure),
    }
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
