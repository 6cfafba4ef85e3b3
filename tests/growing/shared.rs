//! Memory of several streams is free at once, and serves without a wait once their work is complete.

use super::PAGE;
use super::streams::{place, scene, stall};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::arena::Zone::Dynamic;
use vrampool::host::{Call, HostDevice};
use vrampool::{Amount, Backend, Event};
use vrampool_test_support::{AuditDevice, until};

/// A request maps more memory rather than wait for another stream, up to the bound on overlap and the limit.
#[test]
fn more_is_mapped_before_a_stream_waits() {
    for (limit, overlap) in [(64 * PAGE, Amount::Bytes(7 * PAGE)), (27 * PAGE, Amount::Unlimited)] {
        let (device, [own, reader, other]) = super::host();
        let arena = DeviceArena::builder(&device).limit(limit).overlap(overlap).growing();
        let arena = arena.build().expect("an arena");
        let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
        let (kept, block) = (allocate(4, &own), allocate(12, &own));
        drop(allocate(4, &own));
        let first = place(&block);
        let _others = allocate(4, &other);
        assert_eq!((arena.stream_waits(), arena.capacity()), (0, 20 * PAGE), "its stream is idle");
        let (go, _) = stall(&reader);
        block.used_on(&reader).expect("no fault");
        drop(block);
        let waits = arena.stream_waits();
        let (four, three) = (allocate(4, &own), allocate(3, &other));
        assert_eq!((arena.stream_waits(), arena.capacity()), (waits, 27 * PAGE), "{overlap}");
        let one = allocate(1, &own);
        assert_eq!((arena.stream_waits(), arena.capacity(), place(&one)), (waits + 1, 27 * PAGE, first));
        drop(one);
        go.send(()).expect("it listens");
        device.synchronize(&reader).expect("no fault");
        assert_eq!(place(&allocate(12, &own)), first, "the reader is done with it");
        assert_eq!((arena.stream_waits(), arena.capacity()), (waits + 1, 27 * PAGE), "{overlap}");
        drop((kept, four, three));
    }
}

/// Memory that is freed while another stream uses it counts as free, can be released, and serves one block of its
/// whole size.
#[test]
fn memory_of_several_streams_is_free_at_once() {
    for is_growing in [false, true] {
        let (device, arena, [own, reader, _]) = scene(16, is_growing);
        let free_shared = || {
            let blocks = [(); 2].map(|()| arena.allocate(8 * PAGE, &own).expect("memory"));
            let (go, _) = stall(&reader);
            blocks.iter().for_each(|block| block.used_on(&reader).expect("no fault"));
            drop(blocks);
            assert_eq!(arena.used(), 0);
            go
        };
        let done = |go: Sender<()>| {
            go.send(()).expect("it listens");
            device.synchronize(&reader).expect("no fault");
        };
        let go = free_shared();
        assert_eq!(arena.available(Dynamic), 16 * PAGE);
        done(go);
        let go = free_shared();
        let whole = arena.allocate(16 * PAGE, &own).expect("all of it, behind the reader");
        assert_eq!(device.record(&own).expect("no fault").is_complete(), Ok(false));
        drop(whole);
        done(go);
        let go = free_shared();
        arena.reset().expect("nothing is held");
        assert_eq!(arena.largest_free_block(Dynamic), 16 * PAGE);
        done(go);
        let go = free_shared();
        done(go);
        if is_growing {
            assert_eq!(arena.release(0).expect("no fault"), 16 * PAGE);
        }
        // Nor is it in the way of an arena's end.
        drop(free_shared());
    }
}

