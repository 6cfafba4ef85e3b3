//! Detached memory: its bytes are granted before the device is called, and frees of its blocks are reported once.

use crate::PAGE;
use std::ops::Range;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;
use vrampool::arena::{ArenaBuffer, Attachment, DeviceArena};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, Error, Ledger, Pool, Source};

type Ranges = Arc<Mutex<Vec<Range<u64>>>>;

fn scene(ledger: &Ledger) -> (HostDevice, HostStream, DeviceArena<HostDevice>) {
    let device = HostDevice::builder().memory_limit(1 << 24).granularity(PAGE).build();
    let stream = device.create_stream().expect("a stream");
    let builder = DeviceArena::builder(&device).growing().limit(64 * PAGE).piece_bytes(PAGE);
    let arena = builder.within(ledger).build().expect("an arena");
    (device, stream, arena)
}

fn detach(arena: &DeviceArena<HostDevice>) -> Ranges {
    let ranges = Ranges::default();
    let noted = Arc::clone(&ranges);
    let unmapped = arena.detach(Duration::ZERO).expect("no fault").expect("attached").unmap();
    unmapped.expect("no fault").commit(move |freed| noted.lock().expect("no panic").extend_from_slice(freed));
    ranges
}

fn take(ranges: &Ranges) -> Vec<Range<u64>> {
    std::mem::take(&mut *ranges.lock().expect("no panic"))
}

#[test]
fn memory_is_granted_as_a_whole_before_the_device_is_called() {
    let ledger = Ledger::new(8 * PAGE);
    let (device, stream, arena) = scene(&ledger);
    let block = arena.allocate(6 * PAGE, &stream).expect("memory");
    let _ = detach(&arena);
    let other = DeviceArena::builder(&device).growing().limit(64 * PAGE).within(&ledger).build();
    let other = other.expect("an arena");
    let taken = other.allocate(3 * PAGE, &stream).expect("memory");
    let created = || device.faults().calls(Call::CreatePhysical);
    let before = created();
    assert!(arena.attach().expect_err("5 of 6 pages are left").is_out_of_memory());
    assert_eq!((created(), ledger.charged()), (before, 3 * PAGE));
    drop(taken);
    other.release(0).expect("no fault");
    arena.resize(5 * PAGE).expect("a limit");
    assert!(arena.attach().expect_err("the limit").is_out_of_memory());
    assert_eq!((created(), ledger.charged()), (before, 0));
    arena.resize(6 * PAGE).expect("a limit");
    assert_eq!(arena.attach().expect("memory").expect("detached").commit(), 6 * PAGE);
    assert_eq!((ledger.charged(), block.address().is_some()), (6 * PAGE, true));
}

#[test]
fn a_free_is_reported_once_whenever_it_is() {
    let (device, stream, arena) = scene(&Ledger::new(None));
    let block = |pages: u64| arena.allocate(pages * PAGE, &stream).expect("memory");
    let of = |block: &ArenaBuffer<HostDevice>| block.parts();
    let [one, two, three, four, five] = [1, 2, 3, 4, 5].map(block);
    let detaching = arena.detach(Duration::ZERO).expect("no fault").expect("attached");
    let (first, expected) = (Ranges::default(), of(&one));
    drop(one);
    let noted = Arc::clone(&first);
    let unmapped = detaching.unmap().expect("no fault");
    unmapped.commit(move |freed| noted.lock().expect("no panic").extend_from_slice(freed));
    assert_eq!(take(&first), expected, "freed during the change");
    let expected = of(&two);
    drop(two);
    assert_eq!(take(&first), expected, "freed while detached");
    let attaching = arena.attach().expect("memory").expect("detached");
    let expected = of(&three);
    drop(three);
    assert_eq!(take(&first), []);
    drop(attaching);
    assert_eq!(
        (take(&first), arena.attachment()),
        (expected, Attachment::Detached),
        "freed during a failure"
    );
    device.faults().fail_nth(Call::Map, 2);
    assert!(matches!(arena.attach(), Err(Error::Backend(_))));
    device.faults().clear();
    assert_eq!(arena.attach().expect("memory").expect("detached").commit(), 9 * PAGE);
    drop(four);
    assert_eq!(take(&first), [], "it is attached");
    let (second, expected) = (detach(&arena), of(&five));
    arena.reset().expect("nothing is held");
    drop(five);
    assert_eq!((take(&first), take(&second)), (Vec::new(), expected), "freed by a reset");
    assert_eq!((arena.attachment(), arena.used()), (Attachment::Attached, 0));
}

/// A thread that detaches or attaches an arena may call it, and waits for no end of what it does itself.
#[test]
fn a_thread_does_not_wait_for_its_own_change() {
    let (_device, stream, arena) = scene(&Ledger::new(None));
    let block = arena.allocate(PAGE, &stream).expect("memory");
    let assert_refused = || {
        let refused = arena.allocate(8 * PAGE, &stream).expect_err("no memory");
        assert!(matches!(refused, Error::Asleep { .. }), "{refused}");
        assert!(matches!(block.on(&stream).err(), Some(Error::Asleep { .. })));
        assert!(matches!(arena.resize(64 * PAGE), Err(Error::Asleep { .. })));
        assert!(matches!(arena.reset(), Err(Error::Asleep { .. })));
        assert!(matches!(arena.compact(None, &stream, |_| ()), Err(Error::Asleep { .. })));
        assert_eq!(arena.release(0).expect("nothing"), 0);
    };
    let detaching = arena.detach(Duration::ZERO).expect("no fault").expect("attached");
    assert_refused();
    detaching.unmap().expect("no fault").commit(|_| ());
    let attaching = arena.attach().expect("memory").expect("detached");
    assert_refused();
    attaching.commit();
    assert!(arena.allocate(8 * PAGE, &stream).is_ok() && block.on(&stream).is_ok());
}

/// Also from magazines, and those of other threads.
#[test]
fn a_pool_serves_and_keeps_nothing_while_its_arena_is_detached() {
    let device = HostDevice::builder().memory_limit(1 << 24).granularity(PAGE).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).source(Source::Virtual).build().expect("a pool");
    let arena = pool.arena().expect("it is virtual");
    let attach = || arena.attach().expect("memory").expect("detached").commit();
    let live = pool.allocate(1000, &stream).expect("memory");
    drop(pool.allocate(1000, &stream).expect("memory"));
    let held = live.on(&stream).expect("a region");
    assert!(arena.detach(Duration::ZERO).is_err());
    drop(held);
    assert!(pool.stats().idle_bytes > 0, "as before");
    let turns = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            drop([(); 2].map(|()| pool.allocate(3000, &stream).expect("memory")));
            turns.wait();
            turns.wait();
            let refused = pool.allocate(3000, &stream);
            assert!(matches!(refused, Err(Error::Asleep { live_bytes, .. }) if live_bytes == arena.used()));
        });
        turns.wait();
        detach(arena);
        turns.wait();
    });
    drop(live);
    assert!(matches!(pool.allocate(1000, &stream), Err(Error::Asleep { .. })));
    assert_eq!((pool.stats().held_bytes, attach()), (0, 0));
    drop(pool.allocate(1000, &stream).expect("memory"));
    assert!(pool.stats().idle_bytes > 0, "kept again");
    pool.close();
    detach(arena);
    attach();
    assert!(matches!(pool.allocate(1000, &stream), Err(Error::Closed)));
}
