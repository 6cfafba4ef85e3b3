//! Behaviour of a GPU beyond conformance. Without a GPU every test is skipped with a message.

mod devices;
mod kernels;
mod memory;
mod peers;
mod shared_handles;
mod streams;
mod views;
mod virtual_memory;

use vrampool_backend::AllocationRequest;
use vrampool_cuda::{Backend, CudaDevice, CudaMemory, Placement};
use vrampool_test_support::{copy, fill, read, require};

/// A few tens of KiB: enough that a copy takes a while, little enough that a test of many rounds does not.
const BYTES: u64 = 64 * 1024;

/// Returns the first device, or skips the test without one.
fn first_device() -> Option<CudaDevice> {
    require("cuda", || CudaDevice::open(0))
}

fn memory(device: &CudaDevice) -> CudaMemory {
    device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).expect("memory")
}
