//! Behaviour of a GPU beyond conformance. Without a GPU every test is skipped with a message.

mod devices;
mod memory;
mod peers;
mod shared_handles;
mod streams;
mod views;
mod virtual_memory;

use vrampool_cuda::{CudaDevice, CudaMemory, Placement};
use vrampool_test_support::{BackendExt, copy, fill, read, require};

/// A few tens of KiB: enough that a copy takes a while, little enough that a test of many rounds does not.
const BYTES: u64 = 64 * 1024;

/// Returns the first device, or skips the test without one.
fn first_device() -> Option<CudaDevice> {
    require("cuda", || CudaDevice::open(0))
}

fn memory(device: &CudaDevice) -> CudaMemory {
    device.memory(BYTES, Placement::Device)
}
