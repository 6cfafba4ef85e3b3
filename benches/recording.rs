//! What recording costs: pairs of a request and its drop by a pool with a recorder and by one without, in turn. An event costs
//! half of the difference of two pairs.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::trace::Recorder;
use vrampool::{Backend, Pool, SizeClasses};

type Stream = <HostDevice as Backend>::Stream;

/// As many as a recorder of the default size has room for, so that each is recorded; some are left for what precedes them.
const PAIRS: u64 = Recorder::DEFAULT_EVENTS / 2 - 2000;

/// Buffers live at once.
const BATCH: u64 = 8;

fn recording(criterion: &mut Criterion) {
    let device = HostDevice::new();
    let Ok(stream) = device.create_stream() else { return };
    for (name, bytes, classes) in [
        ("4KiB", 4096, SizeClasses::Fixed),
        ("100kB_geometric", 100_000, SizeClasses::GEOMETRIC),
        ("100kB_exact", 100_000, SizeClasses::EXACT),
        ("8MiB", 8 << 20, SizeClasses::Fixed),
    ] {
        let mut group = criterion.benchmark_group(name);
        for live in [1, BATCH] {
            for is_recorded in [false, true] {
                let name = if is_recorded { "recorded" } else { "plain" };
                measure(
                    &mut group,
                    BenchmarkId::new(name, live),
                    is_recorded,
                    |pool, pairs| time(pool, &stream, bytes, live, pairs),
                    &device,
                    classes,
                );
            }
        }
        group.finish();
    }
}

fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    id: BenchmarkId,
    is_recorded: bool,
    time: impl Fn(&Pool<HostDevice>, u64) -> Duration,
    device: &HostDevice,
    classes: SizeClasses,
) {
    group.bench_function(id, |bencher| {
        bencher.iter_custom(|pairs| {
            let (mut left, mut took) = (pairs, Duration::ZERO);
            while left > 0 {
                let pairs = left.min(PAIRS);
                let recorder = Recorder::new();
                let builder = Pool::builder(device).size_classes(classes);
                let builder = if is_recorded { builder.recorder(&recorder) } else { builder };
                let Ok(pool) = builder.build() else { return Duration::ZERO };
                time(&pool, 1000);
                took += time(&pool, pairs);
                assert_eq!((recorder.events() > 0, recorder.dropped()), (is_recorded, 0));
                left -= pairs;
            }
            took
        });
    });
}

/// The time of so many pairs, rounded up to whole batches.
fn time(pool: &Pool<HostDevice>, stream: &Stream, bytes: u64, live: u64, pairs: u64) -> Duration {
    let mut held = Vec::with_capacity(live as usize);
    let began = Instant::now();
    for _ in 0..pairs.div_ceil(live) {
        held.extend((0..live).map(|_| black_box(pool.allocate(black_box(bytes), stream))));
        held.clear();
    }
    began.elapsed()
}

criterion_group!(benches, recording);
criterion_main!(benches);
