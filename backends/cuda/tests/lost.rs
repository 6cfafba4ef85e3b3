//! A kernel that breaks the context: what is asked of the device afterwards is a typed error, and drops do no
//! harm. Alone in its process, whose context is lost for good.

use vrampool_backend::AllocationRequest;
use vrampool_cuda::cudarc::driver::{LaunchConfig, PushKernelArg};
use vrampool_cuda::{Backend, BackendError, CudaDevice, Event, Placement, RegionMut};
use vrampool_test_support::{BackendExt, require};

const PTX: &str = r"
.version 7.0
.target sm_50
.address_size 64
.visible .entry write_to(.param .u64 address)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

#[test]
fn a_bad_address_loses_the_device_and_says_so() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let stream = device.stream();
    let memory = device.memory(4096, Placement::Device);
    let pinned = device.memory(4096, Placement::HostVisible);
    let mapped = device.virtual_memory().map(|memory| {
        let kind = Placement::Device.into();
        let page = memory.granularity(kind).expect("a granularity");
        let reservation = memory.reserve(2 * page).expect("addresses");
        let physical =
            memory.create_and_map(&reservation, page, &AllocationRequest::new(page, kind)).expect("memory");
        (reservation, physical)
    });
    let event = device.record(&stream).expect("an event");
    let module = device.context().load_module(PTX.into()).expect("the driver compiles it");
    let write_to = module.load_function("write_to").expect("it is in the module");
    let mut launch = stream.cudarc().launch_builder(&write_to);
    launch.arg(&16u64);
    // SAFETY: nothing has memory at this address: the device refuses, the context is lost, and no memory changes.
    unsafe { launch.launch(LaunchConfig::for_num_elems(1)) }.expect("a launch");
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
