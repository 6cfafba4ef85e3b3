//! Behaviour of an OpenCL device beyond conformance. Without a device every test is skipped with a message.

#[path = "../programs/mod.rs"]
mod programs;

mod foreign;
mod launches;
mod limit;
mod memory;
mod shared_memory;
mod test_kernels;
mod views;

use programs::all_devices;
use vrampool_opencl::{OpenClDevice, OpenClMemory, Placement};
use vrampool_test_support::{BackendExt, copy, fill, read};

/// A few tens of KiB: enough that a copy takes a while, little enough that a test of many rounds does not.
const BYTES: u64 = 64 * 1024;

fn memory(device: &OpenClDevice) -> OpenClMemory {
    device.memory(BYTES, Placement::Device)
}

/// Waits until what was dropped is free: all work is done.
fn drained(device: &OpenClDevice) {
    while device.deferred_bytes() > 0 {
        std::thread::yield_now();
    }
}
