//! A growing arena on a device whose calls panic. Tests of other crates include this file.

use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::host::{DeviceKind, HostDevice, HostStream};
use vrampool::{Backend, Ledger};
use vrampool_test_support::{AuditDevice, until};

pub(crate) type Device = AuditDevice<HostDevice>;

pub(crate) const PAGE: u64 = 4096;

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn device() -> Device {
    AuditDevice::new(HostDevice::builder().memory_limit(1 << 26).granularity(PAGE).build())
}

/// Runs that elsewhere: a test that waits for ever would not fail.
pub(crate) fn in_time(act: impl FnOnce() + Send + 'static) {
    let (done, is_done) = channel();
    let worker = thread::spawn(move || {
        act();
        done.send(()).expect("the receiver waits");
    });
    is_done.recv_timeout(PATIENCE).expect("no wait is endless");
    worker.join().expect("no panic");
}

pub(crate) fn panics<T>(act: impl FnOnce() -> T) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// An arena of small pieces that grows within an ledger, and blocks of it with holes between them: one is
/// stitched.
pub(crate) struct Growing<S> {
    pub(crate) device: Device,
    stream: HostStream,
    pub(crate) arena: DeviceArena<Device>,
    pub(crate) ledger: Ledger,
    pub(crate) blocks: Vec<(u8, ArenaBuffer<Device>)>,
    /// Of the test.
    pub(crate) state: S,
}

const LIMIT: u64 = 32 * PAGE;

/// A test's subject that is made from an arena.
pub(crate) trait FromArena: Send + 'static {
    fn from_arena(arena: &DeviceArena<Device>) -> Self;
}

fn growing<S: FromArena>() -> Option<Growing<S>> {
    let builder = HostDevice::builder().kind(DeviceKind::Discrete).memory_limit(1 << 26).granularity(PAGE);
    let device = AuditDevice::new(builder.work_latency(Duration::from_micros(200)).build());
    device.virtual_memory()?;
    let stream = device.create_stream().expect("a stream");
    let ledger = Ledger::new(LIMIT);
    let builder = DeviceArena::builder(&device).limit(LIMIT).growing().piece_bytes(2 * PAGE);
    let arena = builder.within(&ledger).build().expect("an arena");
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
    let state = S::from_arena(&arena);
    Some(Growing { device, stream, arena, ledger, blocks, state })
}

impl<S> Growing<S> {
    /// The books agree, every block has its bytes, and all of the memory serves again and is released.
    pub(crate) fn check(mut self, what: &str) {
        let Self { device, stream, arena, ledger, .. } = &self;
        assert_eq!(ledger.charged(), arena.reserved_bytes(), "{what}");
        // Backups are released by a separate thread.
        until(|| device.taken() == arena.reserved_bytes());
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
        assert_eq!((self.ledger.charged(), self.device.taken()), (0, 0), "{what}");
    }
}

/// Each of those calls panics in turn while `act` runs; then, without a panic, what it left is checked.
pub(crate) fn in_each_call<S: FromArena, E: Error + 'static>(
    calls: &[&'static str],
    prepare: fn(&Growing<S>),
    act: fn(&Growing<S>) -> Result<(), E>,
    check: fn(Growing<S>, &str),
) {
    let mut panicked = 0;
    for &call in calls {
        for nth in 0..40 {
            let Some(growing) = growing::<S>() else { return };
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
