//! A device whose calls panic: the panic goes on, the books are right, nobody waits for ever, and no byte is
//! lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vrampool::arena::{Allowance, ArenaBuffer, DeviceArena};
use vrampool::host::{Call, DeviceKind, HostDevice, HostStream};
use vrampool::sleep::{Offload, SleepState};
use vrampool::{Backend, Error};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

const PAGE: u64 = 4096;

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn device() -> Device {
    AuditDevice::new(HostDevice::builder().memory_limit(1 << 26).granularity(PAGE).build())
}

/// Runs that elsewhere: a test that waits for ever would not fail.
fn in_time(act: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        act();
        done.send(()).expect("somebody listens");
    });
    is_done.recv_timeout(PATIENCE).expect("nobody waits for ever");
    worker.join().expect("no panic");
}

fn panics<T>(act: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
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
            let allowance = Allowance::new(64 * PAGE);
            let arena = DeviceArena::builder(&device)
                .limit(32 * PAGE)
                .growing()
                .piece_bytes(4 * PAGE)
                .within(&allowance)
                .build()
                .expect("an arena");
            let allocate = |pages: u64| arena.allocate(pages * PAGE, &stream).expect("memory");
            let (hole, wall) = (allocate(8), allocate(8));
            drop(hole);
            let before = (arena.reserved_bytes(), arena.used(), allowance.taken(), device.taken());
            device.panic_in(call, nth);
            let has_panicked = panics(|| arena.allocate(24 * PAGE, &stream).map(drop));
            assert_eq!(has_panicked, !device.forget_panic(), "{call} {nth}");
            if has_panicked {
                panicked += 1;
                let after = (arena.reserved_bytes(), arena.used(), allowance.taken(), device.taken());
                assert_eq!(after, before, "{call} {nth}");
            }
            in_time(move || {
                let all = arena.allocate(24 * PAGE, &stream).expect("as if there had been no panic");
                assert_eq!((arena.used(), allowance.taken()), (32 * PAGE, 32 * PAGE), "{call} {nth}");
                drop((all, wall));
                arena.release(0).expect("no fault");
                assert_eq!((allowance.taken(), device.taken()), (0, 0), "{call} {nth}");
            });
        }
    }
    assert!(panicked > 8, "the calls are made: {panicked}");
}

/// An arena of small pieces that grows within an allowance, and blocks of it with holes between them: one is
/// stitched.
struct Growing {
    device: Device,
    stream: HostStream,
    arena: DeviceArena<Device>,
    allowance: Allowance,
    blocks: Vec<(u8, ArenaBuffer<Device>)>,
}

const LIMIT: u64 = 32 * PAGE;

fn growing() -> Option<Growing> {
    let builder = HostDevice::builder().kind(DeviceKind::Discrete).memory_limit(1 << 26).granularity(PAGE);
    let device = AuditDevice::new(builder.work_latency(Duration::from_micros(200)).build());
    device.virtual_memory()?;
    let stream = device.create_stream().expect("a stream");
    let allowance = Allowance::new(LIMIT);
    let builder = DeviceArena::builder(&device).limit(LIMIT).growing().piece_bytes(2 * PAGE);
    let arena = builder.within(&allowance).build().expect("an arena");
    let allocate = |value: u8, pages: u64| {
        let mut block = arena.allocate(pages * PAGE, &stream).expect("memory");
        block.write(&vec![value; (pages * PAGE) as usize], &stream).expect("no fault");
        (value, block)
    };
    let mut blocks: Vec<_> = (0..8).map(|value| allocate(value, 4)).collect();
    (0..3).for_each(|place| drop(blocks.remove(2 * place)));
    blocks.push(allocate(9, 6));
    blocks.push(allocate(10, 4));
    blocks.remove(1);
    Some(Growing { device, stream, arena, allowance, blocks })
}

