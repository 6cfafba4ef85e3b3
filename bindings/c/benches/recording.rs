//! What an event of a pool that is recorded costs through the C ABI: half of the difference of a pair of
//! calls with a pool that is recorded and one with a pool that is not, a thousand of either by turns.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;
use std::time::{Duration, Instant};
use vrampool_c::boundary::Out;
use vrampool_c::{
    Status, vrampool_allocate, vrampool_create, vrampool_destroy, vrampool_free, vrampool_record_start,
};

/// Pairs of either pool by turns.
const TURN: u64 = 1000;

/// Turns that a recording has room for.
const TURNS: u64 = 500;

/// Buffers live at once.
const LIVE: [usize; 3] = [1, 4, 8];

fn recording(criterion: &mut Criterion) {
    for (name, bytes) in [("4KiB", 4 << 10), ("8MiB", 8 << 20)] {
        let mut group = criterion.benchmark_group(name);
        // What is measured is a small part of the time that it takes.
        group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
        for live in LIVE {
            group.bench_function(BenchmarkId::new("event", live), |bencher| {
                bencher.iter_custom(|events| event(events, bytes, live));
            });
        }
        group.finish();
    }
}

/// The time of so many events.
fn event(events: u64, bytes: u64, live: usize) -> Duration {
    let mut took = [Duration::ZERO; 2];
    let turns = events.div_ceil(2 * TURN);
    let mut left = turns;
    while left > 0 {
        let now = left.min(TURNS);
        let pools = [pool(), pool()];
        assert_eq!(vrampool_record_start(pools[1], (now + 2) * 2 * TURN), Status::OK);
        let _warm = pools.map(|pool| time(pool, bytes, live));
        for _ in 0..now {
            pools.iter().zip(&mut took).for_each(|(&pool, took)| *took += time(pool, bytes, live));
        }
        pools.iter().for_each(|&pool| assert_eq!(vrampool_destroy(pool), Status::OK));
        left -= now;
    }
    let took = took[1].saturating_sub(took[0]).mul_f64(events as f64 / (turns * 2 * TURN) as f64);
    // Noise may be more than what is measured; no time at all is none that can be reported.
    took.max(Duration::from_nanos(1))
}

fn pool() -> u64 {
    let mut pool = 0;
    let options = c"device=host; host_capacity=1GiB; source=virtual";
    assert_eq!(vrampool_create(options.into(), Out::from(&mut pool)), Status::OK);
    pool
}

/// The time of [`TURN`] pairs.
fn time(pool: u64, bytes: u64, live: usize) -> Duration {
    let mut held: [*mut c_void; LIVE[2]] = [ptr::null_mut(); LIVE[2]];
    let began = Instant::now();
    for _ in 0..TURN / live as u64 {
        for address in &mut held[..live] {
            let status = vrampool_allocate(pool, black_box(bytes), ptr::null_mut(), Out::from(address));
            assert_eq!(status, Status::OK);
        }
        for &address in &held[..live] {
            assert_eq!(vrampool_free(pool, black_box(address), ptr::null_mut()), Status::OK);
        }
    }
    began.elapsed()
}

criterion_group!(benches, recording);
criterion_main!(benches);
