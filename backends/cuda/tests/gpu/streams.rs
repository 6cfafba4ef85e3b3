//! One stream has one id, whatever wrapped it; events order streams; a thread's own stream keeps its order on
//! others.

use crate::{BYTES, copy, fill, first_device, memory, read};
use std::time::Duration;
use vrampool_cuda::cudarc::driver::{result, sys};
use vrampool_cuda::{
    Backend, BackendError, CudaDevice, CudaStream, Event, Region, RegionMut, Stream, TestKernels,
};
use vrampool_cuda_simulator_control::Simulator;
use vrampool_test_support::BackendExt;

const BUSY: Duration = Duration::from_micros(300);

fn raw(device: &CudaDevice, handle: sys::CUstream) -> CudaStream {
    // SAFETY: the callers pass the handles of default streams and of streams that they destroy later.
    unsafe { device.wrap_raw_stream(handle) }.expect("a stream")
}

#[test]
fn a_stream_has_one_id_however_it_is_wrapped() {
    let Some(device) = first_device() else { return };
    let own = device.stream();
    let theirs = device.context().new_stream().expect("a stream");
    let wrapped = device.wrap_stream(theirs.clone()).expect("a stream");
    assert_eq!(device.wrap_stream(theirs.clone()).expect("a stream").id(), wrapped.id());
    assert_eq!(raw(&device, theirs.cu_stream()).id(), wrapped.id());
    assert_eq!(device.wrap_stream(own.cudarc().clone()).expect("a stream").id(), own.id());
    let null = device.null_stream().expect("a stream");
    for handle in [0usize, 1] {
        assert_eq!(raw(&device, handle as sys::CUstream).id(), null.id(), "handle {handle}");
    }
    let mine = device.per_thread_stream().expect("a stream");
    assert_eq!(raw(&device, 2usize as sys::CUstream).id(), mine.id());
    let ids = [own.id(), wrapped.id(), null.id(), mine.id()];
    assert!((1..ids.len()).all(|i| !ids[..i].contains(&ids[i])), "{ids:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(device.null_stream().expect("a stream").id(), ids[2], "every thread has the same");
            assert_ne!(
                device.per_thread_stream().expect("a stream").id(),
                ids[3],
                "every thread has its own"
            );
        });
    });
}

#[test]
fn an_id_lives_as_long_as_a_handle() {
    let Some(device) = first_device() else { return };
    let theirs = device.context().new_stream().expect("a stream");
    let id = device.wrap_stream(theirs.clone()).expect("a stream").id();
    assert_ne!(
        device.wrap_stream(theirs).expect("a stream").id(),
        id,
        "no stream has the first handle any more"
    );
}

#[test]
fn a_raw_stream_that_is_owned_after_all_outlives_its_owner() {
    let Some(device) = first_device() else { return };
    let theirs = device.context().new_stream().expect("a stream");
    let stream = raw(&device, theirs.cu_stream());
    assert_eq!(device.wrap_stream(theirs).expect("a stream").id(), stream.id());
    let memory = memory(&device);
    fill(&device, &stream, &memory, 4);
    assert_eq!(read(&device, &stream, &memory)[0], 4);
}

#[test]
fn other_peoples_streams_do_work() {
    let Some(device) = first_device() else { return };
    device.context().bind_to_thread().expect("a context");
    let handle = result::stream::create(result::stream::StreamKind::Default).expect("a stream");
    let streams = [
        device.null_stream().expect("a stream"),
        device.per_thread_stream().expect("a stream"),
        device.wrap_stream(device.context().new_stream().expect("a stream")).expect("a stream"),
        raw(&device, handle),
    ];
    let memory = memory(&device);
    for (value, stream) in streams.iter().enumerate() {
        fill(&device, stream, &memory, value as u8);
        let event = device.record(stream).expect("an event");
        device.synchronize(stream).expect("a wait");
        assert!(event.is_complete().expect("an answer"));
        assert_eq!(read(&device, stream, &memory), vec![value as u8; BYTES as usize]);
    }
    drop(streams);
    // SAFETY: it was created above, and no handle to it is left.
    unsafe { result::stream::destroy(handle) }.expect("it was there");
}

/// How many of `rounds` read bytes that the other stream had not written yet.
fn stale_reads(device: &CudaDevice, rounds: u32, wait: bool) -> u32 {
    let kernels = TestKernels::load(device).expect("kernels");
    let (writer, reader) = (device.stream(), device.stream());
    let (shared, seen) = (memory(device), memory(device));
    let mut stale = 0;
    for round in 0..rounds {
        let value = (round % 251) as u8;
        kernels.delay(&writer, BUSY).expect("queued");
        fill(device, &writer, &shared, value);
        if wait {
            let event = device.record(&writer).expect("an event");
            device.wait(&reader, &event).expect("a wait");
        }
        copy(device, &reader, &shared, &seen);
        stale += u32::from(read(device, &reader, &seen).iter().any(|&byte| byte != value));
        device.synchronize(&writer).expect("a wait");
    }
    stale
}

