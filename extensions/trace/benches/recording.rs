//! What recording costs, by the event: half of the difference of a pair of a request and its drop by a pool
//! with a recorder and one by a pool without. Few pairs of either by turns, so that both have the machine as
//! it is at the time.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::hint::black_box;
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, PoolBuilder, SizeClasses};
use vrampool_trace::Recorder;

type Stream = <HostDevice as Backend>::Stream;

/// Pairs of either pool by turns.
const TURN: u64 = 1000;

/// Buffers live at once.
const LIVE: [u64; 3] = [1, 4, 8];

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
        // What is measured is a small part of the time that it takes.
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
        for live in LIVE {
            group.bench_function(BenchmarkId::new("event", live), |bencher| {
                bencher.iter_custom(|events| {
                    let builder = Pool::builder(&device).size_classes(classes.clone());
                    let time = |pool: &_, pairs| time(pool, &stream, bytes, live, pairs);
                    event(builder, time, events)
                });
            });
        }
        group.finish();
    }
}

/// The time of so many events.
fn event(
    builder: PoolBuilder<HostDevice>,
    time: impl Fn(&Pool<HostDevice>, u64) -> Duration,
    events: u64,
) -> Duration {
    let mut took = [Duration::ZERO; 2];
    let turns = events.div_ceil(2 * TURN);
    let mut left = turns;
    while left > 0 {
        // Each is recorded: there is room for all of them, and for what precedes them.
        let now = left.min(Recorder::DEFAULT_EVENTS / (2 * TURN) - 2);
        let recorder = Recorder::new();
        let pools = [builder.clone(), builder.clone().hook(recorder.hook())].map(PoolBuilder::build);
        let [Ok(plain), Ok(recorded)] = pools else { return Duration::ZERO };
        let _warm = [&plain, &recorded].map(|pool| time(pool, TURN));
        for _ in 0..now {
            took[0] += time(&plain, TURN);
            took[1] += time(&recorded, TURN);
        }
        assert!(recorder.events() >= now * 2 * TURN && recorder.dropped() == 0);
        left -= now;
    }
    let took = took[1].saturating_sub(took[0]).mul_f64(events as f64 / (turns * 2 * TURN) as f64);
    // Noise may be more than what is measured; no time at all is none that can be reported.
    took.max(Duration::from_nanos(1))
}

/// The time of so many pairs, rounded up to whole batches.
fn time(pool: &Pool<HostDevice>, stream: &Stream, bytes: u64, live: u64, pairs: u64) -> Duration {
    let mut held = Vec::with_capacity(live as usize);
    let began = Instant::now();
    for _ in 0..pairs.div_ceil(live) {
        for _ in 0..live {
            // Not as the answer is, of which the compiler copies both halves at once: that waits for all that
            // is on its way to memory, a recorder's events among it.
            let Ok(buffer) = pool.allocate(black_box(bytes), stream) else { return Duration::ZERO };
            held.push(buffer);
        }
        black_box(&mut held).clear();
    }
    began.elapsed()
}

criterion_group!(benches, recording);
criterion_main!(benches);
