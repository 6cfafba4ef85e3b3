//! CuPy's tests of its asynchronous and pinned pools, by their names, as far as the notion is ours: on the host device
//! where that can be, on a GPU where it must. Those of its `MemoryPool` are in `bindings/python/tests`.
//!
//! The tests are written anew; names and sizes are from `test_memory.py` and `test_pinned_memory.py` in
//! `tests/cupy_tests/cuda_tests` of <https://github.com/cupy/cupy> (MIT, © 2015 Preferred Infrastructure, Inc.,
//! © 2015 Preferred Networks, Inc.). CuPy's `MemoryAsyncPool` is a `DriverPool`, its `PinnedMemoryPool` a pool of pinned memory. A
//! double free does not compile.

#[cfg(feature = "cuda")]
mod asynchronous;
mod pinned;

use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Pool};

/// The granularity of CuPy's sizes.
const UNIT: u64 = 512;

fn device() -> (HostDevice, HostStream) {
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(4096).build();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

/// Where a buffer is, as work on `stream` sees it.
fn address<B: Backend>(buffer: &Buffer<B>, stream: &B::Stream) -> u64 {
    buffer.on(stream).expect("a region").address().expect("the device has addresses")
}

fn used<B: Backend>(pool: &Pool<B>) -> u64 {
    pool.stats().live_bytes
}
