//! A step that was captured into a graph keeps its memory while others work between its launches. Alone in
//! its process, because a capture forbids other threads of it some calls.
#![cfg(feature = "cuda")]

use vrampool::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags_enum, CUstreamCaptureMode};
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Error, Forbidden, Pool, Source};
use vrampool_test_support::{require, streams};

const BYTES: u64 = 64 << 10;

/// Idle memory of the stream is served. A wait for another stream, and new memory of the driver, are refused,
/// and the capture still succeeds.
fn a_plain_pool_spoils_no_capture(device: &CudaDevice, pool: &Pool<CudaDevice>, stream: &CudaStream) {
    let source = pool.source();
    let other = device.create_stream().expect("a stream");
    let written_elsewhere = pool.allocate(BYTES, &other).expect("memory");
    drop(pool.allocate(16 * BYTES, stream).expect("memory"));
    drop(pool.allocate(4 * BYTES, &other).expect("memory"));
    let calls = pool.stats().driver_calls();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    stream.cudarc().begin_capture(mode).expect("a capture");
    let mut served = pool.allocate(16 * BYTES, stream).expect("it is idle on the stream");
    device.fill(stream, served.on_mut(stream).expect("a region"), 7).expect("captured");
    let error = written_elsewhere.on(stream).expect_err("it was written on another stream");
    assert!(matches!(error, Error::Capture { forbidden: Forbidden::Wait, .. }), "{source}: {error}");
    drop(pool.allocate(4 * BYTES, stream).expect("the stream that used it is idle"));
    match (source, pool.allocate(64 * BYTES, stream)) {
        // Nothing but numbers.
        (Source::Arena, served) => drop(served.expect("a block")),
        (_, refused) => {
            let error = refused.expect_err("it is the driver's");
            assert!(
                matches!(error, Error::Capture { forbidden: Forbidden::Allocation, .. }),
                "{source}: {error}"
            );
            assert_eq!(pool.stats().driver_calls(), calls, "{source}");
        }
    }
    let flags = CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = stream.cudarc().end_capture(flags).expect("the capture is not spoilt").expect("a graph");
    graph.launch().expect("a launch");
    let mut bytes = vec![0; BYTES as usize];
    served.read(&mut bytes, stream).expect("a copy");
    assert!(bytes.iter().all(|&byte| byte == 7), "{source}");
    drop(pool.allocate(4 * BYTES, stream).expect("now it may wait"));
}

#[test]
fn a_graph_finds_its_memory_as_it_left_it_and_others_get_other_memory() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    for &source in Source::ALL {
        let [stream]: [CudaStream; 1] = streams(&device);
        let pool = Pool::builder(&device).source(source).limit(64 << 20).build().expect("a pool");
        let memory = pool.child("graph").private(true).build().expect("a pool");
        let mut result = pool.allocate(BYTES, &stream).expect("memory");
        let mut places = Vec::new();
        let mut step = || {
            let mut first = memory.allocate(BYTES, &stream)?;
            device.fill(&stream, first.on_mut(&stream)?, 1)?;
            let mut second = memory.allocate(BYTES, &stream)?;
            device.copy(&stream, first.on(&stream)?, second.on_mut(&stream)?)?;
            places.extend([first.on(&stream)?.address(), second.on(&stream)?.address()]);
            drop(first);
            let mut third = memory.allocate(BYTES, &stream)?;
            device.fill(&stream, third.on_mut(&stream)?, 2)?;
            device.copy(&stream, second.on(&stream)?, result.on_mut(&stream)?)?;
            Ok::<(), Error>(())
        };
        step().expect("the warm-up");
        device.synchronize(&stream).expect("no fault");
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
        stream.cudarc().begin_capture(mode).expect("a capture");
        assert_eq!(device.is_capturing(&stream), Ok(true));
        step().expect("the same memory again");
        match (source, memory.allocate(32 * BYTES, &stream)) {
            // Nothing but numbers.
            (Source::Arena, served) => drop(served.expect("a block")),
            (_, refused) => {
                let error = refused.expect_err("it was not warmed up for that");
                assert!(matches!(error, Error::Capture { .. }), "{source}: {error}");
            }
        }
        let flags = CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.cudarc().end_capture(flags).expect("the capture is not spoilt").expect("a graph");
        assert_eq!(device.is_capturing(&stream), Ok(false));
        // Which is which depends on the order they came back in.
        places.sort_unstable();
        places.dedup();
        assert_eq!(places.len(), 2, "{source}: the same memory again");
        for round in 0..50 {
            // Other blocks are allocated, written and freed between the launches.
            let mut others = [(); 4].map(|()| pool.allocate(BYTES, &stream).expect("memory"));
            for other in &mut others {
                assert!(!places.contains(&other.on(&stream).expect("a region").address()), "{source}");
                device.fill(&stream, other.on_mut(&stream).expect("a region"), 9).expect("queued");
            }
            graph.launch().expect("a launch");
            drop(others);
            let mut bytes = vec![0; BYTES as usize];
            result.read(&mut bytes, &stream).expect("a copy");
            assert!(bytes.iter().all(|&byte| byte == 1), "{source}, round {round}");
        }
        drop(graph);
        drop(memory);
        a_plain_pool_spoils_no_capture(&device, &pool, &stream);
        let again = pool.allocate(BYTES, &stream).expect("memory");
        drop((again, result));
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().held_bytes, 0, "{source}");
    }
}
