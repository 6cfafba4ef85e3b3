//! A device whose calls panic: the panic goes on, the books are right, nobody waits for ever, and no byte is lost.

mod audit;

use audit::AuditDevice;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::{Allowance, Backend, DeviceArena};

type Device = AuditDevice<HostDevice>;

const PAGE: u64 = 4096;

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn device() -> Device {
    AuditDevice::new(HostDevice::builder().capacity(1 << 26).granularity(PAGE).build())
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
            block.write(&user, &bytes).expect("no fault");
            drop(before);
            let place = block.offset().expect("it is live");
            device.panic_in(call, nth);
            let has_panicked = panics(|| arena.compact(&own, u64::MAX, |_| {}));
            assert_eq!(has_panicked, !device.forget_panic(), "{call} {nth}");
            panicked += u64::from(has_panicked);
            in_time(move || {
                // Only behind the copies is it at its new place when something panics.
                let is_moved = block.offset().is_ok_and(|now| now != place);
                assert!(is_moved || has_panicked, "{call} {nth}");
                let mut read = vec![0; BYTES as usize];
                block.read(&user, &mut read).expect("no fault");
                assert!(read == bytes, "{call} {nth}: its bytes");
                let report = arena.compact(&own, u64::MAX, |_| {}).expect("no fault");
                assert_eq!(report.moved_blocks, u64::from(!is_moved), "{call} {nth}");
                block.read(&user, &mut read).expect("no fault");
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
            let allowance = Arc::new(Allowance::new(64 * PAGE));
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
