//! A device that is destroyed: what is asked of it afterwards is a typed error, and drops do no harm.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use vrampool_backend::AllocationRequest;
use vrampool_test_support::{BackendExt, require};
use vrampool_wgpu::{
    Backend, BackendError, Capabilities, Event, Memory, Placement, Program, Region, RegionMut, TestKernels,
    WgpuDevice, wgpu,
};

/// All handles share one device, so only one test at a time may destroy it.
static DEVICE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    DEVICE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lost<T>(answer: Result<T, BackendError>) {
    match answer {
        Err(error) => assert!(error.is_device_lost(), "{error:?}"),
        Ok(_) => panic!("the device is lost"),
    }
}

type Way = dyn Fn(&WgpuDevice) -> Result<(), BackendError>;

/// Asks `first`, which has to find out, and then everything.
fn loses(device: &WgpuDevice, first: &Way) {
    let stream = device.stream();
    let memory = device.memory(4096, Placement::Device);
    let other = device.memory(4096, Placement::Device);
    let mapped = device.properties().capabilities.contains(Capabilities::HOST_VISIBLE);
    let mapped = mapped.then(|| device.memory(4096, Placement::HostVisible));
    let kernels = TestKernels::load(device).expect("kernels");
    let whole = || RegionMut::whole(&memory, &stream);
    device.fill(&stream, whole(), 1).expect("a fill");
    let event = device.record(&stream).expect("an event");
    device.device().destroy();
    lost(first(device));
    let mut bytes = vec![0; 4096];
    lost(device.fill(&stream, whole(), 1));
    lost(device.fill(&stream, whole(), 0));
    lost(device.upload(&stream, &bytes, whole()));
    lost(device.download(&stream, Region::whole(&memory, &stream), &mut bytes));
    lost(device.copy(&stream, Region::whole(&other, &stream), whole()));
    lost(device.allocate(&AllocationRequest::new(4096, Placement::Device)));
    lost(device.create_stream());
    lost(device.record(&stream));
    lost(device.synchronize(&stream));
    lost(device.wait(&stream, &event));
    lost(event.is_complete());
    lost(device.memory_info());
    lost(stream.flush());
    lost(stream.submit([]));
    lost(stream.encode(|_| ()));
    lost(stream.view(Region::whole(&memory, &stream)));
    lost(kernels.write_pattern(&stream, whole(), 1));
    lost(TestKernels::load(device));
    lost(Program::build(device, ""));
    lost(device.with_memory_limit(1));
    if let Some(mapped) = mapped {
        lost(device.write_mapped(&mapped, 0, &[1]));
        lost(device.read_mapped(&mapped, 0, &mut bytes));
    }
    assert_eq!(memory.len(), 4096);
}

fn ways(open: impl Fn() -> Option<WgpuDevice>) {
    let memory =
        |device: &WgpuDevice| device.allocate(&AllocationRequest::new(4096, Placement::Device)).map(|_| ());
    let synchronize = |device: &WgpuDevice| device.synchronize(&device.create_stream()?);
    let event = |device: &WgpuDevice| device.record(&device.create_stream()?)?.is_complete().map(|_| ());
    let submit = |device: &WgpuDevice| device.create_stream()?.submit([]);
    let ways: [&Way; 4] = [&memory, &synchronize, &event, &submit];
    for way in ways {
        let Some(device) = open() else { return };
        loses(&device, way);
    }
}

#[test]
fn a_destroyed_device_says_so_whatever_is_asked_first() {
    let _alone = alone();
    ways(|| require("wgpu", || WgpuDevice::open(0)));
}

#[test]
fn so_does_the_programs_own_whose_callback_is_not_ours() {
    let _alone = alone();
    ways(|| {
        let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
        Some(WgpuDevice::from_parts(device, queue).expect("a device"))
    });
}

#[test]
fn the_reason_is_reported() {
    let _alone = alone();
    let Some(device) = require("wgpu", || WgpuDevice::open(0)) else { return };
    let stream = device.stream();
    device.device().destroy();
    let _ = device.device().poll(wgpu::PollType::Poll);
    let error = device.synchronize(&stream).expect_err("it is lost");
    assert!(
        matches!(&error, BackendError::DeviceLost { reason, .. } if reason.contains("Destroyed")),
        "{error}"
    );
}

/// wgpu's `Device::poll` has no error for a device that the driver says is lost: it panics. Played here by a
/// callback, which panics within it in the same words.
#[test]
fn a_panic_of_polling_is_a_typed_error_and_others_are_not_hidden() {
    let _alone = alone();
    let (device, queue) = wgpu::Device::noop(&wgpu::DeviceDescriptor::default());
    let device = WgpuDevice::from_parts(device, queue).expect("a device");
    let stream = device.stream();
    let play = |words: &'static str| {
        device.queue().submit([]);
        device.queue().on_submitted_work_done(move || panic!("{words}, {}", "as formatted"));
        catch_unwind(AssertUnwindSafe(|| device.synchronize(&stream)))
    };
    // From within a submission, for the event; nothing asks it for ever.
    let event = device.record(&stream).expect("an event");
    play("something of the program's own").expect_err("it is the program's own");
    let error = event.is_complete().expect_err("what became of it is not known");
    assert!(matches!(&error, BackendError::Driver { call, .. } if call == "Queue::submit"), "{error}");
    // From within polling.
    play("something of the program's own").expect_err("it is the program's own");
    device.synchronize(&stream).expect("the device is as it was");
    lost(play("Error in Device::poll: the parent device is lost").expect("no panic"));
    lost(device.record(&stream));
}
