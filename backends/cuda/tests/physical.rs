//! Physical memory that virtual memory takes and releases. Alone in its process, so that the device's free
//! memory shows it.

use vrampool_backend::AllocationRequest;
use vrampool_cuda::{Backend, CudaDevice, Memory, MemoryKind, Placement, VirtualMemory};
use vrampool_test_support::require;

const BYTES: u64 = 256 << 20;
/// A bound of unrelated changes of free memory meanwhile, bytes.
const SLACK: u64 = BYTES / 4;

fn kind() -> MemoryKind {
    Placement::Device.into()
}

/// How much less is free than there was.
fn taken(device: &CudaDevice, before: u64) -> u64 {
    let taken = before.saturating_sub(device.memory_info().expect("memory info").free_bytes);
    (taken + SLACK) / BYTES * BYTES
}

fn memory_comes_back_when_nothing_has_it_any_more(device: &CudaDevice, before: u64) {
    let taken = || taken(device, before);
    let reservation = device.reserve(4 * BYTES).expect("addresses");
    assert_eq!(taken(), 0, "addresses are no memory");
    let physical = device.create_physical(&AllocationRequest::new(BYTES, kind())).expect("memory");
    assert_eq!(taken(), BYTES, "physical memory is");
    device.map(&reservation, 0, &physical).expect("a place");
    device.map(&reservation, BYTES, &physical).expect("another");
    assert_eq!(taken(), BYTES, "in two places it is the same");
    let other = physical.clone();
    drop(physical);
    device.unmap(&reservation, 0, BYTES).expect("a mapping");
    drop(other);
    assert_eq!(taken(), BYTES, "a mapping keeps it");
    drop(reservation);
    assert_eq!(taken(), 0, "nothing has it");
}

fn a_piece_sleeps_and_wakes_at_its_addresses(device: &CudaDevice, before: u64) {
    let taken = || taken(device, before);
    let reservation = device.reserve(2 * BYTES).expect("addresses");
    let address = reservation.address();
    for _ in 0..3 {
        let first =
            device.create_and_map(&reservation, 0, &AllocationRequest::new(BYTES, kind())).expect("memory");
        let second = device
            .create_and_map(&reservation, BYTES, &AllocationRequest::new(BYTES, kind()))
            .expect("memory");
        assert_eq!((taken(), reservation.address()), (2 * BYTES, address), "awake");
        device.unmap(&reservation, 0, first.len()).expect("it was mapped");
        drop(first);
        assert_eq!(taken(), BYTES);
        device.unmap(&reservation, BYTES, second.len()).expect("it was mapped");
        drop(second);
        assert_eq!(taken(), 0, "asleep");
    }
}

#[test]
fn taken_memory_is_released() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    if device.virtual_memory().is_none() {
        vrampool_test_support::skipped("the device has no virtual memory");
        return;
    }
    // The driver's own first allocations are not counted.
    let page = device.granularity(kind()).expect("a granularity");
    let first = device.reserve(page).expect("addresses");
    drop((device.create_and_map(&first, 0, &AllocationRequest::new(page, kind())).expect("memory"), first));
    let before = device.memory_info().expect("memory info").free_bytes;
    memory_comes_back_when_nothing_has_it_any_more(&device, before);
    a_piece_sleeps_and_wakes_at_its_addresses(&device, before);
}
