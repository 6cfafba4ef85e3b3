//! While a stream is captured into a graph, memory comes and goes, and nothing borrowed gets into the graph.
//! Alone in its process, because a capture forbids other threads of it some calls.

use parking_lot::Mutex;
use vrampool_backend::AllocationRequest;
use vrampool_cuda::cudarc::driver::sys::{CUgraphInstantiate_flags_enum, CUstreamCaptureMode};
use vrampool_cuda::{
    Backend, BackendError, CudaDevice, Event, Placement, Region, RegionMut, Stream, VirtualMemory,
};
use vrampool_test_support::{BackendExt, require};

const BYTES: u64 = 4096;

/// One capture at a time.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_capture_is_neither_spoilt_nor_in_the_way() {
    let _alone = ALONE.lock();
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let stream = device.stream();
    let target = device.memory(BYTES, Placement::Device);
    let fill = |value| device.fill(&stream, RegionMut::whole(&target, &stream), value).expect("a fill");
    let read = || {
        let mut bytes = [0; 1];
        let first = Region::new(&target, 0, 1, &stream).expect("a region");
        device.download(&stream, first, &mut bytes).expect("a download");
        bytes[0]
    };
    fill(1);
    device.synchronize(&stream).expect("a wait");
    let other = device.stream();
    let point = device.record(&other).expect("an event");
    stream
        .cudarc()
        .begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        .expect("a capture");
    for placement in [Placement::Device, Placement::HostVisible] {
        drop(device.memory(8 << 20, placement));
    }
    if device.virtual_memory().is_some() {
        let kind = Placement::Device.into();
        let page = device.granularity(kind).expect("a granularity");
        let reservation = device.reserve(2 * page).expect("addresses");
        let first =
            device.create_and_map(&reservation, 0, &AllocationRequest::new(page, kind)).expect("memory");
        drop(device.create_and_map(&reservation, page, &AllocationRequest::new(page, kind)).expect("memory"));
        device.unmap(&reservation, 0, first.len()).expect("it was mapped");
        drop(first);
        drop(reservation);
    }
    // Whether other streams are done is asked meanwhile.
    device.synchronize(&other).expect("a wait");
    assert_eq!(point.is_complete(), Ok(true));
    fill(2);
    let mut bytes = vec![0; BYTES as usize];
    for error in [
        device.upload(&stream, &bytes, RegionMut::whole(&target, &stream)).expect_err("it is borrowed"),
        device.download(&stream, Region::whole(&target, &stream), &mut bytes).expect_err("it is borrowed"),
    ] {
        assert!(matches!(error, BackendError::InvalidArgument { argument: "stream", .. }), "{error}");
    }
    let flags = CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.cudarc().end_capture(flags).expect("a graph").expect("it is not empty");
    assert_eq!(read(), 1, "the fill was captured, not done");
    graph.launch().expect("a launch");
    assert_eq!(read(), 2);
}

/// Asking the driver which stream a handle is would fail the capture, so the handle is believed meanwhile.
#[test]
fn a_stream_is_the_same_inside_a_capture_and_after_it() {
    let _alone = ALONE.lock();
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let target = device.memory(BYTES, Placement::Device);
    for mode in [
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED,
    ] {
        for known_before in [true, false] {
            let theirs = device.context().new_stream().expect("a stream");
            let wrap = || device.wrap_stream(theirs.clone()).expect("a stream");
            // SAFETY: the stream lives until the end of the turn, as `theirs`.
            let wrap_raw = || unsafe { device.wrap_raw_stream(theirs.cu_stream()) }.expect("a stream");
            let before = known_before.then(wrap_raw);
            theirs.begin_capture(mode).expect("a capture");
            let inside = wrap_raw();
            assert_eq!(wrap().id(), inside.id());
            assert!(before.is_none_or(|before| before.id() == inside.id()));
            assert!(device.is_capturing(&inside).expect("an answer"));
            device.fill(&inside, RegionMut::whole(&target, &inside), 1).expect("a fill");
            let flags = CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
            let graph = theirs.end_capture(flags).expect("the capture is good");
            graph.expect("it is not empty").launch().expect("a launch");
            assert_eq!(wrap().id(), inside.id());
            assert_eq!(wrap_raw().id(), inside.id());
            device.synchronize(&inside).expect("a wait");
        }
    }
}
