//! The bytes that a pool reports: what its source took from the device, and peaks, with threads at the limit.
#![cfg(feature = "host")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::sleep::Offload;
use vrampool::{Backend, Pool, PoolStats, SizeClasses, Source};

const MIB: u64 = 1 << 20;
const THREADS: u64 = 8;
const ROUNDS: usize = 300;

fn device(capacity: u64) -> HostDevice {
    HostDevice::builder().memory_limit(capacity).granularity(4096).build()
}

fn taken(device: &HostDevice) -> u64 {
    let info = device.memory_info().expect("no fault");
    info.total_bytes - info.free_bytes
}

#[test]
fn an_arena_reports_the_region_that_it_took_from_the_device() {
    let device = device(1 << 30);
    let stream = device.create_stream().expect("a stream");
    let builder = Pool::builder(&device).source(Source::Arena).limit(29 * MIB);
    let pool = builder.size_classes(SizeClasses::Exact(1)).build().expect("a pool");
    let reserved = || (pool.stats().source.reserved_bytes, pool.stats().peak.reserved_bytes, taken(&device));
    assert_eq!(reserved(), (29 * MIB, 29 * MIB, 29 * MIB));
    let buffer = pool.allocate(6 * MIB, &stream).expect("memory");
    assert_eq!(reserved(), (29 * MIB, 29 * MIB, 29 * MIB));
    assert_eq!((pool.stats().held_bytes, pool.stats().peak.needed_bytes), (6 * MIB, 6 * MIB));
    pool.reset_peaks();
    assert_eq!((reserved().1, pool.stats().peak.needed_bytes), (29 * MIB, 6 * MIB));

    let arena = pool.arena().expect("it has one");
    arena.resize(40 * MIB).expect("memory");
    assert_eq!(reserved(), (69 * MIB, 69 * MIB, 69 * MIB), "the buffer keeps the region of before");
    drop(buffer);
    assert_eq!(reserved(), (40 * MIB, 69 * MIB, 40 * MIB));
}

#[test]
fn whatever_maps_memory_counts_for_the_peak_of_what_is_reserved() {
    let device = device(1 << 30);
    if device.virtual_memory().is_none() {
        eprintln!("skipped: the host has no virtual memory on this system");
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).source(Source::Virtual).limit(64 * MIB).build().expect("a pool");
    let arena = pool.arena().expect("it has one");
    let buffer = pool.allocate(20 * MIB, &stream).expect("memory");
    let _ = arena.sleep(Offload::Pinned).expect("no fault");
    pool.reset_peaks();
    assert_eq!((pool.stats().source.reserved_bytes, pool.stats().peak.reserved_bytes), (0, 0));
    assert_eq!(arena.wake().expect("no fault").mapped_bytes, 20 * MIB);
    drop(buffer);
    pool.trim().expect("a trim");
    assert_eq!(
        (pool.stats().source.reserved_bytes, pool.stats().peak.reserved_bytes),
        (0, 20 * MIB),
        "by a wake"
    );

    let shared = Pool::builder(&device).arena(arena).build().expect("a pool");
    drop(arena.allocate(30 * MIB, &stream).expect("memory"));
    pool.trim().expect("a trim");
    let peaks = [&pool, &shared].map(|pool| pool.stats().peak.reserved_bytes);
    assert_eq!((pool.stats().source.reserved_bytes, peaks), (0, [30 * MIB; 2]), "by others of the arena");
}

/// What must be true of every look at a pool that can have `bound` bytes.
fn check(stats: &PoolStats, bound: u64) {
    let now = [
        stats.requested_bytes,
        stats.live_bytes,
        stats.idle_bytes,
        stats.held_bytes,
        stats.source.reserved_bytes,
    ];
    let peaks = [
        stats.peak.requested_bytes,
        stats.peak.live_bytes,
        stats.peak.idle_bytes,
        stats.peak.held_bytes,
        stats.peak.reserved_bytes,
    ];
    assert!(now.iter().zip(peaks).all(|(&now, peak)| now <= peak && peak <= bound), "{bound}: {stats:?}");
    assert!(
        stats.caps.limit.is_none_or(|limit| stats.held_bytes + stats.source.in_transit_bytes <= limit),
        "{stats:?}"
    );
    assert!(stats.peak.needed_bytes <= stats.peak.reserved_bytes, "{stats:?}");
    assert_eq!(stats.held_bytes, stats.live_bytes + stats.idle_bytes);
    assert!(stats.caps.max_cached_bytes.is_none_or(|cap| stats.peak.idle_bytes <= cap), "{stats:?}");
    match stats.source.kind {
        Source::Arena => assert_eq!(stats.source.reserved_bytes, bound),
        Source::Direct | Source::Driver => assert_eq!(stats.source.reserved_bytes, stats.held_bytes),
        _ => {}
    }
}

fn request_at_random(
    pool: &Pool<HostDevice>,
    stream: &<HostDevice as Backend>::Stream,
    seed: u64,
    bound: u64,
) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut live = Vec::new();
    for _ in 0..ROUNDS {
        // Mostly small ones, which magazines keep.
        let bytes = if random.u8(..) < 160 { random.u64(1..64 << 10) } else { random.u64(1..bound / 4) };
        match pool.allocate(bytes, stream) {
            Ok(buffer) => live.push(buffer),
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
        while live.len() > 4 || (!live.is_empty() && random.bool()) {
            live.swap_remove(random.usize(..live.len()));
        }
        match random.u16(..1000) {
            0..5 => drop(pool.trim().expect("a trim")),
            5..10 => pool.reset_peaks(),
            _ => {}
        }
    }
}

#[test]
fn no_look_at_a_pool_at_its_limit_reports_more_than_there_is() {
    for &source in Source::ALL {
        // The pool's own limit, and the device's memory alone.
        for (capacity, limit, cached) in [(1 << 30, 16 * MIB, u64::MAX), (16 * MIB, u64::MAX, 12 * MIB)] {
            // Requests overlap while the device serves them.
            let builder = HostDevice::builder().memory_limit(capacity).granularity(4096);
            let device = builder.allocation_latency(Duration::from_micros(20)).build();
            if source == Source::Virtual && device.virtual_memory().is_none() {
                continue;
            }
            let bound = capacity.min(limit);
            let builder = Pool::builder(&device).source(source).limit(limit).max_cached_bytes(cached);
            let pool = builder.max_buffers_per_bucket(64).magazine_bytes(2 * MIB).build().expect("a pool");
            let streams: Vec<_> = (0..THREADS).map(|_| device.create_stream().expect("a stream")).collect();
            let is_done = AtomicBool::new(false);
            thread::scope(|scope| {
                let observer = scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        check(&pool.stats(), bound);
                        thread::yield_now();
                    }
                });
                let work = |(seed, stream)| {
                    let pool = &pool;
                    scope.spawn(move || request_at_random(pool, stream, seed, bound))
                };
                let workers: Vec<_> = (0..).zip(&streams).map(work).collect();
                let worked: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
                is_done.store(true, Ordering::Relaxed);
                observer.join().expect("every look was right");
                worked.into_iter().for_each(|worked| worked.expect("requests fail by memory alone"));
            });
            let stats = pool.stats();
            check(&stats, bound);
            assert!(stats.rung(vrampool::Rung::Fail) > 0, "{source}: it was at its limit: {stats:?}");
            assert_eq!((stats.live_bytes, stats.source.in_transit_bytes), (0, 0));
        }
    }
}
