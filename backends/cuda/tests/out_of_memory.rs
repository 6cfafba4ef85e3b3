//! The device's memory really runs out, and comes back. Alone in its process, because it takes everything.

use vrampool_backend::AllocationRequest;
use vrampool_cuda::{Backend, BackendError, CudaDevice, Memory, Placement, VirtualMemory};
use vrampool_test_support::require;

const GIB: u64 = 1 << 30;

fn refused<T: std::fmt::Debug>(answer: Result<T, BackendError>) {
    match answer {
        Err(BackendError::OutOfMemory { requested_bytes: requested, free_bytes: Some(free), .. }) => {
            assert_eq!(requested, 2 * GIB);
            assert!(free < 2 * GIB, "{free}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_card_is_a_typed_error_and_what_is_dropped_comes_back() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let before = device.memory_info().expect("memory info");
    assert!(before.free_bytes <= before.total_bytes);
    let held = device
        .allocate(&AllocationRequest::new(before.free_bytes - GIB, Placement::Device))
        .expect("all but a GiB");
    assert!(
        device.memory_info().expect("memory info").free_bytes <= before.free_bytes - held.len() + GIB / 8
    );
    refused(device.allocate(&AllocationRequest::new(2 * GIB, Placement::Device)));
    if device.virtual_memory().is_some() {
        refused(device.create_physical(&AllocationRequest::new(2 * GIB, Placement::Device)));
        let reservation = device.reserve(2 * GIB).expect("addresses");
        refused(device.create_and_map(&reservation, 0, &AllocationRequest::new(2 * GIB, Placement::Device)));
        let error = device
            .create_physical(&AllocationRequest::new(1 << 60, Placement::Device))
            .expect_err("too much");
        assert!(error.is_out_of_memory(), "{error}");
        let error = device.reserve(!(GIB - 1)).expect_err("more than an address space");
        assert!(!error.is_device_lost(), "{error}");
    }
    // More than the card has is out of memory too, and the driver is not asked.
    let error = device
        .allocate(&AllocationRequest::new(before.total_bytes + 1, Placement::Device))
        .expect_err("too much");
    assert!(error.is_out_of_memory(), "{error}");
    drop(held);
    let after = device.memory_info().expect("memory info");
    assert!(after.free_bytes + GIB / 8 >= before.free_bytes, "{before:?} {after:?}");
    device.allocate(&AllocationRequest::new(2 * GIB, Placement::Device)).expect("there is room again");
}
