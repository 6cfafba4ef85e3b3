//! Pairs of a free and a request over an arena: the freed block is free at once, merges, and is reused.

use super::PAGE;
use super::streams::stall;
use vrampool::arena::DeviceArena;
use vrampool::arena::Zone;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Amount, Backend, Buffer, Pool, SizeClasses, Source};

/// Returns a pool that keeps no idle blocks and maps no memory to spare waits, and two streams.
fn scene(limit: u64) -> (Pool<HostDevice>, HostStream, HostStream) {
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build();
    let stream = || device.create_stream().expect("a stream");
    let builder = Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Multiple(PAGE));
    let builder = builder.limit(limit).overlap(Amount::Bytes(0)).max_cached_bytes(0).magazine_bytes(0);
    let pool = builder.build().expect("a pool");
    (pool, stream(), stream())
}

/// Where it is in the arena, in one part.
fn place(buffer: &Buffer<HostDevice>) -> u64 {
    let [ref part] = vrampool::internal::parts(buffer)[..] else { panic!("it is stitched") };
    part.start
}

#[test]
fn a_freed_block_is_seen_free_by_every_reader() {
    let (pool, stream, _) = scene(100 * PAGE);
    let arena = pool.arena().expect("it is virtual").clone();
    for _ in 0..3 {
        let buffer = pool.allocate(8 * PAGE, &stream).expect("memory");
        assert_eq!(arena.used(), 8 * PAGE);
        drop(buffer);
        assert_eq!(arena.used(), 0);
        drop(pool.allocate(8 * PAGE, &stream).expect("memory"));
        assert_eq!(arena.largest_free_block(Zone::Dynamic), 8 * PAGE);
        drop(pool.allocate(8 * PAGE, &stream).expect("memory"));
        assert_eq!(arena.release(0).expect("no fault"), 8 * PAGE, "all of it is free");
        drop(pool.allocate(8 * PAGE, &stream).expect("memory"));
        pool.arena().expect("it is virtual").resize(8 * PAGE).expect("as much as is mapped");
        drop(pool.allocate(8 * PAGE, &stream).expect("memory"));
        pool.arena().expect("it is virtual").resize(100 * PAGE).expect("room");
    }
    drop(pool.allocate(8 * PAGE, &stream).expect("memory"));
    drop(pool);
    assert_eq!(arena.used(), 0);
}

#[test]
fn the_next_gets_it_again_unless_another_place_is_better() {
    let (pool, stream, other) = scene(100 * PAGE);
    let allocate = |pages: u64| pool.allocate(pages * PAGE, &stream).expect("memory");
    drop(allocate(40));
    let (first, wall, last) = (allocate(4), allocate(5), allocate(4));
    let [first_place, last_place] = [&first, &last].map(place);
    assert!(first_place < last_place, "in the order of the requests");
    // The last is next to the free end; the first will be a hole of its own.
    drop(last);
    let last = allocate(4);
    assert_eq!(place(&last), last_place);
    drop((first, last));
    let best = allocate(4);
    assert_eq!(place(&best), first_place, "the smallest hole that holds it");
    drop(best);
    let best = allocate(4);
    assert_eq!(place(&best), first_place, "it is no worse than before");
    // Also where nothing looked in between.
    let last = allocate(4);
    drop((best, last));
    let best = allocate(4);
    assert_eq!(place(&best), first_place);
    // Another stream gets it too, and waits while its only user is busy.
    let waits = pool.stats().stream_waits;
    drop(best);
    let theirs = pool.allocate(4 * PAGE, &other).expect("memory");
    assert_eq!((place(&theirs), pool.stats().stream_waits), (first_place, waits));
    let (go, _) = stall(&other);
    drop(theirs);
    let elsewhere = allocate(31);
    assert_eq!(pool.stats().stream_waits, waits, "all memory without a wait comes first");
    let ours = allocate(4);
    assert_eq!((place(&ours), pool.stats().stream_waits), (first_place, waits + 1));
    go.send(()).expect("it listens");
    drop((elsewhere, ours, wall));
    assert_eq!(pool.arena().map(DeviceArena::used), Some(0));
}
