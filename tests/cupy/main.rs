//! CuPy's tests of its asynchronous and pinned pools, by their names, as far as the notion is ours: on the host device
//! where that can be, on a GPU where it must. Those of its `MemoryPool` are in `bindings/python/tests`.
//!
//! The tests are written anew; names and sizes are from `test_memory.py` and `test_pinned_memory.py` in
//! `tests/cupy_tests/cuda_tests` of <https://github.com/cupy/cupy> (MIT, © 2015 Preferred Infrastructure, Inc., © 2015
//! Preferred Networks, Inc.). CuPy's `MemoryAsyncPool` is a `DriverPool`, its `PinnedMemoryPool` a pool of pinned
//! memory. A double free does not compile.

#[cfg(feature = "cuda")]
mod asynchronous;
mod pinned;

/// The granularity of CuPy's sizes.
const UNIT: u64 = 512;
