//! The bytes that a pool reports: what its source took from the device, and peaks.
#![cfg(feature = "host")]

use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Amount, Backend, Pool, PoolStats, SizeClasses, Source};
use vrampool_test_support::{close_gate, has_virtual_memory, streams};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

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
    let reserved = || (pool.stats().reserved_bytes, pool.stats().peak.reserved_bytes, taken(&device));
    assert_eq!(reserved(), (29 * MIB, 29 * MIB, 29 * MIB));
    let buffer = pool.allocate(6 * MIB, &stream).expect("memory");
    assert_eq!(reserved(), (29 * MIB, 29 * MIB, 29 * MIB));
    assert_eq!((pool.stats().held_bytes, pool.stats().peak.limit_bytes), (6 * MIB, 6 * MIB));
    pool.reset_peaks();
    assert_eq!((reserved().1, pool.stats().peak.limit_bytes), (29 * MIB, 6 * MIB));
    drop((buffer, pool));

    let arena = DeviceArena::builder(&device).limit(29 * MIB).build().expect("an arena");
    let buffer = arena.allocate(6 * MIB, &stream).expect("memory");
    arena.resize(40 * MIB).expect("memory");
    let reserved = || (arena.reserved_bytes(), taken(&device));
    assert_eq!(reserved(), (69 * MIB, 69 * MIB), "the buffer keeps the region of before");
    drop(buffer);
    assert_eq!(reserved(), (40 * MIB, 40 * MIB));
}

#[test]
fn whatever_maps_memory_counts_for_the_peak_of_what_is_reserved() {
    let device = device(1 << 30);
    if device.virtual_memory().is_none() {
        vrampool_test_support::skipped("the host has no virtual memory on this system");
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).source(Source::Virtual).limit(64 * MIB).build().expect("a pool");
    let arena = pool.arena().expect("it has one");
    let buffer = pool.allocate(20 * MIB, &stream).expect("memory");
    let detaching = arena.detach(Duration::ZERO).expect("no fault").expect("attached");
    detaching.unmap().expect("no fault").commit(|_| {});
    pool.reset_peaks();
    assert_eq!((pool.stats().reserved_bytes, pool.stats().peak.reserved_bytes), (0, 0));
    let attaching = arena.attach().expect("no fault").expect("detached");
    assert_eq!(attaching.commit(), 20 * MIB);
    drop(buffer);
    pool.trim().expect("a trim");
    assert_eq!(
        (pool.stats().reserved_bytes, pool.stats().peak.reserved_bytes),
        (0, 20 * MIB),
        "by an attachment"
    );

    drop(arena.allocate(30 * MIB, &stream).expect("memory"));
    pool.trim().expect("a trim");
    let stats = pool.stats();
    assert_eq!((stats.reserved_bytes, stats.peak.reserved_bytes), (0, 30 * MIB), "by the program");

    let arena = DeviceArena::builder(&device).growing().limit(64 * MIB).build().expect("an arena");
    drop(arena.allocate(30 * MIB, &stream).expect("memory"));
    arena.release(0).expect("no fault");
    let pool = Pool::builder(&device).arena(&arena).build().expect("a pool");
    assert_eq!(pool.stats().peak.reserved_bytes, 0, "what was before the pool is not its peak");
}

/// Pools that two streams use, over every source that the device has. Blocks are as large as requested.
fn pools_of_two_streams(overlap: Amount) -> Vec<(Pool<HostDevice>, [HostStream; 2])> {
    let pool_over = |source: Source| {
        let device = device(1 << 30);
        let builder =
            Pool::builder(&device).source(source).limit(64 * MIB).size_classes(SizeClasses::Exact(1));
        let (pool, streams) = (builder.overlap(overlap).build().expect("a pool"), streams(&device));
        streams.iter().for_each(|stream| drop(pool.allocate(4 * MIB, stream).expect("memory")));
        pool.trim().expect("a trim");
        pool.reset_peaks();
        (pool, streams)
    };
    let is_there = |source: &Source| *source != Source::Virtual || has_virtual_memory(&device(1 << 30));
    [Source::Direct, Source::Arena, Source::Virtual].into_iter().filter(is_there).map(pool_over).collect()
}

fn needed(stats: &PoolStats) -> [u64; 4] {
    [stats.live_bytes, stats.in_flight_bytes, stats.needed_bytes, stats.peak.needed_bytes]
}

#[test]
fn freed_memory_is_in_flight_until_the_work_on_it_is_complete() {
    for (pool, [a, b]) in pools_of_two_streams(Amount::Unlimited) {
        let source = pool.source();
        let open = close_gate(&a);
        let mut used = pool.allocate(8 * MIB, &a).expect("memory");
        used.fill(1, &a).expect("queued");
        assert_eq!(needed(&pool.stats()), [8 * MIB, 0, 8 * MIB, 8 * MIB], "{source}");
        drop(used);
        assert_eq!(needed(&pool.stats()), [0, 8 * MIB, 8 * MIB, 8 * MIB], "{source}: still used");
        let other = pool.allocate(8 * MIB, &b).expect("memory");
        let stats = pool.stats();
        assert_eq!(needed(&stats), [8 * MIB, 8 * MIB, 16 * MIB, 16 * MIB], "{source}: other memory");
        assert_eq!((stats.reuse_waits, stats.peak.live_bytes), (0, 8 * MIB), "{source}");
        drop(open);
        pool.device().synchronize(&a).expect("no fault");
        assert_eq!(needed(&pool.stats()), [8 * MIB, 0, 8 * MIB, 16 * MIB], "{source}: complete");
        pool.reset_peaks();
        assert_eq!(needed(&pool.stats()), [8 * MIB, 0, 8 * MIB, 8 * MIB], "{source}");
        drop(other);
    }
}

