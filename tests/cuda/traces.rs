//! Real programs' allocations, every buffer written and verified on its stream: nothing is ever spoilt.

use crate::gpu;
use std::path::Path;
use vrampool::cuda::{CudaDevice, CudaMemory, CudaStream, Kernels};
use vrampool::trace::{Replay, Touch, Trace};
use vrampool::{Backend, BackendError, Pool, Region, RegionMut, SizeClasses, Source};

#[derive(Debug)]
struct ByKernels(Kernels);

impl Touch<CudaDevice> for ByKernels {
    fn write(
        &self,
        stream: &CudaStream,
        bytes: RegionMut<'_, CudaMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        self.0.write_pattern(stream, bytes, seed)
    }

    fn verify(
        &self,
        stream: &CudaStream,
        bytes: Region<'_, CudaMemory>,
        seed: u64,
        count: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        self.0.count_mismatches(stream, bytes, seed, count)
    }
}

#[test]
fn a_trace_of_several_streams_and_threads_spoils_nothing() {
    let Some(device) = gpu::device() else { return };
    let touch = ByKernels(Kernels::load(&device).expect("kernels"));
    // Each buffer goes from stream to stream, and is freed by another than it came on.
    let mut csv = String::from("op,id,size,stream,t_us\n");
    for id in 0..2000u64 {
        csv += &format!("a,{id},{},{},0\n", (id * 7919) % 300_000, id % 5);
        if id >= 20 {
            csv += &format!("f,{},0,{},0\n", id - 20, (id / 3) % 5);
        }
    }
    let trace = Trace::parse(csv.as_bytes()).expect("a trace");
    for source in Source::ALL {
        let pool = Pool::builder(&device).source(source).limit(256 << 20).build().expect("a pool");
        let replay = Replay::new(&trace).threads(4).passes(3);
        let mut passes = 0;
        replay
            .run_touching(&pool, &touch, |pass| {
                assert_eq!(pass.corrupt_bytes, Some(0), "{source}: {pass:?}");
                passes += 1;
            })
            .expect("a replay");
        assert_eq!((passes, pool.stats().live_buffers), (3, 0), "{source}");
    }
}

#[test]
fn recorded_programs_spoil_nothing() {
    let Some(device) = gpu::device() else { return };
    let touch = ByKernels(Kernels::load(&device).expect("kernels"));
    for name in ["multistream", "resnet50", "gpt2", "serve_mixed"] {
        // At run time, because the program may have been built elsewhere.
        let path = format!("benches/traces/{name}.csv.gz");
        if !Path::new(&path).exists() {
            eprintln!("skipped: {path} is not here");
            continue;
        }
        let trace = Trace::read(&path).expect("a trace");
        if trace.peak_requested() > device.memory_info().expect("memory info").free_bytes / 3 {
            eprintln!("skipped: {name} is too large for this device");
            continue;
        }
        for (source, classes) in
            [(Source::Direct, SizeClasses::Fixed), (Source::Driver, SizeClasses::GEOMETRIC)]
        {
            let pool = Pool::builder(&device).source(source).size_classes(classes).build().expect("a pool");
            Replay::new(&trace)
                .run_touching(&pool, &touch, |pass| {
                    assert_eq!(pass.corrupt_bytes, Some(0), "{name}, {source}")
                })
                .expect("a replay");
        }
    }
}