/// Each free records a marker on each user of the block, the writer too, so that the next user of the memory
/// waits for nothing later.
#[test]
fn each_free_marks_the_writer_and_the_readers() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).build());
    let [own, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(8 * PAGE).build().expect("an arena");
    let faults = device.inner().faults();
    let stalled = [&own, &reader].map(stall);
    let free_shared = || {
        let (block, events) = (arena.allocate(PAGE, &own).expect("memory"), faults.calls(Call::Record));
        block.record_stream(&reader).expect("no fault");
        drop(block);
        faults.calls(Call::Record) - events
    };
    assert_eq!([(); 6].map(|()| free_shared()), [2; 6]);
    stalled.iter().for_each(|(go, _)| go.send(()).expect("it listens"));
    [&own, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    // Sooner or later one of them looks.
    (0..9).for_each(|_| drop(arena.allocate(PAGE, &own).expect("memory")));
    let whole = arena.allocate(8 * PAGE, &own).expect("it is free");
    assert_eq!(arena.stream_waits(), 0);
    drop(whole);
    let _stalled = [&own, &reader].map(stall);
    assert_eq!([(); 2].map(|()| free_shared()), [2; 2]);
}

/// Memory that all streams are done with is not left for new memory, whatever looked when.
#[test]
fn nothing_is_mapped_while_what_is_free_is_done() {
    let (device, arena, [own, reader, _]) = scene(64, true);
    let _live = arena.allocate(16 * PAGE, &own).expect("memory");
    let block = arena.allocate(4 * PAGE, &own).expect("memory");
    let (go, _) = stall(&reader);
    block.used_on(&reader).expect("no fault");
    drop(block);
    // Small ones, to which that memory is nothing: each looks in vain, more and more rarely.
    let _small: Vec<_> = (0..8).map(|_| arena.allocate(256, &own).expect("memory")).collect();
    let mapped = arena.capacity();
    go.send(()).expect("it listens");
    [&own, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let _again = arena.allocate(4 * PAGE, &own).expect("memory");
    assert_eq!(arena.capacity(), mapped, "four pages are free and unused");
}

/// A loop that decays once in a while comes to rest: what it maps in one step it does not unmap and map again
/// in each.
#[test]
fn a_loop_that_decays_comes_to_rest() {
    let (device, arena, [own, reader, _]) = scene(256, true);
    let mut calls = Vec::new();
    for _ in 0..20 {
        let _kept = arena.allocate(32 * PAGE, &own).expect("memory");
        for _ in 0..2 {
            let block = arena.allocate(8 * PAGE, &own).expect("memory");
            let (go, _) = stall(&reader);
            block.record_stream(&reader).expect("no fault");
            drop(block);
            let other = arena.allocate(8 * PAGE, &own).expect("memory");
            go.send(()).expect("it listens");
            device.synchronize(&reader).expect("no fault");
            drop(other);
        }
        arena.decay().expect("no fault");
        calls.push(arena.mapping().calls);
    }
    assert_eq!(calls[19], calls[9], "{calls:?}");
}

/// A device that has no more is not asked again for each request that memory is there for.
#[test]
fn a_device_without_memory_is_not_asked_each_time() {
    let device = HostDevice::builder().memory_limit(20 * PAGE).granularity(PAGE).build();
    let [own, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).growing().build().expect("an arena");
    let _kept = arena.allocate(16 * PAGE, &own).expect("memory");
    let (go, _) = stall(&reader);
    let asked = device.faults().calls(Call::CreatePhysical);
    for _ in 0..50 {
        let block = arena.allocate(4 * PAGE, &own).expect("memory, behind the reader");
        block.record_stream(&reader).expect("no fault");
    }
    let asked = device.faults().calls(Call::CreatePhysical) - asked;
    go.send(()).expect("it listens");
    assert!(asked <= 10, "{asked} times for 50 requests");
}

/// Memory that was freed while another stream uses it is not live, and the range does not grow.
#[test]
fn the_highest_end_does_not_count_what_is_in_flight() {
    let (_device, arena, [own, reader, _]) = scene(16, false);
    let _live = arena.allocate(4 * PAGE, &own).expect("memory");
    let block = arena.allocate(8 * PAGE, &own).expect("memory");
    let (go, _) = stall(&reader);
    block.record_stream(&reader).expect("no fault");
    drop(block);
    let figures = || (arena.highest_end(), arena.reserved_bytes());
    let before = figures();
    go.send(()).expect("it listens");
    assert_eq!((before, figures()), ((4 * PAGE, 16 * PAGE), (4 * PAGE, 16 * PAGE)));
}

/// However many smaller holes another stream uses, one that nothing uses serves; also after a read on another
/// stream, and after the state was asked for.
#[test]
fn an_unused_hole_is_found_among_many_in_flight() {
    const COUNT: u64 = 100;
    for (nth, what) in ["nothing", "a read on another stream", "the state"].into_iter().enumerate() {
        let (_device, arena, [own, reader, other]) = scene(2 * COUNT + 4, false);
        let allocate = |pages: u64| arena.allocate(pages * PAGE, &own).expect("memory");
        let (block, pairs, unused) =
            (allocate(1), (0..COUNT).map(|_| [allocate(1), allocate(1)]).collect::<Vec<_>>(), allocate(2));
        let _last = allocate(1);
        let (_go, _) = stall(&reader);
        let mut walls = Vec::new();
        for [block, wall] in pairs {
            block.record_stream(&reader).expect("no fault");
            walls.push(wall);
        }
        drop(unused);
        match nth {
            1 => block.used_on(&other).expect("no fault"),
            2 => _ = arena.attachment(),
            _ => {}
        }
        let waits = arena.stream_waits();
        let _next = allocate(1);
        assert_eq!(arena.stream_waits(), waits, "{what}: there is unused memory");
    }
}

/// As above, after a small request, which is served from another part of the range.
#[test]
fn small_requests_let_nothing_large_go() {
    const COUNT: u64 = 100;
    for is_small_asked in [false, true] {
        let (device, arena, [own, reader, other]) = scene(2 * COUNT + 4, true);
        let allocate = |pages: u64| arena.allocate(pages * PAGE, &own).expect("memory");
        let small = |stream| arena.allocate(1024, stream).expect("memory");
        // All memory for small requests, with pending work on it.
        let smalls = [(); 4].map(|()| small(&other));
        let pairs = (0..COUNT).map(|_| [allocate(1), allocate(1)]).collect::<Vec<_>>();
        let (unused, _last) = (allocate(2), allocate(1));
        assert_eq!(arena.capacity(), (2 * COUNT + 4) * PAGE, "no more is to be had");
        let _stalled = [&reader, &other].map(stall);
        drop(smalls);
        let mut walls = Vec::new();
        for [block, wall] in pairs {
            block.record_stream(&reader).expect("no fault");
            walls.push(wall);
        }
        drop(unused);
        if is_small_asked {
            drop(small(&own));
        }
        let waits = arena.stream_waits();
        let _next = allocate(1);
        assert_eq!(arena.stream_waits(), waits, "small: {is_small_asked}: there are unused pages");
        drop(device);
    }
}

/// A request that free memory can serve waits on the device at most, and never for a release, which waits on
/// the host.
#[test]
fn a_request_does_not_wait_for_a_release_while_there_is_memory() {
    let (device, arena, [own, reader, _]) = scene(64, true);
    let allocate = |pages: u64| arena.allocate(pages * PAGE, &own).expect("memory");
    let _kept = allocate(16);
    let piece = allocate(2);
    let end = allocate(4);
    drop(piece);
    // Half of a piece stays live, so that piece is not released.
    let (_half, other) = (allocate(1), allocate(1));
    let (go, _) = stall(&reader);
    for block in [other, end] {
        block.record_stream(&reader).expect("no fault");
    }
    let waits = device.faults().calls(Call::Synchronize);
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        let release = scope.spawn(|| arena.release(0).expect("no fault"));
        until(|| device.faults().calls(Call::Synchronize) != waits);
        let (arena, own) = (&arena, &own);
        scope.spawn(move || {
            let block = arena.allocate(PAGE, own).expect("a page, behind the reader");
            sender.send(()).expect("it listens");
            drop(block);
        });
        let answer = receiver.recv_timeout(Duration::from_secs(3));
        go.send(()).expect("it listens");
        assert!(release.join().expect("no panic") > 0);
        assert!(answer.is_ok(), "it waited on the host for the reader, which may wait for it");
    });
}
