//! Streams.

use crate::boundary::{Out, exports};
use crate::registry;
use std::ffi::c_void;
use vrampool::Backend;

exports! {
    fn vrampool_stream_create(pool: u64, stream: Out<'_, *mut c_void>) {
        stream.answer("stream", || Ok(registry::get(pool)?.home.create()? as *mut c_void))
    }

    fn vrampool_stream_destroy(pool: u64, stream: *mut c_void) {
        registry::home_of(pool)?.destroy(stream as usize)
    }

    fn vrampool_stream_retire(pool: u64, stream: *mut c_void) {
        registry::home_of(pool)?.retire(stream as usize)
    }

    fn vrampool_stream_synchronize(pool: u64, stream: *mut c_void) {
        let home = registry::home_of(pool)?;
        Ok(home.device.synchronize(&home.find(stream as usize)?)?)
    }
}
