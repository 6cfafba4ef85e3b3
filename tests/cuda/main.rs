//! Behaviour of CUDA devices only; `tests/devices` checks the pool's contract on every device. Without a device
//! every test is skipped with a message.
#![cfg(feature = "cuda")]

mod driver_pool;
#[cfg(feature = "prometheus")]
mod label;
mod streams;

const MIB: u64 = 1 << 20;
