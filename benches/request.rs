//! What a request and its drop cost: a hit, a miss, a drop over the cap; with 1 thread and with as many as
//! there are cores.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::sync::Barrier;
use std::time::{Duration, Instant};
use vrampool::backend::AllocationRequest;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};

type Stream = <HostDevice as Backend>::Stream;

const BYTES: u64 = 4096;

/// Powers of two up to the number of cores, and that number.
fn thread_counts() -> Vec<usize> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<usize> = (0..).map(|shift| 1 << shift).take_while(|&count| count < cores).collect();
    counts.push(cores);
    counts
}

/// What is timed of a request and its drop.
#[derive(Debug, Clone, Copy)]
enum Timed {
    Hit,
    Miss,
    DropOverTheCap,
}

/// Buffers that a thread has at once: few enough that what they touch stays in its cache.
const BATCH: u64 = 64;

/// The time that the slowest of several threads, each with a stream of its own, takes for `iterations` of
/// what is timed.
fn timed(pool: &Pool<HostDevice>, streams: &[Stream], iterations: u64, what: Timed) -> Duration {
    let start = Barrier::new(streams.len());
    let work = |stream: &Stream| {
        // One buffer of its own in the bucket, so that a hit is one.
        drop(pool.allocate(BYTES, stream));
        let mut buffers = Vec::with_capacity(BATCH as usize);
        start.wait();
        let began = Instant::now();
        if let Timed::Hit = what {
            for _ in 0..iterations {
                drop(std::hint::black_box(pool.allocate(BYTES, stream)));
            }
            return began.elapsed();
        }
        let (mut misses, mut drops, mut left) = (Duration::ZERO, Duration::ZERO, iterations);
        while left > 0 {
            let batch = left.min(BATCH);
            let allocating = Instant::now();
            buffers.extend((0..batch).map(|_| pool.allocate(BYTES, stream)));
            let dropping = Instant::now();
            buffers.clear();
            misses += dropping - allocating;
            drops += dropping.elapsed();
            left -= batch;
        }
        if let Timed::Miss = what { misses } else { drops }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = streams.iter().map(|stream| scope.spawn(|| work(stream))).collect();
        workers.into_iter().filter_map(|worker| worker.join().ok()).max().unwrap_or_default()
    })
}

fn requests(criterion: &mut Criterion) {
    let device = HostDevice::new();
    for (name, what, max_cached_bytes) in [
        ("hit", Timed::Hit, 1 << 30),
        ("miss", Timed::Miss, 0),
        ("drop_over_the_cap", Timed::DropOverTheCap, 0),
    ] {
        let mut group = criterion.benchmark_group(name);
        for threads in thread_counts() {
            let Ok(pool) = Pool::builder(&device).max_cached_bytes(max_cached_bytes).build() else { return };
            let streams: Vec<Stream> = (0..threads).filter_map(|_| device.create_stream().ok()).collect();
            group.bench_function(BenchmarkId::new("threads", threads), |bencher| {
                bencher.iter_custom(|iterations| timed(&pool, &streams, iterations, what));
            });
            let stats = pool.stats();
            let asked = stats.served.total() > 0;
            assert!(
                !asked || (stats.bucket_hit_rate() > 0.99) == matches!(what, Timed::Hit),
                "{name}: {stats:?}"
            );
        }
        group.finish();
    }
    // What a miss costs without the pool: the device's own allocation.
    let kind = device.properties().preferred_placement();
    criterion.bench_function("device_allocate_and_drop", |bencher| {
        bencher.iter(|| std::hint::black_box(device.allocate(&AllocationRequest::new(BYTES, kind))).is_ok());
    });
    let Ok(stream) = device.create_stream() else { return };
    let Ok(other) = device.create_stream() else { return };
    let Ok(pool) = Pool::builder(&device).build() else { return };
    drop(pool.allocate(BYTES, &stream));
    criterion.bench_function("hit_across_streams", |bencher| {
        bencher.iter(|| {
            drop(pool.allocate(BYTES, &stream));
            drop(pool.allocate(BYTES, &other));
        });
    });
}

criterion_group!(benches, requests);
criterion_main!(benches);
