//! Pools and their blocks.

use crate::blocks::{self, Held};
use crate::boundary::{Given, Out, Place, Text, Versioned, exports, guarded};
use crate::failure::{Failure, Status};
use crate::options::Options;
use crate::pool::CPool;
use crate::{registry, uses};
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
        free(address as u64, stream as usize, Expected { pool, bytes: None })
    }

    fn vrampool_free_sized(pool: u64, address: *mut c_void, bytes: u64, stream: *mut c_void) {
        free(address as u64, stream as usize, Expected { pool, bytes: Some(bytes) })
    }

    fn vrampool_free_at(address: Place<'_>, stream: Given<'_, *mut c_void>) {
        let place = address.get().ok_or_else(|| Failure::invalid("address", "it is null"))?;
        free_at(place, |address| match stream.get() {
            Some(&stream) => free(address, stream as usize, Expected { pool: 0, bytes: None }),
            None => match blocks::remove_plain(address, None, |_| true) {
                Some(buffer) => {
                    internal::release(buffer);
                    Ok(())
                }
                None => blocks::remove(address, |_| Ok(())).map(Held::free),
            },
        })
    }

    extern "C" fn vrampool_drop_at(address: Place<'_>) {
        let Some(place) = address.get() else { return };
        // Relaxed: an address was stored before, by this thread or by one that handed the place over.
        if place.load(Ordering::Relaxed).is_null() {
            return;
        }
        let freed = guarded(|| free_at(place, |address| blocks::remove(address, |_| Ok(())).map(Held::free)));
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

/// What a caller says of the block that it frees.
#[derive(Debug, Clone, Copy)]
struct Expected {
    /// 0 for any.
    pool: u64,
    /// Bytes that were asked for.
    bytes: Option<u64>,
}

impl Expected {
    #[inline(always)]
    fn is_right(self, held: &Held) -> bool {
        (self.pool == 0 || self.pool == held.pool)
            && self.bytes.is_none_or(|bytes| bytes == held.memory.requested())
    }

    /// # Errors
    /// [`Status::MISMATCH`], with what is not right.
    fn check(self, held: &Held) -> Result<(), Failure> {
        let (pool, requested) = (self.pool, held.memory.requested());
        match self.bytes {
            _ if self.is_right(held) => Ok(()),
            Some(bytes) if pool == 0 || pool == held.pool => {
                Err(mismatch(&format!("{requested} bytes were requested, not {bytes}")))
            }
            _ => Err(mismatch(&format!("it belongs to pool {}, not to {pool}", held.pool))),
        }
    }
}

#[cold]
fn mismatch(reason: &str) -> Failure {
    Failure::new(Status::MISMATCH, format!("the block was not freed: {reason}"))
}

#[inline(always)]
fn free(address: u64, stream: usize, expected: Expected) -> Result<(), Failure> {
    match blocks::remove_plain(address, Some(stream), |held| expected.is_right(held)) {
        Some(buffer) => {
            internal::release(buffer);
            Ok(())
        }
        None if address == 0 => Ok(()),
        None => free_elsewhere(address, stream, expected),
    }
}

/// Frees a block that may be recorded, of a graph, or used on another stream than it was allocated for.
#[cold]
#[inline(never)]
fn free_elsewhere(address: u64, stream: usize, expected: Expected) -> Result<(), Failure> {
    uses::used_on(address, stream, |held| expected.check(held))?;
    blocks::remove(address, |held| expected.check(held))?.free();
    Ok(())
}