#[test]
fn one_event_and_one_wait_order_two_streams_and_nothing_else_does() {
    let Some(device) = first_device() else { return };
    assert_eq!(stale_reads(&device, 1000, true), 0, "a stream ran ahead of the event that it waits for");
    let simulator = Simulator::loaded().map(Simulator::expect_reports);
    let stale = stale_reads(&device, 100, false);
    match simulator {
        // It reports each round, whether or not the read was stale.
        Some(reports) => assert_eq!(reports.end(), 100, "{stale} reads were stale"),
        None => assert!(stale > 50, "the test sees a missing wait"),
    }
}

#[test]
fn an_event_that_is_used_again_does_not_move_what_waits_for_it() {
    let Some(device) = first_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let [one, two, three] = std::array::from_fn(|_| device.stream());
    for round in 0..100 {
        let (shared, seen) = (memory(&device), memory(&device));
        fill(&device, &one, &shared, 0);
        device.synchronize(&one).expect("a wait");
        kernels.delay(&one, BUSY).expect("queued");
        fill(&device, &one, &shared, round);
        device.wait(&two, &device.record(&one).expect("an event")).expect("a wait");
        // The point was dropped, so these take its event and record it on an idle stream.
        for _ in 0..4 {
            drop(device.record(&three).expect("an event"));
        }
        copy(&device, &two, &shared, &seen);
        assert_eq!(read(&device, &two, &seen), vec![round; BYTES as usize]);
    }
}

#[test]
fn a_threads_own_stream_keeps_its_order_on_other_threads() {
    let Some(device) = first_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let mine = device.per_thread_stream().expect("a stream");
    let other = device.stream();
    for round in 0..100u8 {
        let (shared, seen) = (memory(&device), memory(&device));
        kernels.delay(&mine, BUSY).expect("queued");
        fill(&device, &mine, &shared, round);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // This thread's own stream is another one, although the handle is the same.
                device.wait(&other, &device.record(&mine).expect("an event")).expect("a wait");
                copy(&device, &other, &shared, &seen);
                assert_eq!(read(&device, &other, &seen), vec![round; BYTES as usize], "recorded elsewhere");
                kernels.delay(&other, BUSY).expect("queued");
                fill(&device, &other, &shared, round ^ 0xFF);
                device.wait(&mine, &device.record(&other).expect("an event")).expect("a wait");
            });
        });
        copy(&device, &mine, &shared, &seen);
        assert_eq!(read(&device, &mine, &seen), vec![round ^ 0xFF; BYTES as usize], "waited for elsewhere");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                fill(&device, &mine, &shared, 1);
                assert_eq!(read(&device, &mine, &shared), vec![1; BYTES as usize], "worked elsewhere");
            });
        });
    }
}

#[test]
fn a_stream_that_is_destroyed_is_retired_before() {
    let Some(device) = first_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    device.context().bind_to_thread().expect("a context");
    let handle = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
    let stream = raw(&device, handle);
    let (memory, other) = (memory(&device), device.stream());
    kernels.delay(&stream, BUSY).expect("queued");
    fill(&device, &stream, &memory, 8);
    stream.retire().expect("its work is done");
    stream.retire().expect("there is no more to do");
    // SAFETY: it was created above, and retired.
    unsafe { result::stream::destroy(handle) }.expect("it was there");
    assert_eq!(read(&device, &other, &memory), vec![8; BYTES as usize]);
    // A pool does this with memory that the stream used last.
    let event = device.record(&stream).expect("a point in the past");
    assert!(event.is_complete().expect("an answer"));
    device.wait(&other, &event).expect("a wait");
    device.synchronize(&stream).expect("nothing to wait for");
    let refused = |answer: Result<(), BackendError>| {
        let error = answer.expect_err("the stream was destroyed");
        assert!(matches!(error, BackendError::InvalidArgument { argument: "stream", .. }), "{error}");
    };
    refused(device.fill(&stream, RegionMut::whole(&memory, &stream), 1));
    refused(device.wait(&stream, &event));
    refused(device.download(&stream, Region::whole(&memory, &stream), &mut vec![0; BYTES as usize]));
    refused(device.upload(&stream, &[], RegionMut::new(&memory, 0, 0, &stream).expect("a region")));
    refused(stream.view::<u8>(Region::whole(&memory, &stream)).map(|_| ()));
    // The driver gives the handle to the next stream, which is another one.
    let next = result::stream::create(result::stream::StreamKind::NonBlocking).expect("a stream");
    let wrapped = raw(&device, next);
    assert_ne!(wrapped.id(), stream.id());
    fill(&device, &wrapped, &memory, 9);
    assert_eq!(read(&device, &wrapped, &memory)[0], 9);
    drop(wrapped);
    // SAFETY: it was created above, and no handle to it is left.
    unsafe { result::stream::destroy(next) }.expect("it was there");
}