impl Growing {
    /// The books agree, every block has its bytes, and all of the memory serves again and goes back.
    fn check(mut self, what: &str) {
        let Self { device, stream, arena, allowance, .. } = &self;
        assert_eq!(allowance.taken(), arena.reserved_bytes(), "{what}");
        // Backups go back in a thread of their own.
        while device.taken() != arena.reserved_bytes() {
            thread::yield_now();
        }
        for (value, block) in &self.blocks {
            let mut bytes = vec![0; block.len() as usize];
            block.read(&mut bytes, stream).expect("no fault");
            assert!(bytes.iter().all(|byte| byte == value), "{what}: the block of {value}");
        }
        let free = LIMIT - arena.used();
        assert!(arena.allocate(free, stream).is_ok(), "{what}: all of the rest is there");
        self.blocks.clear();
        assert!(self.arena.allocate(LIMIT, &self.stream).is_ok(), "{what}: all of it is there");
        self.arena.release(0).expect("no fault");
        assert_eq!((self.allowance.taken(), self.device.taken()), (0, 0), "{what}");
    }
}

/// Each of those calls panics in turn while `act` runs; then, without a panic, what it left is checked.
fn in_each_call(
    calls: &[&'static str],
    prepare: fn(&Growing),
    act: fn(&Growing) -> Result<(), Error>,
    check: fn(Growing, &str),
) {
    let mut panicked = 0;
    for &call in calls {
        for nth in 0..40 {
            let Some(growing) = growing() else { return };
            prepare(&growing);
            growing.device.panic_in(call, nth);
            let has_panicked = panics(|| act(&growing));
            assert_eq!(has_panicked, !growing.device.forget_panic(), "{call} {nth}");
            if !has_panicked {
                assert!(nth > 0, "{call} is called");
                break;
            }
            panicked += 1;
            in_time(move || {
                act(&growing).expect("no fault");
                check(growing, &format!("{call} {nth}"));
            });
        }
    }
    assert!(panicked >= calls.len(), "{panicked}");
}

#[test]
fn a_panic_in_a_release_sets_nothing_apart() {
    let release = |growing: &Growing| growing.arena.release(0).map(drop);
    in_each_call(&["synchronize", "unmap", "drop"], |_| {}, release, Growing::check);
}

#[test]
fn a_panic_while_an_arena_falls_asleep_loses_neither_memory_nor_contents() {
    let sleep = |growing: &Growing| growing.arena.sleep(Offload::Pinned).map(drop);
    in_each_call(
        &["synchronize", "copy", "unmap", "drop"],
        |_| {},
        sleep,
        |growing, what| {
            assert_eq!((growing.arena.state(), growing.allowance.taken()), (SleepState::Asleep, 0), "{what}");
            growing.arena.wake().map(drop).expect("no fault");
            growing.check(what);
        },
    );
}

#[test]
fn a_panic_while_an_arena_wakes_loses_neither_memory_nor_contents() {
    let sleep = |growing: &Growing| growing.arena.sleep(Offload::Pinned).map(drop).expect("no fault");
    let wake = |growing: &Growing| growing.arena.wake().map(drop);
    in_each_call(
        &["synchronize", "copy", "create_physical", "map", "set_access"],
        sleep,
        wake,
        Growing::check,
    );
}

/// What is left of a wake that neither went on nor back is unmapped, and released, by a reset.
#[test]
fn a_panic_in_the_reset_of_an_arena_asleep_leaves_it_asleep_or_empty() {
    let prepare = |growing: &Growing| {
        growing.arena.sleep(Offload::Discard).map(drop).expect("no fault");
        let faults = growing.device.inner().faults();
        faults.fail_nth(Call::Map, 4);
        faults.fail_nth(Call::Unmap, 1);
        assert!(growing.arena.wake().is_err());
        faults.clear();
        assert!(growing.device.taken() > 0, "asleep with memory");
    };
    let reset = |growing: &Growing| growing.arena.reset();
    in_each_call(&["unmap", "drop"], prepare, reset, |mut growing, what| {
        growing.blocks.clear();
        assert_eq!((growing.arena.state(), growing.arena.used()), (SleepState::Awake, 0), "{what}");
        growing.check(what);
    });
}
