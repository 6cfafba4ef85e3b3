//! The pool's promises on NVIDIA GPUs. Every test is skipped, and says so, where there is none.
#![cfg(all(feature = "cuda", feature = "trace"))]

#[path = "../audit/mod.rs"]
mod audit;
mod gpu;

mod caps;
mod compaction;
mod driver_pool;
mod kernels;
mod streams;
mod traces;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
