//! Work that fails ends its stream, by the rule that the contract has for all backends, and nothing reads
//! results that do not exist.

use std::sync::mpsc::channel;
use vrampool_host::{
    Backend, BackendError, Event, HostDevice, HostMemory, HostStream, Placement, Region, RegionMut, Stream,
};
use vrampool_test_support::BackendExt;

const BYTES: u64 = 64;

fn scene() -> (HostDevice, HostStream, HostMemory) {
    let device = HostDevice::new();
    let stream = device.stream();
    let memory = device.memory(BYTES, Placement::HostVisible);
    (device, stream, memory)
}

/// A kernel that panics on demand.
fn panic_later(stream: &HostStream) -> std::sync::mpsc::Sender<()> {
    let (go, signal) = channel::<()>();
    let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| {
        let _ = signal.recv();
        panic!("a kernel's bug");
    };
    stream.launch([], [], kernel).expect("queued");
    go
}

fn assert_failed<T: std::fmt::Debug>(what: &str, answer: Result<T, BackendError>) {
    let error = answer.expect_err(what);
    assert!(error.is_stream_failed() && !error.is_device_lost(), "{what}: {error}");
    assert!(error.to_string().contains("a kernel's bug"), "{what}: {error}");
}

/// Everything that takes a stream.
fn assert_all_fail(device: &HostDevice, stream: &HostStream, memory: &HostMemory) {
    let whole = || RegionMut::whole(memory, stream);
    let mut bytes = [0; BYTES as usize];
    assert_failed("synchronize", device.synchronize(stream));
    assert_failed("upload", device.upload(stream, &bytes, whole()));
    assert_failed("fill", device.fill(stream, whole(), 1));
    assert_failed("download", device.download(stream, Region::whole(memory, stream), &mut bytes));
    assert_failed("launch", stream.launch::<u8, 0, 0>([], [], |[], []| ()));
    let other = device.memory(BYTES, Placement::Device);
    assert_failed(
        "copy",
        device.copy(stream, Region::whole(&other, stream), RegionMut::whole(memory, stream)),
    );
}

#[test]
fn every_call_on_a_failed_stream_says_so_and_others_go_on() {
    let (device, stream, memory) = scene();
    let other = device.stream();
    drop(panic_later(&stream));
    assert_failed("synchronize", device.synchronize(&stream));
    assert_all_fail(&device, &stream, &memory);
    let end = device.record(&stream).expect("a point");
    assert_eq!(end.is_complete(), Ok(true), "its work is over");
    assert_failed("wait", device.wait(&other, &end));
    device.fill(&other, RegionMut::whole(&memory, &other), 3).expect("the other stream works");
    device.synchronize(&other).expect("the other stream works");
}

#[test]
fn queued_work_of_a_failed_stream_is_not_done() {
    let (device, stream, memory) = scene();
    let go = panic_later(&stream);
    device.fill(&stream, RegionMut::whole(&memory, &stream), 9).expect("queued");
    drop(go);
    assert_failed("synchronize", device.synchronize(&stream));
    let mut bytes = [1; BYTES as usize];
    device.read_mapped(&memory, 0, &mut bytes).expect("mapped");
    assert_eq!(bytes, [0; BYTES as usize]);
}

/// The wait is made before the failure.
#[test]
fn a_stream_that_waits_for_one_that_fails_fails_too() {
    let (device, stream, memory) = scene();
    let (reader, third) = (device.stream(), device.stream());
    let go = panic_later(&stream);
    device.wait(&reader, &device.record(&stream).expect("a point")).expect("queued");
    device.wait(&third, &device.record(&reader).expect("a point")).expect("queued");
    drop(go);
    for failed in [&reader, &third] {
        assert_failed("synchronize", device.synchronize(failed));
        assert_all_fail(&device, failed, &memory);
    }
}

#[test]
fn a_retired_stream_has_done_its_work_and_takes_no_more() {
    let (device, stream, memory) = scene();
    device.fill(&stream, RegionMut::whole(&memory, &stream), 9).expect("queued");
    let early = device.record(&stream).expect("a point");
    stream.retire().expect("its work does not fail");
    assert!(stream.is_retired() && stream.clone().is_retired());
    assert_eq!(early.is_complete(), Ok(true));
    let mut bytes = [1; BYTES as usize];
    device.read_mapped(&memory, 0, &mut bytes).expect("mapped");
    assert_eq!(bytes, [9; BYTES as usize]);
    let refused = device.fill(&stream, RegionMut::whole(&memory, &stream), 3);
    assert!(matches!(refused, Err(BackendError::InvalidArgument { .. })), "{refused:?}");
    assert_eq!(device.record(&stream).expect("a point").is_complete(), Ok(true));
    device.synchronize(&stream).expect("nothing is to be waited for");
    stream.retire().expect("there is no more to do");
}

#[test]
fn a_failed_stream_is_retired_and_says_what_failed() {
    let (device, stream, memory) = scene();
    drop(panic_later(&stream));
    assert_failed("retire", stream.retire());
    assert!(stream.is_retired());
    assert_failed("synchronize", device.synchronize(&stream));
    assert_all_fail(&device, &stream, &memory);
}

/// Calls before the retirement succeed, later calls are refused, and no call blocks for ever.
#[test]
fn threads_that_use_a_stream_while_it_is_retired_are_served_or_refused() {
    use std::sync::atomic::{AtomicU64, Ordering};
    for _ in 0..50 {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let stream = device.stream();
        let done = std::sync::Arc::new(AtomicU64::new(0));
        let queued: u64 = std::thread::scope(|scope| {
            let users: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let queue = || {
                            let done = std::sync::Arc::clone(&done);
                            stream.launch::<u8, 0, 0>([], [], move |_, _| {
                                done.fetch_add(1, Ordering::Relaxed);
                            })
                        };
                        let queued = (0..100).take_while(|_| queue().is_ok()).count() as u64;
                        device.synchronize(&stream).expect("no work failed");
                        queued
                    })
                })
                .collect();
            stream.retire().expect("no work failed");
            users.into_iter().map(|user| user.join().expect("no panic")).sum()
        });
        assert_eq!(done.load(Ordering::Relaxed), queued, "what was queued is done");
    }
}
