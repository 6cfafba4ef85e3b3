//! Streams.

use crate::boundary::{Out, guard};
use crate::failure::Status;
use crate::registry;
use std::ffi::c_void;
use vrampool::Backend;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_stream_create(pool: u64, stream: Out<'_, *mut c_void>) -> Status {
    guard(|| stream.answer("stream", || Ok(registry::get(pool)?.home.create()? as *mut c_void)))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_stream_destroy(pool: u64, stream: *mut c_void) -> Status {
    guard(|| registry::home_of(pool)?.destroy(stream as usize))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_stream_retire(pool: u64, stream: *mut c_void) -> Status {
    guard(|| registry::home_of(pool)?.retire(stream as usize))
}

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_stream_synchronize(pool: u64, stream: *mut c_void) -> Status {
    guard(|| {
        let home = registry::home_of(pool)?;
        Ok(home.device.synchronize(&home.find(stream as usize)?)?)
    })
}
