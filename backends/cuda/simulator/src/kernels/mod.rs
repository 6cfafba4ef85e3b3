//! Kernels in Rust, found by the names that modules give them. Each declares the ranges that it touches.

mod kernel;
mod line;
mod memory;
mod network;

pub(crate) use kernel::{Kernel, Range};

pub(crate) fn find(name: &str) -> Option<&'static Kernel> {
    memory::KERNELS.iter().chain(&network::KERNELS).chain(&line::KERNELS).find(|kernel| kernel.name == name)
}
