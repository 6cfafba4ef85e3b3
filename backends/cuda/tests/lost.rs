//! A kernel that breaks the context: what is asked of the device afterwards is a typed error, and drops do no
//! harm. Alone in its process, whose context is lost for good.

#[path = "gpu/kernels.rs"]
mod kernels;

use vrampool_backend::AllocationRequest;
use vrampool_cuda::{Backend, BackendError, CudaDevice, Event, Placement, RegionMut};
use vrampool_test_support::require;

#[test]
fn a_bad_address_loses_the_device_and_says_so() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let stream = device.create_stream().expect("a stream");
    let memory = device.allocate(&AllocationRequest::new(4096, Placement::Device)).expect("memory");
    let pinned = device.allocate(&AllocationRequest::new(4096, Placement::HostVisible)).expect("memory");
    let mapped = device.virtual_memory().map(|memory| {
        let kind = Placement::Device.into();
        let page = memory.granularity(kind).expect("a granularity");
        let reservation = memory.reserve(2 * page).expect("addresses");
        let physical =
            memory.create_and_map(&reservation, page, &AllocationRequest::new(page, kind)).expect("memory");
        (reservation, physical)
    });
    let event = device.record(&stream).expect("an event");
    kernels::Kernels::new(&device).write_to_nowhere(&stream);
    let error = device.synchronize(&stream).expect_err("the kernel wrote to address 16");
    assert!(error.is_device_lost(), "{error}");
    assert!(error.to_string().contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    assert!(error.to_string().contains("700"), "{error}");
    let lost = |answer: Result<(), BackendError>| {
        let error = answer.expect_err("the context is lost");
        assert!(error.is_device_lost(), "{error}");
    };
    lost(device.fill(&stream, RegionMut::whole(&memory, &stream), 1));
    lost(device.allocate(&AllocationRequest::new(1 << 20, Placement::Device)).map(|_| ()));
    lost(device.record(&stream).map(|_| ()));
    lost(device.create_stream().map(|_| ()));
    lost(event.is_complete().map(|_| ()));
    drop((memory, pinned, mapped, event, stream, device));
}
