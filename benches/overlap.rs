//! How much of what three streams do side by side memory leaves side by side: an input pipeline that runs ahead of the device, once
//! with a pool that uses memory again and once with all of it kept until the step is over. Kernels sleep, so that a busy or a
//! small machine measures the same.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::Duration;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Error, Pool, SizeClasses, Source};

/// Bytes of one row of a batch.
const ROW: u64 = 4096;

/// Rows of each batch, a step.
const BATCHES: [u64; 16] =
    [1216, 352, 1888, 704, 2016, 480, 1440, 928, 256, 1664, 1120, 576, 1792, 832, 1344, 384];

struct Pipeline {
    device: HostDevice,
    pool: Pool<HostDevice>,
    streams: [HostStream; 3],
    keeps_all: bool,
}

impl Pipeline {
    fn new(keeps_all: bool) -> Result<Self, Error> {
        let device = HostDevice::builder().capacity(4 << 30).build();
        let pool = Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Tight).build()?;
        let streams = [device.create_stream()?, device.create_stream()?, device.create_stream()?];
        Ok(Self { device, pool, streams, keeps_all })
    }

    /// Uploads, augments and computes each batch.
    fn step(&self) -> Result<(), Error> {
        let Self { device, pool, streams: [upload, augment, compute], keeps_all } = self;
        let mut kept = Vec::new();
        for rows in BATCHES {
            let work = |stream: &HostStream, nanoseconds: u64| {
                let sleep = Duration::from_nanos(nanoseconds * rows);
                let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| std::thread::sleep(sleep);
                stream.launch([], [], kernel)
            };
            let some = |parts: u64, stream: &HostStream| -> Result<Buffer<HostDevice>, Error> {
                pool.allocate(parts * rows * ROW, stream)
            };
            let after = |first: &HostStream, second: &HostStream| device.wait(second, &device.record(first)?);
            let raw = some(1, upload)?;
            work(upload, 800)?;
            after(upload, augment)?;
            raw.used_on(augment)?;
            let scaled = some(1, augment)?;
            work(augment, 90)?;
            let image = some(1, augment)?;
            work(augment, 90)?;
            drop(scaled);
            after(augment, compute)?;
            image.used_on(compute)?;
            let hidden = some(4, compute)?;
            work(compute, 1800)?;
            let active = some(4, compute)?;
            work(compute, 90)?;
            drop(hidden);
            let said = some(1, compute)?;
            work(compute, 1800)?;
            drop((active, said));
            if *keeps_all {
                kept.extend([raw, image]);
            }
        }
        Ok(device.synchronize(compute)?)
    }
}

fn overlap(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("input_pipeline");
    group.sample_size(10);
    for (name, keeps_all) in [("used again", false), ("kept", true)] {
        let Ok(pipeline) = Pipeline::new(keeps_all) else { return };
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| black_box(pipeline.step().is_ok()));
        });
        eprintln!("{name}: {} MiB held", pipeline.pool.stats().bytes_reserved >> 20);
    }
    group.finish();
}

criterion_group!(benches, overlap);
criterion_main!(benches);