#[test]
fn the_peak_of_needed_bytes_misses_nothing_between_two_looks() {
    for (pool, [a, b]) in pools_of_two_streams(Amount::Unlimited) {
        let open = close_gate(&a);
        pool.allocate(8 * MIB, &a).expect("memory").fill(1, &a).expect("queued");
        drop(pool.allocate(8 * MIB, &b).expect("memory"));
        drop(open);
        pool.device().synchronize(&a).expect("no fault");
        pool.device().synchronize(&b).expect("no fault");
        assert_eq!(needed(&pool.stats()), [0, 0, 0, 16 * MIB], "{}", pool.source());
    }
}

/// A block that a compaction moved is used by the stream of the copy, not by its writer.
#[test]
fn a_block_that_was_moved_is_in_flight_until_its_copy_is_complete() {
    for (pool, [a, _]) in pools_of_two_streams(Amount::Unlimited) {
        if pool.source() != Source::Arena {
            continue;
        }
        let mover = pool.device().create_stream().expect("a stream");
        let hole = pool.allocate(8 * MIB, &a).expect("memory");
        let moved = pool.allocate(4 * MIB, &a).expect("memory");
        drop(hole);
        let open = close_gate(&mover);
        assert_eq!(pool.compact(None, &mover, |_| {}).expect("no fault").moved_blocks, 1);
        drop(moved);
        assert_eq!(needed(&pool.stats())[..3], [0, 4 * MIB, 4 * MIB], "the copy is pending");
        drop(open);
        [&mover, &a].into_iter().for_each(|stream| pool.device().synchronize(stream).expect("no fault"));
        assert_eq!(needed(&pool.stats())[..3], [0, 0, 0]);
    }
}

/// The host runs ahead of a reader: each request gets new memory.
#[test]
fn memory_of_every_class_is_in_flight_while_work_on_it_is_pending() {
    const COUNT: u64 = 200;
    for source in [Source::Direct, Source::Arena, Source::Virtual] {
        for (bytes, magazines) in
            [(16 * KIB, 0), (16 * KIB, 256 * KIB), (MIB, 0), (MIB, 8 * MIB), (4 * MIB, 0)]
        {
            let device = device(2 << 30);
            if source == Source::Virtual && !has_virtual_memory(&device) {
                continue;
            }
            let builder = Pool::builder(&device).source(source).limit(1 << 30).max_cached_bytes(None);
            let builder = builder.max_buffers_per_bucket(None).magazine_bytes(magazines);
            let (pool, [writer, reader]) = (builder.build().expect("a pool"), streams(&device));
            let open = close_gate(&reader);
            for _ in 0..COUNT {
                let block = pool.allocate(bytes, &writer).expect("memory");
                block.used_on(&reader).expect("no fault");
            }
            let (all, stats) = (COUNT * bytes, pool.stats());
            let least = all - magazines - bytes;
            assert!(
                (least..=all).contains(&stats.in_flight_bytes),
                "{source}, {bytes}, {magazines}: {stats:?}"
            );
            assert!(
                (least..=all).contains(&stats.peak.needed_bytes),
                "{source}, {bytes}, {magazines}: {stats:?}"
            );
            drop(open);
            [&reader, &writer].into_iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
            assert_eq!(pool.stats().in_flight_bytes, 0, "{source}, {bytes}, {magazines}: complete");
        }
    }
}

/// Memory of the driver's pool is freed on its writer's stream, after its readers.
#[test]
fn a_wait_before_a_free_is_counted() {
    let device = HostDevice::new();
    let [writer, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let pool = Pool::builder(&device).source(Source::Driver).max_cached_bytes(0).build().expect("a pool");
    for is_kept in [false, true] {
        pool.set_max_cached_bytes(if is_kept { u64::MAX } else { 0 });
        let waits = pool.stats().stream_waits;
        let mut buffer = pool.allocate(1 << 20, &writer).expect("memory");
        buffer.write(&[1; 100], &writer).expect("no fault");
        buffer.used_on(&reader).expect("no fault");
        assert_eq!(pool.stats().stream_waits, waits + 1, "the reader waited");
        drop(buffer);
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().stream_waits, waits + 2, "the free waited for the reader");
    }
}

#[test]
fn without_overlap_a_stream_waits_and_the_wait_is_counted() {
    for (pool, [a, b]) in pools_of_two_streams(Amount::Bytes(0)) {
        let source = pool.source();
        let open = close_gate(&a);
        pool.allocate(8 * MIB, &a).expect("memory").fill(1, &a).expect("queued");
        let before = pool.stats();
        let reused = pool.allocate(8 * MIB, &b).expect("memory");
        let stats = pool.stats();
        assert_eq!(stats.reuse_waits, before.reuse_waits + 1, "{source}");
        assert_eq!(stats.stream_waits, before.stream_waits + 1, "{source}");
        assert_eq!(needed(&stats), [8 * MIB, 0, 8 * MIB, 8 * MIB], "{source}: it is live again");
        drop(reused.on(&a).expect("a region"));
        let waits = (pool.stats().reuse_waits, pool.stats().stream_waits);
        assert_eq!(waits, (stats.reuse_waits, stats.stream_waits + 1), "{source}: for data");
        drop(open);
    }
}
