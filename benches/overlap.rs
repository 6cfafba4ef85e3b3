//! How much of what three streams do side by side memory leaves side by side: an input pipeline that runs
//! ahead of the device, once with one pool for all, and once with one for each stream and what streams share
//! kept until the step is over, where nothing waits for memory. Kernels sleep, so that a small machine
//! measures the same.

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
    streams: [HostStream; 3],
    /// Of each stream.
    pools: [Pool<HostDevice>; 3],
    keeps: bool,
}

impl Pipeline {
    fn new(keeps: bool) -> Result<Self, Error> {
        let device = HostDevice::builder().memory_limit(4 << 30).build();
        let pool = || Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Tight).build();
        let streams = [device.create_stream()?, device.create_stream()?, device.create_stream()?];
        let first = pool()?;
        let pools = if keeps { [first, pool()?, pool()?] } else { [first.clone(), first.clone(), first] };
        Ok(Self { device, streams, pools, keeps })
    }

    /// Uploads, augments and computes each batch.
    fn step(&self) -> Result<(), Error> {
        let Self { device, streams: [upload, augment, compute], pools, keeps } = self;
        let [of_upload, of_augment, of_compute] = pools;
        let mut kept = Vec::new();
        for rows in BATCHES {
            let work = |stream: &HostStream, nanoseconds: u64| {
                let sleep = Duration::from_nanos(nanoseconds * rows);
                let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| std::thread::sleep(sleep);
                stream.launch([], [], kernel)
            };
            type Given = Result<Buffer<HostDevice>, Error>;
            let some = |pool: &Pool<HostDevice>, parts: u64, stream: &HostStream| -> Given {
                pool.allocate(parts * rows * ROW, stream)
            };
            let after = |first: &HostStream, second: &HostStream| device.wait(second, &device.record(first)?);
            let raw = some(of_upload, 1, upload)?;
            work(upload, 800)?;
            after(upload, augment)?;
            raw.record_stream(augment)?;
            let scaled = some(of_augment, 1, augment)?;
            work(augment, 90)?;
            let moved = some(of_augment, 1, augment)?;
            work(augment, 90)?;
            drop(scaled);
            let image = some(of_augment, 1, augment)?;
            work(augment, 90)?;
            drop(moved);
            after(augment, compute)?;
            image.record_stream(compute)?;
            let hidden = some(of_compute, 4, compute)?;
            work(compute, 1800)?;
            let active = some(of_compute, 4, compute)?;
            work(compute, 90)?;
            drop(hidden);
            let said = some(of_compute, 1, compute)?;
            work(compute, 1800)?;
            drop(active);
            let summed = some(of_compute, 2, compute)?;
            work(compute, 90)?;
            drop((said, summed));
            if *keeps {
                kept.extend([raw, image]);
            }
        }
        Ok(device.synchronize(compute)?)
    }
}

fn overlap(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("input_pipeline");
    group.sample_size(10);
    for (name, keeps) in [("one pool", false), ("kept", true)] {
        let Ok(pipeline) = Pipeline::new(keeps) else { return };
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            bencher.iter(|| black_box(pipeline.step().is_ok()));
        });
        let pools = if keeps { &pipeline.pools[..] } else { &pipeline.pools[..1] };
        let held: u64 = pools.iter().map(|pool| pool.stats().source.reserved_bytes).sum();
        eprintln!("{name}: {} MiB held", held >> 20);
    }
    group.finish();
}

criterion_group!(benches, overlap);
criterion_main!(benches);
