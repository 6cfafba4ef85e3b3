//! Behaviour of a GPU beyond conformance. Without a GPU every test is skipped with a message.

mod devices;
mod hooks;
mod kernels;
mod memory;
mod peers;
mod shared_handles;
mod slices;
mod streams;
mod views;
mod virtual_memory;

use vrampool_backend::AllocationRequest;
use vrampool_cuda::{Backend, CudaDevice, CudaMemory, CudaStream, Placement, Region, RegionMut};
use vrampool_test_support::require;

/// A few tens of KiB: enough that a copy takes a while, little enough that a test of many rounds does not.
const BYTES: u64 = 64 * 1024;

/// Returns the first device, or skips the test without one.
fn first_device() -> Option<CudaDevice> {
    require("cuda", || CudaDevice::open(0))
}

fn memory(device: &CudaDevice) -> CudaMemory {
    device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).expect("memory")
}

fn fill(device: &CudaDevice, stream: &CudaStream, memory: &CudaMemory, value: u8) {
    device.fill(stream, RegionMut::whole(memory, stream), value).expect("a fill");
}

fn copy(device: &CudaDevice, stream: &CudaStream, from: &CudaMemory, to: &CudaMemory) {
    device.copy(stream, Region::whole(from, stream), RegionMut::whole(to, stream)).expect("a copy");
}

fn read(device: &CudaDevice, stream: &CudaStream, memory: &CudaMemory) -> Vec<u8> {
    let mut bytes = vec![0; vrampool_cuda::Memory::len(memory) as usize];
    device.download(stream, Region::whole(memory, stream), &mut bytes).expect("a download");
    bytes
}
