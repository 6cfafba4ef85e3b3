//! Memory that is mapped so that a stream need not wait, and the limits of that.

use super::PAGE;
use super::streams::{scene, stall};
use crate::detached::{attach, detach};
use vrampool::Ledger;
use vrampool::arena::DeviceArena;
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Amount, Backend};

type Two = (HostDevice, Ledger, [DeviceArena<HostDevice>; 2], [HostStream; 2]);

/// Two arenas that share an ledger.
fn two_within(limit: u64) -> Two {
    two_with(limit, Amount::Unlimited)
}

fn two_with(limit: u64, overlap: Amount) -> Two {
    let (device, streams) = super::host();
    let ledger = Ledger::new(limit);
    let arena = || {
        let builder = DeviceArena::builder(&device).growing().within(&ledger);
        builder.overlap(overlap).build().expect("an arena")
    };
    let arenas = [arena(), arena()];
    (device, ledger, arenas, streams)
}

/// Where an ledger leaves enough for all there is memory for that.
#[test]
fn waits_are_spared_within_a_ledger_without_a_limit() {
    let (_device, ledger, [arena, _], [own, reader]) = two_within(u64::MAX);
    let (_kept, block) =
        (arena.allocate(6 * PAGE, &own).expect("memory"), arena.allocate(2 * PAGE, &own).expect("memory"));
    let _stalled = stall(&reader);
    block.record_stream(&reader).expect("no fault");
    drop(block);
    let _again = arena.allocate(2 * PAGE, &own).expect("memory");
    assert_eq!((arena.stream_waits(), ledger.charged()), (0, 10 * PAGE));
    ledger.set_limit(10 * PAGE);
    let _behind = arena.allocate(PAGE, &own).expect("memory");
    assert_eq!((arena.stream_waits(), ledger.charged()), (1, 10 * PAGE));
}

/// Memory that an arena maps to spare a wait is available to another arena of the same ledger: after a
/// release, as all free memory, or at once where overlap is bounded by 0 bytes.
#[test]
fn memory_that_only_spares_waits_is_there_for_others() {
    for (overlap, waits, spared) in [(Amount::Unlimited, 0, 2), (Amount::Bytes(0), 1, 0)] {
        let (device, ledger, [one, other], [own, reader]) = two_with(20 * PAGE, overlap);
        let (_kept, block) =
            (one.allocate(6 * PAGE, &own).expect("memory"), one.allocate(2 * PAGE, &own).expect("memory"));
        let (go, _) = stall(&reader);
        block.record_stream(&reader).expect("no fault");
        drop(block);
        let _again = one.allocate(2 * PAGE, &own).expect("memory");
        assert_eq!((one.stream_waits(), ledger.charged()), (waits, (8 + spared) * PAGE), "{overlap}");
        go.send(()).expect("it listens");
        device.synchronize(&reader).expect("no fault");
        if spared > 0 {
            assert_eq!(one.release(0).expect("no fault"), spared * PAGE);
        }
        let theirs = other.allocate(11 * PAGE, &own);
        assert!(theirs.is_ok(), "{overlap}: {} of 20 pages are taken: {theirs:?}", ledger.charged() / PAGE);
    }
}

/// New memory spares a wait. Where the device fails to make some, there is the wait still.
#[test]
fn a_failure_to_map_more_is_no_failure_of_a_request_that_memory_is_there_for() {
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

/// A search that stops before the free end still takes the free end, and maps nothing.
#[test]
fn a_growth_of_nothing_is_the_free_end() {
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

/// A block is freed while the arena is detached, and its stream is busy when memory is mapped at its addresses: no work
/// uses that.
#[test]
fn memory_that_is_mapped_anew_has_no_users() {
    let (_, arena, [own, other, _]) = scene(40, true);
    let block = arena.allocate(5 * PAGE, &own).expect("memory");
    drop(arena.allocate(PAGE, &other).expect("memory"));
    let _ = detach(&arena).expect("no region");
    let (go, _) = stall(&own);
    drop(block);
    let _ = attach(&arena, &Vec::new()).expect("memory");
    let waits = arena.stream_waits();
    let _block = arena.allocate(5 * PAGE, &other).expect("memory");
    assert_eq!((arena.reserved_bytes(), arena.stream_waits()), (5 * PAGE, waits));
    go.send(()).expect("it listens");
}

/// Events are recorded for each 64th of the needed bytes that a stream frees, not at each free.
#[test]
fn a_stream_gets_a_marker_for_many_frees() {
    let (device, [own, other]) = super::host();
    let arena = DeviceArena::builder(&device).growing().build().expect("an arena");
    // Another stream finds its memory in use, so that markers are wanted.
    let (_go, _) = stall(&own);
    drop(arena.allocate(PAGE, &own).expect("memory"));
    drop(arena.allocate(PAGE, &other).expect("memory"));
    let blocks: Vec<_> = (0..128).map(|_| arena.allocate(PAGE, &own).expect("memory")).collect();
    let before = device.faults().calls(Call::Record);
    drop(blocks);
    // 2 of 129 pages are a 64th: each third free exceeds it.
    assert_eq!(device.faults().calls(Call::Record) - before, 128 / 3);
}

/// While streams are found idle, frees record no events, and no stream waits. Once one is found busy, they do again.
#[test]
fn streams_that_are_found_idle_get_no_markers() {
    let (device, [own, other]) = super::host();
    let arena = DeviceArena::builder(&device).growing().build().expect("an arena");
    let turns = || {
        for stream in [&own, &other].into_iter().cycle().take(100) {
            drop(arena.allocate(PAGE, stream).expect("memory"));
        }
    };
    let records = || device.faults().calls(Call::Record);
    turns();
    let (before, reserved) = (records(), arena.reserved_bytes());
    turns();
    assert_eq!((records(), arena.reserved_bytes(), arena.stream_waits()), (before, reserved, 0));
    let (_go, _) = stall(&own);
    turns();
    assert!(records() > before + 10, "{} for 50 frees of a busy stream", records() - before);
    assert_eq!(arena.stream_waits(), 0, "there is memory that needs no wait");
}
