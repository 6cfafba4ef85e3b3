//! What is CUDA's alone; `tests/devices` has the pool's promises on every device. Every test is skipped, and
//! says so, where there is none.
#![cfg(feature = "cuda")]

mod driver_pool;
#[cfg(feature = "prometheus")]
mod label;
mod streams;
mod test_kernels;

const MIB: u64 = 1 << 20;
