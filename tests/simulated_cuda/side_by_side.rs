//! Streams that share no data run side by side on a device with delayed work: while one stream is held back, the
//! work of the others completes, and the race detector reports nothing.

use crate::simulated::Simulated;
use std::sync::mpsc::channel;
use std::time::Duration;
use vrampool::cuda::{CudaDevice, CudaStream, TestKernels};
use vrampool::{Backend, Buffer, Pool, SizeClasses, Source};
use vrampool_cuda_simulator_control::Simulator;
use vrampool_test_support::Count;

/// Far longer than any of this work takes: reaching it means that a stream waits for one that is held.
const BOUND: Duration = Duration::from_secs(20);
/// The longest random delay before each operation, microseconds.
const LAG: u64 = 200;
const SIZES: [u64; 3] = [4 << 10, 1 << 20, 8 << 20];
const TURNS: u64 = 3;
/// Sizes of a forward pass's temporaries, in eighths of the given size.
const EIGHTHS: [u64; 10] = [8, 5, 11, 6, 8, 12, 4, 9, 7, 10];
/// Bytes at the beginning of a block that kernels write and verify.
const TOUCHED: u64 = 1024;

/// A stream that the driver holds, until this is dropped.
struct Held(&'static Simulator, usize);

impl Held {
    fn new(simulator: &'static Simulator, stream: &CudaStream) -> Self {
        let handle = stream.cudarc().cu_stream() as usize;
        simulator.hold(handle);
        Self(simulator, handle)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release(self.1);
    }
}

struct Bench<'a> {
    device: &'a CudaDevice,
    kernels: &'a TestKernels,
    pool: Pool<CudaDevice>,
    streams: Vec<(CudaStream, Count<CudaDevice>)>,
    seed: u64,
}

impl<'a> Bench<'a> {
    fn new(device: &'a CudaDevice, kernels: &'a TestKernels, source: Source, classes: &SizeClasses) -> Self {
        let builder = Pool::builder(device).source(source).size_classes(classes.clone());
        let builder = if source == Source::Arena { builder.limit(1 << 30) } else { builder };
        let streams = (0..3).map(|_| {
            let stream = device.create_stream().expect("a stream");
            let count = Count::new(device, &stream);
            (stream, count)
        });
        let streams = streams.collect();
        Self { device, kernels, pool: builder.build().expect("a pool"), streams, seed: 0 }
    }

    fn produce(&mut self, bytes: u64, nth: usize) -> (Buffer<CudaDevice>, u64) {
        self.seed += 1;
        let (stream, _) = &self.streams[nth];
        let mut buffer = self.pool.allocate(bytes, stream).expect("memory");
        let region = buffer.on_mut(stream).expect("a region").slice(..TOUCHED).expect("it fits");
        self.kernels.write_pattern(stream, region, self.seed).expect("queued");
        (buffer, self.seed)
    }

    fn verify(&self, (buffer, seed): &(Buffer<CudaDevice>, u64), nth: usize) {
        let (stream, count) = &self.streams[nth];
        let region = buffer.on(stream).expect("a region").slice(..TOUCHED).expect("it fits");
        self.kernels.count_mismatches(stream, region, *seed, count.on(stream)).expect("queued");
    }

    /// A temporary, and then ten layers, on each stream in turn.
    fn turns(&mut self, bytes: u64) {
        for _ in 0..TURNS {
            for nth in 0..self.streams.len() {
                let block = self.produce(bytes, nth);
                self.verify(&block, nth);
                let mut previous = block;
                for eighths in EIGHTHS {
                    let layer = self.produce(bytes * eighths / 8, nth);
                    self.verify(&previous, nth);
                    previous = layer;
                }
            }
        }
    }

    fn assert_completes(&self, nth: usize, context: &str) {
        let (device, stream) = (self.device.clone(), self.streams[nth].0.clone());
        let (done, completed) = channel();
        std::thread::spawn(move || done.send(device.synchronize(&stream)));
        assert_eq!(
            completed.recv_timeout(BOUND),
            Ok(Ok(())),
            "{context}: stream {nth} waits for one that is held"
        );
    }

    fn wrong_bytes(&self) -> u64 {
        self.streams.iter().map(|(stream, count)| count.read(stream)).sum()
    }
}

#[test]
fn a_stream_that_is_held_delays_no_other() {
    let Some(simulated) = Simulated::open() else { return };
    let (simulator, device) = (simulated.simulator, &simulated.device);
    let kernels = TestKernels::load(device).expect("kernels");
    simulator.set_lag(LAG);
    for &source in Source::ALL {
        for classes in [SizeClasses::Fixed, SizeClasses::PowerOfTwo] {
            for bytes in SIZES {
                for held in [0, 1] {
                    let context = format!("{source}, {classes}, {bytes} bytes, stream {held} is held");
                    let mut bench = Bench::new(device, &kernels, source, &classes);
                    // The first steps of a program, and those of one whose streams have their blocks.
                    if held == 1 {
                        bench.turns(bytes);
                    }
                    let block = bench.produce(bytes, held);
                    let guard = Held::new(simulator, &bench.streams[held].0);
                    bench.verify(&block, held);
                    drop(block);
                    bench.turns(bytes);
                    for nth in (0..bench.streams.len()).filter(|&nth| nth != held) {
                        bench.assert_completes(nth, &context);
                    }
                    drop(guard);
                    assert_eq!(bench.wrong_bytes(), 0, "{context}");
                }
            }
        }
    }
    simulator.set_lag(0);
    assert_eq!(simulator.reports(), (0, String::new()));
}
