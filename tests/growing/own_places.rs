//! Where streams share blocks each mostly gets what it had last, and leaves to the others what they had: what
//! a stream that is behind got of theirs they would have to wait for.

use super::PAGE;
use super::streams::{place, scene, stall};
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, SizeClasses, Source};
use vrampool_test_support::AuditDevice;

/// While a stream is busy, a request takes a hole of its own stream although a smaller one of another stream,
/// which is done with it, would serve.
#[test]
fn memory_of_another_stream_is_left_to_it() {
    let (device, arena, [own, other, reader]) = scene(64, true);
    let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
    let (written, _one) = (allocate(4, &other), allocate(1, &own));
    let (shared, _two) = (allocate(4, &other), allocate(1, &own));
    let (had, _three) = (allocate(8, &own), allocate(1, &own));
    let (busy, _four) = (allocate(1, &own), allocate(1, &own));
    let [first, second, last] = [&written, &shared, &had].map(place);
    drop((written, had));
    shared.record_stream(&reader).expect("no fault");
    drop(shared);
    // The work on these holes is complete, and known to be after the next poll.
    [&own, &other, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let (go_on, _) = stall(&reader);
    busy.record_stream(&reader).expect("no fault");
    drop(busy);
    let blocks = [allocate(3, &own), allocate(3, &own)];
    assert_eq!(blocks.each_ref().map(place), [last, last + 3 * PAGE]);
    let (go, _) = stall(&own);
    drop(blocks);
    let theirs = [allocate(4, &other), allocate(4, &other)];
    let mut places = theirs.each_ref().map(place);
    places.sort_unstable();
    assert_eq!((places, arena.stream_waits()), ([first, second], 0));
    [go, go_on].iter().for_each(|go| go.send(()).expect("it listens"));
}

/// Rather than wait, or have more mapped, it gets what another stream had that is done with it.
#[test]
fn memory_of_others_serves_a_stream_without_memory() {
    let (device, arena, [own, other, third]) = scene(64, true);
    let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
    let (small, _one) = (allocate(4, &other), allocate(1, &own));
    let (large, _two) = (allocate(8, &third), allocate(1, &own));
    let first = place(&large);
    large.record_stream(&own).expect("no fault");
    drop(large);
    [&own, &third].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let (go, _) = stall(&other);
    drop(small);
    let mapped = arena.reserved_bytes();
    let block = allocate(4, &own);
    assert_eq!((place(&block), arena.reserved_bytes(), arena.stream_waits()), (first, mapped, 0));
    go.send(()).expect("it listens");
}

/// The free end is left for what no hole holds.
#[test]
fn holes_serve_before_the_free_end() {
    let (device, arena, [own, reader, _]) = scene(64, true);
    let allocate = |pages: u64| arena.allocate(pages * PAGE, &own).expect("memory");
    let (_kept, shared, hole, _wall, end) =
        (allocate(20), allocate(1), allocate(4), allocate(1), allocate(20));
    let first = place(&hole);
    drop((hole, end));
    shared.record_stream(&reader).expect("no fault");
    drop(shared);
    [&own, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let (mapped, _one, four) = (arena.reserved_bytes(), allocate(1), allocate(4));
    assert_eq!(place(&four), first);
    let _twenty = allocate(20);
    assert_eq!((arena.reserved_bytes(), arena.stream_waits()), (mapped, 0));
}

/// However many holes are to be waited for the free end is found.
#[test]
fn the_free_end_is_behind_no_number_of_holes() {
    let (device, arena, [own, other, reader]) = scene(1000, true);
    let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
    let shared = allocate(1, &own);
    let blocks: Vec<_> = (0..100).map(|_| (allocate(4, &other), allocate(1, &own))).collect();
    let end = allocate(4, &own);
    let first = place(&end);
    drop(end);
    shared.record_stream(&reader).expect("no fault");
    drop(shared);
    [&own, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let (go, _) = stall(&other);
    let (theirs, _walls): (Vec<_>, Vec<_>) = blocks.into_iter().unzip();
    drop(theirs);
    let mapped = arena.reserved_bytes();
    let block = allocate(4, &own);
    let got = (place(&block), arena.reserved_bytes(), arena.stream_waits());
    go.send(()).expect("it listens");
    assert_eq!(got, (first, mapped, 0));
}

/// Many small parts that others are done with are one room.
#[test]
fn many_parts_of_others_are_no_wall() {
    for is_captured in [false, true] {
        let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
        let [own, reader, other] = std::array::from_fn(|_| device.create_stream().expect("a stream"));
        let arena = DeviceArena::builder(&device).limit(1000 * PAGE).growing().build().expect("an arena");
        let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
        let (_kept, last, _one) = (allocate(400, &own), allocate(1, &other), allocate(1, &own));
        let first = allocate(1, &reader);
        let blocks: Vec<_> = (0..110).map(|_| allocate(1, &other)).collect();
        let _wall = allocate(1, &own);
        let share = |block: &ArenaBuffer<_>| block.record_stream(&reader).expect("no fault");
        blocks.iter().for_each(share);
        drop(blocks);
        [&other, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
        drop(arena.allocate(256, &own).expect("memory"));
        let (go, _) = stall(&reader);
        drop(first);
        share(&last);
        drop(last);
        if is_captured {
            device.capture(&[&own]);
        }
        let before = (arena.reserved_bytes(), arena.stream_waits());
        let all = arena.allocate(100 * PAGE, &own).map(|block| block.len());
        go.send(()).expect("it listens");
        assert_eq!(all.expect("they are done"), 100 * PAGE);
        assert_eq!((arena.reserved_bytes(), arena.stream_waits()), before, "captured: {is_captured}");
    }
}

/// Of a large block without pending work, later requests wait only for the part that a stream has reused.
#[test]
fn reuse_of_a_small_part_affects_no_other_part() {
    let (device, [own, reader, other]) = super::host();
    let pool = Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Exact(256));
    let pool = pool.cached_class(0).limit(200 * PAGE).build().expect("a pool");
    let allocate = |bytes, stream| pool.allocate(bytes, stream).expect("memory");
    let (_kept, shared) = (allocate(16 * PAGE, &reader), allocate(16 * PAGE, &own));
    shared.record_stream(&reader).expect("no fault");
    drop(shared);
    [&own, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    (0..3).for_each(|_| drop(allocate(256, &reader)));
    let taken = || (pool.stats().reserved_bytes, pool.stats().stream_waits);
    let before = taken();
    let (go, _) = stall(&own);
    drop(allocate(PAGE, &own));
    let _eight = allocate(8 * PAGE, &other);
    let after = taken();
    go.send(()).expect("it listens");
    assert_eq!(after, before);
}

/// The smallest hole serves also after a block was shared, so that the free end is left for what no hole
/// holds.
#[test]
fn reused_memory_leaves_the_free_end_whole() {
    let (device, [stream, other]) = super::host();
    let pool = Pool::builder(&device).source(Source::Arena).size_classes(SizeClasses::Exact(256));
    let pool = pool.addresses_stay(true).cached_class(0).magazine_bytes(0).limit(48 * PAGE);
    let pool = pool.build().expect("a pool");
    let allocate = |pages: u64| pool.allocate(pages * PAGE, &stream);
    let shared = allocate(4).expect("memory");
    shared.record_stream(&other).expect("no fault");
    drop(shared);
    [&stream, &other].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    drop(allocate(48).expect("memory"));
    let [first, _wall, last] = [(); 3].map(|()| allocate(4).expect("memory"));
    drop((first, last));
    let small = allocate(4).expect("memory");
    assert_eq!(vrampool::internal::parts(&small)[0].start, 0);
    assert!(allocate(40).is_ok());
}
