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

use vrampool_backend::AllocationRequest;
use vrampool_opencl::{Backend, OpenClDevice, OpenClMemory, Placement, list};
use vrampool_test_support::{copy, fill, read, require};

/// A few tens of KiB: enough that a copy takes a while, little enough that a test of many rounds does not.
const BYTES: u64 = 64 * 1024;

/// Returns every device, or skips the test without one.
fn all_devices() -> Vec<OpenClDevice> {
    let devices = require("opencl", list).unwrap_or_default();
    devices.iter().map(|device| OpenClDevice::open(device.ordinal).expect("a listed device")).collect()
}

fn memory(device: &OpenClDevice) -> OpenClMemory {
    device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).expect("memory")
}

/// Waits until what was dropped is free: all work is done.
fn drained(device: &OpenClDevice) {
    while device.deferred_bytes() > 0 {
        std::thread::yield_now();
    }
}
