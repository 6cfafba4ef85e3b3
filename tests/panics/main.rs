//! A device whose calls panic: the panic goes on, the books are right, no thread waits for ever, and no byte is
//! lost.

#[allow(dead_code, reason = "other tests use all of it")]
#[path = "../detached/mod.rs"]
mod detached;
mod growing;

use detached::Contents;
use growing::{Device, FromArena, PAGE, device, in_each_call, in_time, panics};
use std::sync::Mutex;
use vrampool::Ledger;
use vrampool::arena::{Attachment, DeviceArena};
use vrampool::host::{Backend, Call};

/// A growing arena, and its contents while it is detached.
type Growing = growing::Growing<Mutex<Contents>>;

impl FromArena for Mutex<Contents> {
    fn from_arena(_: &DeviceArena<Device>) -> Self {
        Self::default()
    }
}

fn detach(growing: &Growing) -> Result<(), vrampool::Error> {
    let keep = |contents| *growing.state.lock().expect("no panic") = contents;
    detached::detach_keeping(&growing.arena, keep).map(drop)
}

fn attach(growing: &Growing) -> Result<(), vrampool::Error> {
    let contents = growing.state.lock().expect("no panic").clone();
    detached::attach(&growing.arena, &contents).map(drop)
}

/// A large block slides by little, in many pieces, behind the work of another stream.
#[test]
fn a_panic_in_a_compaction_leaves_the_block_where_its_bytes_are() {
    const BYTES: u64 = 1 << 20;
    let mut panicked = 0;
    for (call, most) in [("wait", 2), ("record", 2), ("copy", 20)] {
        for nth in 0..most {
            let device = device();
            let [own, user] = [(); 2].map(|()| device.create_stream().expect("a stream"));
            let arena = DeviceArena::builder(&device).limit(4 * BYTES).build().expect("an arena");
            let before = arena.allocate(BYTES / 8, &own).expect("memory");
            let mut block = arena.allocate(BYTES, &own).expect("memory");
            let bytes: Vec<u8> = (0..BYTES).map(|at| (at % 251) as u8).collect();
            block.write(&bytes, &user).expect("no fault");
            drop(before);
            let place = block.offset().expect("it is live");
            device.panic_in(call, nth);
            let has_panicked = panics(|| arena.compact(u64::MAX, &own, |_| {}));
            assert_eq!(has_panicked, !device.forget_panic(), "{call} {nth}");
            panicked += u64::from(has_panicked);
            in_time(move || {
                // Only behind the copies is it at its new place when something panics.
                let is_moved = block.offset().is_ok_and(|now| now != place);
                assert!(is_moved || has_panicked, "{call} {nth}");
                let mut read = vec![0; BYTES as usize];
                block.read(&mut read, &user).expect("no fault");
                assert!(read == bytes, "{call} {nth}: its bytes");
                let report = arena.compact(u64::MAX, &own, |_| {}).expect("no fault");
                assert_eq!(report.moved_blocks, u64::from(!is_moved), "{call} {nth}");
                block.read(&mut read, &user).expect("no fault");
                assert!(read == bytes, "{call} {nth}: its bytes");
                drop(block);
                assert_eq!(arena.used(), 0);
                assert!(arena.allocate(4 * BYTES, &own).is_ok(), "{call} {nth}: all of it is there");
            });
        }
    }
    assert!(panicked > 8, "the calls are made: {panicked}");
}

/// New memory at the end, and stitched of free pieces and new ones.
#[test]
fn a_panic_while_memory_is_made_leaves_none_of_it() {
    let mut panicked = 0;
    for call in ["reserve", "create_physical", "map", "set_access"] {
        for nth in 0..8 {
            let device = device();
            if device.virtual_memory().is_none() {
                return;
            }
            let stream = device.create_stream().expect("a stream");
            let ledger = Ledger::new(64 * PAGE);
            let arena = DeviceArena::builder(&device)
                .limit(32 * PAGE)
                .growing()
                .piece_bytes(4 * PAGE)
                .within(&ledger)
                .build()
                .expect("an arena");
            let allocate = |pages: u64| arena.allocate(pages * PAGE, &stream).expect("memory");
            let (hole, wall) = (allocate(8), allocate(8));
            drop(hole);
            let before = (arena.reserved_bytes(), arena.used(), ledger.charged(), device.taken());
            device.panic_in(call, nth);
            let has_panicked = panics(|| arena.allocate(24 * PAGE, &stream).map(drop));
            assert_eq!(has_panicked, !device.forget_panic(), "{call} {nth}");
            if has_panicked {
                panicked += 1;
                let after = (arena.reserved_bytes(), arena.used(), ledger.charged(), device.taken());
                assert_eq!(after, before, "{call} {nth}");
            }
            in_time(move || {
                let all = arena.allocate(24 * PAGE, &stream).expect("as if there had been no panic");
                assert_eq!((arena.used(), ledger.charged()), (32 * PAGE, 32 * PAGE), "{call} {nth}");
                drop((all, wall));
                arena.release(0).expect("no fault");
                assert_eq!((ledger.charged(), device.taken()), (0, 0), "{call} {nth}");
            });
        }
    }
    assert!(panicked > 8, "the calls are made: {panicked}");
}

#[test]
fn a_panic_in_a_release_loses_nothing() {
    let release = |growing: &Growing| growing.arena.release(0).map(drop);
    in_each_call(&["synchronize", "unmap", "drop"], |_| {}, release, Growing::check);
}

#[test]
fn a_panic_while_an_arena_is_detached_loses_neither_memory_nor_contents() {
    in_each_call(
        &["synchronize", "unmap", "drop"],
        |_| {},
        detach,
        |growing, what| {
            let state = (growing.arena.attachment(), growing.ledger.charged());
            assert_eq!(state, (Attachment::Detached, 0), "{what}");
            attach(&growing).expect("no fault");
            growing.check(what);
        },
    );
}

#[test]
fn a_panic_while_an_arena_is_attached_loses_neither_memory_nor_contents() {
    let prepare = |growing: &Growing| detach(growing).expect("no fault");
    in_each_call(&["create_physical", "map", "set_access"], prepare, attach, Growing::check);
}

/// A reset unmaps and releases the rest of an attachment that was neither completed nor reversed.
#[test]
fn a_panic_in_the_reset_of_a_detached_arena_leaves_it_detached_or_empty() {
    let prepare = |growing: &Growing| {
        detach(growing).expect("no fault");
        let faults = growing.device.inner().faults();
        faults.fail_nth(Call::Map, 4);
        faults.fail_nth(Call::Unmap, 1);
        assert!(growing.arena.attach().is_err());
        faults.clear();
        assert!(growing.device.taken() > 0, "detached with memory");
    };
    let reset = |growing: &Growing| growing.arena.reset();
    in_each_call(&["unmap", "drop"], prepare, reset, |mut growing, what| {
        growing.blocks.clear();
        let state = (growing.arena.attachment(), growing.arena.used());
        assert_eq!(state, (Attachment::Attached, 0), "{what}");
        growing.check(what);
    });
}
