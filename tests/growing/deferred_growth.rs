//! Memory that is mapped so that a stream need not wait, and the limits of that.

use super::deferred::scene;
use super::streams::stall;
use super::{PAGE, has_virtual_memory};
use vrampool::Backend;
use vrampool::arena::{Allowance, DeviceArena};
use vrampool::host::{Call, HostDevice, HostStream};

type Two = (HostDevice, Allowance, [DeviceArena<HostDevice>; 2], [HostStream; 2]);

/// Two arenas that share an allowance.
fn two_within(limit: u64) -> Two {
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build();
    let streams = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let allowance = Allowance::new(limit);
    let arena = || DeviceArena::builder(&device).growing().within(&allowance).build().expect("an arena");
    let arenas = [arena(), arena()];
    (device, allowance, arenas, streams)
}

/// Where an allowance leaves enough for all there is memory for that.
#[test]
fn waits_are_spared_within_an_allowance_without_a_limit() {
    if !has_virtual_memory() {
        return;
    }
    let (_device, allowance, [arena, _], [own, reader]) = two_within(u64::MAX);
    let (_kept, block) =
        (arena.allocate(6 * PAGE, &own).expect("memory"), arena.allocate(2 * PAGE, &own).expect("memory"));
    let _stalled = stall(&reader);
    block.record_stream(&reader).expect("no fault");
    drop(block);
    let _again = arena.allocate(2 * PAGE, &own).expect("memory");
    assert_eq!((arena.stream_waits(), allowance.taken()), (0, 10 * PAGE));
    allowance.set_limit(10 * PAGE);
    let _behind = arena.allocate(PAGE, &own).expect("memory");
    assert_eq!((arena.stream_waits(), allowance.taken()), (1, 10 * PAGE));
}

/// What one arena maps rather than wait is nothing that another of the same allowance is refused for.
#[test]
fn memory_that_only_spares_waits_is_there_for_others() {
    if !has_virtual_memory() {
        return;
    }
    let (device, allowance, [one, other], [own, reader]) = two_within(20 * PAGE);
    let (_kept, block) =
        (one.allocate(6 * PAGE, &own).expect("memory"), one.allocate(2 * PAGE, &own).expect("memory"));
    let (go, _) = stall(&reader);
    block.record_stream(&reader).expect("no fault");
    drop(block);
    let _again = one.allocate(2 * PAGE, &own).expect("memory");
    go.send(()).expect("it listens");
    device.synchronize(&reader).expect("no fault");
    let theirs = other.allocate(11 * PAGE, &own);
    assert!(theirs.is_ok(), "{} of 20 pages are taken, 8 are live: {theirs:?}", allowance.taken() / PAGE);
}

/// New memory spares a wait. Where the device fails to make some, there is the wait still.
#[test]
fn a_failure_to_map_more_is_no_failure_of_a_request_that_memory_is_there_for() {
    if !has_virtual_memory() {
        return;
    }
    for call in [Call::CreatePhysical, Call::Map, Call::SetAccess] {
        let (device, arena, [own, reader, _]) = scene(64, true);
        let _kept = arena.allocate(16 * PAGE, &own).expect("memory");
        let block = arena.allocate(4 * PAGE, &own).expect("memory");
        let (go, _) = stall(&reader);
        block.record_stream(&reader).expect("no fault");
        drop(block);
        device.faults().fail_nth(call, 1);
        let again = arena.allocate(4 * PAGE, &own).map(|block| block.parts());
        device.faults().clear();
        go.send(()).expect("it listens");
        assert!(again.is_ok(), "{call:?}: {again:?}");
    }
}

/// A search that gives up before it comes to the free end leads there all the same, and maps nothing.
#[test]
fn a_growth_of_nothing_is_the_free_end() {
    if !has_virtual_memory() {
        return;
    }
    let (_device, arena, [own, one, other]) = scene(1000, true);
    let allocate = |pages: u64, stream: &HostStream| arena.allocate(pages * PAGE, stream).expect("memory");
    let _kept = allocate(300, &own);
    let shared = allocate(1, &own);
    let mut blocks: Vec<_> =
        (0..79).map(|nth| allocate(1, if nth % 2 == 0 { &one } else { &other })).collect();
    let hole = allocate(1, &other);
    let _wall = allocate(1, &own);
    drop(allocate(4, &own));
    drop(hole);
    let newest = allocate(1, &other);
    let stalled = [&one, &other].map(stall);
    shared.record_stream(&one).expect("no fault");
    drop(shared);
    blocks.drain(..).for_each(drop);
    drop(newest);
    let (mapped, waits) = (arena.capacity(), arena.stream_waits());
    let got = [(); 2].map(|()| allocate(2, &own));
    stalled.iter().for_each(|(go, _)| go.send(()).expect("it listens"));
    assert_eq!((arena.capacity(), arena.stream_waits()), (mapped, waits), "{got:?}");
}
