//! A million random operations of pools on two devices, on 2 to 8 streams whose work takes time: no race, and no wrong
//! contents. Blocks of all sizes are shared, captured, detached and trimmed.

use crate::detached::{attach, detach};
use crate::simulated::Simulated;
use cudarc::driver::CudaGraph;
use cudarc::driver::sys::{CUgraphInstantiate_flags_enum, CUstreamCaptureMode};
use fastrand::Rng;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Buffer, Pool, Source};

const OPERATIONS: usize = 1_000_000;

/// Each operation of a stream takes at most so long, half of the time.
const LAG_MICROSECONDS: u64 = 20;

type Kept<T> = Vec<(u8, T)>;

struct Side {
    device: CudaDevice,
    pool: Pool<CudaDevice>,
    streams: Vec<CudaStream>,
    kept: Kept<Buffer<CudaDevice>>,
    arena: DeviceArena<CudaDevice>,
    blocks: Kept<ArenaBuffer<CudaDevice>>,
    /// A graph's memory outlives it.
    graphs: Vec<(CudaGraph, Pool<CudaDevice>)>,
}

impl Side {
    fn new(device: CudaDevice, source: Source, streams: usize) -> Self {
        // The smaller one holds what is live, and not what all streams have in flight besides.
        let limit = if streams.is_multiple_of(2) { 64 << 20 } else { 16 << 20 };
        let pool = Pool::builder(&device).source(source).limit(limit).build().expect("a pool");
        let streams = (0..streams).map(|_| device.create_stream().expect("a stream")).collect();
        let arena = DeviceArena::builder(&device).growing().build().expect("an arena");
        Self { device, pool, streams, kept: Vec::new(), arena, blocks: Vec::new(), graphs: Vec::new() }
    }

    fn step(&mut self, rng: &mut Rng) {
        let stream = &self.streams[rng.usize(..self.streams.len())];
        match rng.u16(..1000) {
            0..400 => {
                if self.kept.len() > 24 {
                    self.kept.swap_remove(rng.usize(..self.kept.len()));
                }
                let (value, most) = (rng.u8(..), if rng.u8(..16) == 0 { 1 << 20 } else { 64 << 10 });
                let mut buffer = self.pool.allocate(rng.u64(1..=most), stream).expect("memory");
                self.device.fill(stream, buffer.on_mut(stream).expect("a region"), value).expect("queued");
                self.kept.push((value, buffer));
            }
            400..700 if !self.kept.is_empty() => {
                self.kept.swap_remove(rng.usize(..self.kept.len()));
            }
            700..800 if self.kept.len() > 1 => {
                let (value, from) = self.kept.swap_remove(rng.usize(..self.kept.len()));
                let mut to = self.pool.allocate(from.len(), stream).expect("memory");
                let (source, target) =
                    (from.on(stream).expect("a region"), to.on_mut(stream).expect("a region"));
                self.device.copy(stream, source, target).expect("queued");
                self.kept.push((value, to));
            }
            800..950 if !self.kept.is_empty() => {
                let (_, buffer) = &self.kept[rng.usize(..self.kept.len())];
                buffer.used_on(stream).expect("a use");
            }
            950..975 if !self.kept.is_empty() => {
                let (value, buffer) = &self.kept[rng.usize(..self.kept.len())];
                let mut bytes = vec![0; buffer.len() as usize];
                buffer.read(&mut bytes, stream).expect("no fault");
                assert!(bytes == vec![*value; bytes.len()]);
            }
            975..980 => _ = self.pool.trim().expect("a trim"),
            980..983 => self.capture(rng),
            983..986 => self.detach(rng),
            _ => self.device.synchronize(stream).expect("no fault"),
        }
    }

    /// Captures a fill of the graph's memory and a copy from there into a new buffer, and launches that.
    fn capture(&mut self, rng: &mut Rng) {
        let Self { device, pool, streams, kept, graphs, .. } = self;
        let (stream, value) = (&streams[rng.usize(..streams.len())], rng.u8(..));
        if graphs.len() == 3 {
            let (graph, memory) = graphs.swap_remove(rng.usize(..3));
            streams.iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
            drop((graph, memory));
        }
        let memory = pool.child("graph").private(true).build().expect("a pool");
        let mut result = pool.allocate(16 << 10, stream).expect("memory");
        // Outside of the capture first: a graph's memory is allocated before.
        for is_captured in [false, true] {
            if is_captured {
                let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
                stream.cudarc().begin_capture(mode).expect("a capture");
            }
            let mut first = memory.allocate(16 << 10, stream).expect("memory");
            device.fill(stream, first.on_mut(stream).expect("a region"), value).expect("queued");
            let (from, to) = (first.on(stream).expect("a region"), result.on_mut(stream).expect("a region"));
            device.copy(stream, from, to).expect("queued");
        }
        let flags = CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.cudarc().end_capture(flags).expect("a capture").expect("it has nodes");
        graph.launch().expect("a launch");
        graphs.push((graph, memory));
        kept.push((value, result));
    }

    /// Detaches an arena and attaches it again, sometimes after more blocks of it.
    fn detach(&mut self, rng: &mut Rng) {
        let Self { device, streams, arena, blocks, .. } = self;
        let stream = &streams[rng.usize(..streams.len())];
        if blocks.len() < 4 {
            let value = rng.u8(..);
            let bytes = rng.u64(1..=256 << 10);
            let mut buffer = arena.allocate(bytes, stream).expect("memory");
            buffer.write(&vec![value; bytes as usize], stream).expect("no fault");
            blocks.push((value, buffer));
        } else if rng.bool() {
            blocks.swap_remove(rng.usize(..blocks.len()));
            return;
        }
        let contents = detach(arena).expect("no fault").expect("it is attached");
        let _ = attach(arena, &contents).expect("memory");
        let (value, buffer) = &blocks[rng.usize(..blocks.len())];
        let mut bytes = vec![0; buffer.len() as usize];
        let other = &streams[rng.usize(..streams.len())];
        buffer.read(&mut bytes, other).expect("no fault");
        assert!(bytes == vec![*value; bytes.len()]);
        device.synchronize(stream).expect("no fault");
    }
}

#[test]
fn random_work_on_two_devices_is_free_of_races() {
    let Some(simulated) = Simulated::open() else { return };
    let Ok(second) = CudaDevice::open(1) else {
        vrampool_test_support::skipped("the driver simulates one device (VRAMPOOL_SIMULATOR=devices=2)");
        return;
    };
    let rounds = || Source::ALL.iter().flat_map(|&source| [2, 3, 5, 8].map(|streams| (source, streams)));
    for (seed, (source, streams)) in (1..).zip(rounds()) {
        let mut rng = Rng::with_seed(seed);
        let mut sides =
            [simulated.device.clone(), second.clone()].map(|device| Side::new(device, source, streams));
        for nth in 0..OPERATIONS / rounds().count() {
            if nth.is_multiple_of(1000) {
                simulated.simulator.set_lag(if rng.bool() { LAG_MICROSECONDS } else { 0 });
            }
            let side = rng.usize(..2);
            sides[side].step(&mut rng);
        }
        simulated.simulator.set_lag(0);
        assert_eq!(simulated.simulator.reports(), (0, String::new()), "{source:?}, {streams} streams");
    }
}
