//! Pools and their blocks.

use crate::blocks;
use crate::boundary::{Given, Out, Place, Text, Versioned, exports, guarded};
use crate::failure::{Failure, Status};
use crate::options::Options;
use crate::pool::CPool;
use crate::registry;
use crate::uses::{self, Expected};
use std::ffi::c_void;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use vrampool::{Buffer, internal};

/// `vrampool_block`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Block {
    /// As in C: what of it the caller knows.
    pub struct_size: usize,
    /// Where it begins.
    pub address: u64,
    /// Bytes that were asked for.
    pub requested: u64,
    /// Bytes of its class.
    pub bytes: u64,
    /// Its pool.
    pub pool: u64,
    /// The stream it was allocated for.
    pub stream: usize,
}

impl Versioned for Block {
    const LEAST: usize = offset_of!(Self, stream) + size_of::<usize>();
}

exports! {
    fn vrampool_create(options: Text<'_>, pool: Out<'_, u64>) {
        pool.answer("pool", || {
            let options = Options::parse(options.optional("options")?.unwrap_or_default())?;
            registry::add(|handle| CPool::new(handle, options))
        })
    }

    fn vrampool_destroy(pool: u64) {
        registry::remove(pool)
    }

    fn vrampool_allocate(pool: u64, bytes: u64, stream: *mut c_void, address: Out<'_, *mut c_void>) {
        address.answer("address", || Ok(registry::allocate(pool, bytes, stream as usize)? as *mut c_void))
    }

    fn vrampool_allocate_tagged(
        pool: u64,
        tag: Text<'_>,
        bytes: u64,
        stream: *mut c_void,
        address: Out<'_, *mut c_void>,
    ) {
        address.answer("address", || {
            let tag = tag.required("tag")?;
            let place = registry::with(pool, |pool| pool.allocate_tagged(tag, bytes, stream as usize))?;
            Ok(place as *mut c_void)
        })
    }

    fn vrampool_free(pool: u64, address: *mut c_void, stream: *mut c_void) {
        uses::free(address as u64, stream as usize, expected(pool, None), free_elsewhere)
    }

    fn vrampool_free_sized(pool: u64, address: *mut c_void, bytes: u64, stream: *mut c_void) {
        uses::free(address as u64, stream as usize, expected(pool, Some(bytes)), free_elsewhere)
    }

    fn vrampool_free_at(address: Place<'_>, stream: Given<'_, *mut c_void>) {
        let place = address.get().ok_or_else(|| Failure::invalid("address", "it is null"))?;
        free_at(place, |address| match stream.get() {
            Some(&stream) => uses::free(address, stream as usize, expected(0, None), free_elsewhere),
            None => match blocks::remove_plain(address, None, |_| true) {
                Some(buffer) => {
                    internal::release(buffer);
                    Ok(())
                }
                None => uses::free_any(address, |_| Ok(())),
            },
        })
    }

    extern "C" fn vrampool_drop_at(address: Place<'_>) {
        let Some(place) = address.get() else { return };
        // Relaxed: an address was stored before, by this thread or by one that handed the place over.
        if place.load(Ordering::Relaxed).is_null() {
            return;
        }
        let freed = guarded(|| free_at(place, |address| uses::free_any(address, |_| Ok(()))));
        if let Err(failure) = freed
            && failure.status != Status::FORKED
        {
            log::error!("a block is not freed, and stays live: {}", failure.text);
        }
    }

    fn vrampool_record_stream(address: *mut c_void, stream: *mut c_void) {
        uses::used_on(address as u64, stream as usize, |_| Ok(()))
    }

    fn vrampool_block_at(address: *const c_void, block: Out<'_, Block>) {
        block.answer_known("block", || {
            let found = blocks::look(address as u64, |held| {
                let bytes = held.memory.buffer().map(Buffer::capacity)?;
                Some(Block {
                    struct_size: 0,
                    address: address as u64,
                    requested: held.memory.requested(),
                    bytes,
                    pool: held.pool,
                    stream: held.stream,
                })
            })?;
            found.ok_or_else(|| Failure::new(Status::BUSY, "another call uses the block"))
        })
    }
}

/// Frees the block whose address is at `place` by `free`. Where that fails the address is restored.
fn free_at(place: &AtomicPtr<c_void>, free: impl FnOnce(u64) -> Result<(), Failure>) -> Result<(), Failure> {
    // Acquire and release: what was done with the block is done before another call frees it.
    let address = place.swap(ptr::null_mut(), Ordering::AcqRel);
    if address.is_null() {
        let text = "no block is there: it was freed already, or another call is freeing it";
        return Err(Failure::new(Status::INVALID_POINTER, text));
    }
    free(address as u64).inspect_err(|_| place.store(address, Ordering::Release))
}

/// `pool` is 0 for any.
#[inline(always)]
fn expected(pool: u64, bytes: Option<u64>) -> Expected {
    Expected { pool: (pool != 0).then_some(pool), bytes }
}

#[cold]
#[inline(never)]
fn free_elsewhere(address: u64, stream: usize, expected: Expected) -> Result<(), Failure> {
    if address == 0 {
        return Ok(());
    }
    uses::used_on(address, stream, |held| expected.check(held))?;
    uses::free_any(address, |held| expected.check(held))
}
