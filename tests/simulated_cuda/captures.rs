//! Steps are captured in the mode that forbids most, while threads allocate, use, free and trim memory of the same
//! tree: no capture becomes invalid, no request is refused, and no launch of a graph finds its memory in use by others.

use crate::scene::is_all;
use crate::simulated::Simulated;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags_enum, CUstreamCaptureMode};
use std::sync::Mutex;
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Buffer, Pool, Source};
use vrampool_test_support::while_busy;

const BYTES: u64 = 16 << 10;
const CAPTURES: u8 = 24;
/// Graphs that are launched after later captures.
const KEPT: usize = 4;

/// A graph that fills a buffer, from its own memory.
struct Step {
    graph: CudaGraph,
    result: Buffer<CudaDevice>,
    value: u8,
    _memory: Pool<CudaDevice>,
}

impl Step {
    fn capture(pool: &Pool<CudaDevice>, stream: &CudaStream, value: u8) -> Self {
        let memory = pool.child("graph").private(true).build().expect("a pool");
        let mut result = memory.allocate(BYTES, stream).expect("memory");
        for is_captured in [false, true] {
            if is_captured {
                let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
                stream.cudarc().begin_capture(mode).expect("a capture");
            }
            let mut parts = [(); 3].map(|()| memory.allocate(BYTES, stream).expect("idle memory"));
            parts[0].fill(value, stream).expect("queued");
            for nth in 1..3 {
                let (before, after) = parts.split_at_mut(nth);
                after[0].copy_from(&before[nth - 1], stream).expect("queued");
            }
            result.copy_from(&parts[2], stream).expect("queued");
        }
        let flags = CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.cudarc().end_capture(flags).expect("it stayed valid").expect("it has nodes");
        Self { graph, result, value, _memory: memory }
    }

    fn launch(&mut self, stream: &CudaStream) {
        self.result.fill(0, stream).expect("queued");
        self.graph.launch().expect("a launch");
        let mut read = vec![1; BYTES as usize];
        self.result.read(&mut read, stream).expect("no fault");
        assert!(is_all(&read, self.value));
    }
}

#[test]
fn captures_and_threads_beside_them_disturb_each_other_nowhere() {
    let Some(simulated) = Simulated::open() else { return };
    let device = &simulated.device;
    for &source in Source::ALL {
        let pool = Pool::builder(device).source(source).limit(64 << 20).build().expect("a pool");
        let worker = |_| (device.create_stream().expect("a stream"), Mutex::new(Vec::new()));
        let (workers, stream) = ([0; 3].map(worker), device.create_stream().expect("a stream"));
        let work = |thread: u64| {
            let (stream, kept) = &workers[thread as usize];
            let kept = &mut *kept.lock().expect("no panic");
            match fastrand::u8(..16) {
                0 => drop(pool.trim().expect("a trim")),
                1..8 if !kept.is_empty() => drop(kept.swap_remove(fastrand::usize(..kept.len()))),
                _ if kept.len() == 16 => kept.truncate(8),
                _ => {
                    let buffer = pool.allocate(fastrand::u64(1..=64 << 10), stream);
                    let mut buffer = buffer.unwrap_or_else(|error| panic!("{source}: {error}"));
                    buffer.fill(0xAA, stream).expect("queued");
                    kept.push(buffer);
                }
            }
        };
        let (mut steps, mut value) = (Vec::new(), 0);
        while_busy(work, CAPTURES.into(), || {
            value += 1;
            if steps.len() == KEPT {
                steps.remove(0);
            }
            steps.push(Step::capture(&pool, &stream, value));
            steps.iter_mut().for_each(|step| step.launch(&stream));
        });
        drop((steps, workers));
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().live_bytes, 0, "{source}");
    }
    assert_eq!(simulated.simulator.reports(), (0, String::new()));
}
