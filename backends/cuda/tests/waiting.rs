//! What waits for the device, and what does not. Alone in its process, because other threads' calls may wait
//! in between.

use std::time::Duration;
use vrampool_backend::AllocationRequest;
use vrampool_cuda::{
    Backend, BackendError, CudaDevice, CudaMemory, CudaStream, Event, MemoryKind, Placement, RegionMut,
    TestKernels, VirtualMemory,
};
use vrampool_test_support::{BackendExt, require};

/// Longer than any call takes that does not wait.
const BUSY: Duration = Duration::from_millis(100);

const BYTES: u64 = 64 << 10;

/// Keeps the stream busy, once the driver has got the kernel ready.
fn spin(device: &CudaDevice, kernels: &TestKernels, stream: &CudaStream) {
    kernels.delay(stream, Duration::ZERO).expect("queued");
    device.synchronize(stream).expect("a wait");
    kernels.delay(stream, BUSY).expect("queued");
}

/// The contract: work that was enqueued before a drop does not touch memory that is allocated after it. Here
/// because freeing waits, for a size that the driver takes out of a larger piece as for one that it maps by
/// itself.
fn freeing_waits_for_work_on_every_stream(device: &CudaDevice, kernels: &TestKernels) {
    let stream = device.stream();
    for kind in [Placement::Device, Placement::HostVisible, Placement::Managed] {
        for bytes in [1024, 64 * 1024, 8 << 20] {
            let memory = device.memory(bytes, kind);
            // Faults of pages, which managed memory takes when it is touched first, are over before the clock
            // starts.
            device.fill(&stream, RegionMut::whole(&memory, &stream), 0).expect("a fill");
            spin(device, kernels, &stream);
            device.fill(&stream, RegionMut::whole(&memory, &stream), 1).expect("a fill");
            let done = device.record(&stream).expect("an event");
            assert!(
                !done.is_complete().expect("an answer"),
                "{bytes} bytes of {kind:?}: the kernel is to run"
            );
            std::thread::spawn(move || drop(memory)).join().expect("no panic");
            assert!(
                done.is_complete().expect("an answer"),
                "{bytes} bytes of {kind:?} were freed under work"
            );
        }
    }
}

fn dropping_a_reservation_waits_too(device: &CudaDevice, kernels: &TestKernels) {
    if device.virtual_memory().is_none() {
        vrampool_test_support::skipped("the device has no virtual memory");
        return;
    }
    let stream = device.stream();
    let kind = Placement::Device.into();
    let page = device.granularity(kind).expect("a granularity");
    for pages in [1, 32] {
        let reservation = device.reserve(pages * page).expect("addresses");
        drop(
            device
                .create_and_map(&reservation, 0, &AllocationRequest::new(pages * page, kind))
                .expect("memory"),
        );
        spin(device, kernels, &stream);
        device.fill(&stream, RegionMut::whole(&reservation, &stream), 1).expect("a fill");
        let done = device.record(&stream).expect("an event");
        assert!(!done.is_complete().expect("an answer"), "{pages} pages: the kernel is to run");
        std::thread::spawn(move || drop(reservation)).join().expect("no panic");
        assert!(done.is_complete().expect("an answer"), "{pages} pages were unmapped under work");
    }
    device.synchronize(&stream).expect("no work failed");
}

fn neither_recording_nor_waiting_blocks_the_host(device: &CudaDevice, kernels: &TestKernels) {
    let (one, two) = (device.stream(), device.stream());
    spin(device, kernels, &one);
    let event = device.record(&one).expect("an event");
    device.wait(&two, &event).expect("a wait");
    let after = device.record(&two).expect("an event");
    assert!(!event.is_complete().expect("an answer") && !after.is_complete().expect("an answer"));
    device.synchronize(&two).expect("a wait");
    assert!(event.is_complete().expect("an answer") && after.is_complete().expect("an answer"));
}

/// Memory in place has the contents that its streams wrote: those streams are waited for, also dropped ones, and no
/// other.
fn mapping_waits_for_the_streams_of_the_memory(device: &CudaDevice, kernels: &TestKernels) {
    let pinned = MemoryKind::from(Placement::HostVisible);
    let error = device
        .allocate(&AllocationRequest::new(BYTES, Placement::Device))
        .and_then(|mut memory| device.mapped(&mut memory).map(|_| ()));
    assert!(matches!(error, Err(BackendError::Unsupported { .. })), "it is not pinned: {error:?}");
    for kind in [pinned, pinned.with_usage(CudaMemory::MAPPED)] {
        let mut memory = device.memory(BYTES, kind);
        let other = device.stream();
        kernels.delay(&other, Duration::from_secs(2)).expect("queued");
        let behind = device.record(&other).expect("an event");
        for value in 0..3 {
            let streams = [(); 2].map(|()| device.stream());
            let fill = |stream: &CudaStream, value: u8| {
                device.fill(stream, RegionMut::whole(&memory, stream), value).expect("a fill");
            };
            kernels.delay(&streams[0], Duration::from_millis(20)).expect("queued");
            fill(&streams[0], value);
            let filled = device.record(&streams[0]).expect("an event");
            device.wait(&streams[1], &filled).expect("an order");
            fill(&streams[1], value + 10);
            match value {
                0 => {}
                1 => streams.iter().for_each(|stream| stream.retire().expect("a wait")),
                // The context is waited for.
                _ => drop(streams),
            }
            let bytes = device.mapped(&mut memory).expect("pinned");
            assert!(bytes.iter().all(|&byte| byte == value + 10), "{value}: {}", bytes[0]);
            if value < 2 {
                assert_eq!(behind.is_complete(), Ok(false), "{value}");
            }
        }
        assert_eq!(behind.is_complete(), Ok(true));
    }
}

#[test]
fn freeing_waits_and_events_do_not() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    // Kept to the end: letting a module go waits too.
    let kernels = TestKernels::load(&device).expect("kernels");
    neither_recording_nor_waiting_blocks_the_host(&device, &kernels);
    freeing_waits_for_work_on_every_stream(&device, &kernels);
    dropping_a_reservation_waits_too(&device, &kernels);
    mapping_waits_for_the_streams_of_the_memory(&device, &kernels);
}
