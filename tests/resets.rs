//! An arena forgets its blocks while a pool over it keeps some idle: no request gets one of those, no stale
//! buffer has an address, and nothing keeps a range that was replaced.

use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;
use vrampool::arena::{Allowance, DeviceArena};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::sleep::Offload;
use vrampool::{Backend, Buffer, Error, Pool, SizeClasses, Source};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

const KIB: u64 = 1024;
const RANGE: u64 = 256 * KIB;
const PAGE: u64 = 4 * KIB;
const PAGES: u64 = 8 * PAGE;

struct Scene {
    device: Device,
    stream: HostStream,
    arena: DeviceArena<Device>,
    pool: Pool<Device>,
}

/// A pool over an arena; one that grows, if the device can.
fn scene(is_growing: bool, magazine_bytes: u64) -> Option<Scene> {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 24).granularity(4 * KIB).build());
    if is_growing && device.virtual_memory().is_none() {
        return None;
    }
    let stream = device.create_stream().expect("a stream");
    let builder = DeviceArena::builder(&device).limit(RANGE);
    let arena = if is_growing { builder.growing() } else { builder }.build().expect("an arena");
    let source = if is_growing { Source::Virtual } else { Source::Arena };
    let pool = Pool::builder(&device)
        .source(source)
        .arena(&arena)
        .size_classes(SizeClasses::Multiple(KIB))
        .cached_class(16 * KIB)
        .magazine_bytes(magazine_bytes)
        .build()
        .expect("a pool");
    Some(Scene { device, stream, arena, pool })
}

fn scenes() -> impl Iterator<Item = Scene> {
    [(false, 0), (false, 64 * KIB), (true, 0), (true, 64 * KIB)]
        .into_iter()
        .filter_map(|(is_growing, magazine_bytes)| scene(is_growing, magazine_bytes))
}

impl Scene {
    fn buffer(&self, kib: u64) -> Buffer<Device> {
        self.pool.allocate(kib * KIB, &self.stream).expect("memory")
    }

    /// Each can be written and read.
    fn check(&self, buffers: &mut [Buffer<Device>]) {
        for (value, buffer) in (0..).zip(&mut *buffers) {
            buffer.write(&vec![value; buffer.len() as usize], &self.stream).expect("it is live");
        }
        for (value, buffer) in (0..).zip(&*buffers) {
            let mut bytes = vec![0; buffer.len() as usize];
            buffer.read(&mut bytes, &self.stream).expect("it is live");
            assert!(bytes.iter().all(|&byte| byte == value), "{buffer:?} shares bytes with another one");
        }
    }
}

#[test]
fn a_request_after_a_reset_gets_no_block_of_before() {
    for scene in scenes() {
        for _ in 0..3 {
            drop([1, 1, 1, 4, 8].map(|kib| scene.buffer(kib)));
            scene.arena.reset().expect("no region exists");
            assert_eq!(scene.pool.stats().idle_bytes, 0);
            for _ in 0..2 {
                scene.check(&mut [1, 1, 1, 4, 8].map(|kib| scene.buffer(kib)));
            }
        }
        let hits = scene.pool.stats().hits;
        drop(scene.buffer(1));
        assert_eq!(scene.pool.stats().hits, hits + 1, "what was made since is kept");
    }
}

/// Buffers that are out at a reset come back afterwards: they are kept nowhere, and then all is as before.
#[test]
fn what_is_out_at_a_reset_is_not_kept_when_it_comes_back() {
    for scene in scenes() {
        let stale: Vec<_> = (0..6).map(|_| scene.buffer(1)).collect();
        scene.arena.reset().expect("no region exists");
        assert!(stale.iter().all(|buffer| buffer.address().is_none()), "nobody's address");
        assert!(stale.iter().all(|buffer| matches!(buffer.on(&scene.stream), Err(Error::Arena(_)))));
        let mut fresh: Vec<_> = (0..3).map(|_| scene.buffer(1)).collect();
        scene.check(&mut fresh);
        for buffer in stale {
            drop(buffer);
            let mut next = [scene.buffer(1)];
            scene.check(&mut next);
            scene.check(&mut fresh);
        }
        drop(fresh);
        let before = scene.pool.stats();
        assert_eq!((before.live_buffers, before.live_bytes), (0, 0));
        for _ in 0..5 {
            drop(scene.buffer(1));
        }
        assert_eq!(scene.pool.stats().hits, before.hits + 5, "kept again");
        scene.pool.trim().expect("a trim");
        assert_eq!((scene.pool.stats().held_bytes, scene.arena.used()), (0, 0));
    }
}

#[test]
fn an_idle_block_does_not_keep_a_range_that_was_replaced() {
    for magazine_bytes in [0, 64 * KIB] {
        let Some(scene) = scene(false, magazine_bytes) else { continue };
        drop(scene.buffer(1));
        scene.arena.resize(RANGE / 2).expect("memory");
        assert_eq!(scene.device.taken(), RANGE / 2);
        scene.check(&mut [1, 1, 4].map(|kib| scene.buffer(kib)));
    }
}

/// How often another arena was refused [`PAGES`] of memory: once behind each release of `act`.
fn refusals(device: &Device, other: &DeviceArena<Device>, stream: &HostStream, act: impl FnOnce()) -> u64 {
    let refused = Arc::new(AtomicU64::new(0));
    device.on_drop({
        let (refused, other, stream) = (Arc::clone(&refused), other.clone(), stream.clone());
        move || _ = refused.fetch_add(u64::from(other.allocate(PAGES, &stream).is_err()), Relaxed)
    });
    act();
    device.forget_hook();
    refused.load(Relaxed)
}

/// An arena falls asleep, does not wake, and is reset, where a wake that could be neither finished nor taken
/// back left pages: until the last page is released no other arena takes their part of the allowance.
#[test]
fn an_allowance_is_there_again_behind_the_pages_of_an_arena_asleep() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 24).granularity(PAGE).build());
    if device.virtual_memory().is_none() {
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let allowance = Allowance::new(PAGES);
    let arena = || {
        let builder = DeviceArena::builder(&device).growing().limit(RANGE).piece_bytes(PAGE);
        builder.within(&allowance).build().expect("an arena")
    };
    let (arena, other) = (arena(), arena());
    let block = arena.allocate(PAGES, &stream).expect("memory");
    let faults = device.inner().faults();
    let sleep = || _ = arena.sleep(Offload::Discard).expect("no fault");
    assert_eq!(refusals(&device, &other, &stream, sleep), 8, "one for each page");
    let wake = || {
        faults.fail_nth(Call::Map, 3);
        assert!(arena.wake().is_err());
        faults.clear();
    };
    assert_eq!(refusals(&device, &other, &stream, wake), 8, "one for each page");
    assert_eq!((device.taken(), allowance.taken()), (0, 0));
    faults.fail_nth(Call::Map, 3);
    faults.fail_nth(Call::Unmap, 1);
    assert!(arena.wake().is_err());
    faults.clear();
    assert_eq!((device.taken(), allowance.taken()), (PAGES, PAGES), "asleep with memory");
    let reset = || arena.reset().expect("no fault");
    assert_eq!(refusals(&device, &other, &stream, reset), 8, "one for each page");
    assert_eq!((device.taken(), device.peak(), allowance.taken()), (0, PAGES, 0));
    assert!(other.allocate(PAGES, &stream).is_ok());
    drop(block);
}

/// What another thread keeps to itself it gives up at its next call.
#[test]
fn another_threads_magazines_hold_nothing_of_before() {
    for scene in scenes() {
        let ((told, tell), (done, is_done)) = (channel::<()>(), channel::<()>());
        let scene = Arc::new(scene);
        let other = thread::spawn({
            let scene = Arc::clone(&scene);
            move || {
                drop([1, 1, 1].map(|kib| scene.buffer(kib)));
                done.send(()).expect("somebody listens");
                tell.recv().expect("somebody says so");
                scene.check(&mut [1, 1, 1].map(|kib| scene.buffer(kib)));
            }
        });
        is_done.recv().expect("it works");
        scene.arena.reset().expect("no region exists");
        told.send(()).expect("it listens");
        // A thread's end gives up what it keeps, which a scope's end does not wait for.
        other.join().expect("no panic");
        scene.pool.trim().expect("a trim");
        assert_eq!((scene.pool.stats().held_bytes, scene.arena.used()), (0, 0));
    }
}

/// What a thread kept when it ended, and a reset had forgotten, goes with the next request that a source
/// serves.
#[test]
fn what_an_ended_thread_kept_of_before_goes_with_the_next_miss() {
    let Some(scene) = scene(false, 64 * KIB) else { return };
    let ((told, tell), (done, is_done)) = (channel::<()>(), channel::<()>());
    let scene = Arc::new(scene);
    let other = thread::spawn({
        let scene = Arc::clone(&scene);
        move || {
            drop(scene.buffer(1));
            done.send(()).expect("somebody listens");
            tell.recv().expect("somebody says so");
        }
    });
    is_done.recv().expect("it works");
    scene.arena.resize(RANGE / 2).expect("memory");
    told.send(()).expect("it listens");
    other.join().expect("no panic");
    drop(scene.buffer(20));
    assert_eq!(scene.device.taken(), RANGE / 2, "the previous range is kept");
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(u64),
    Drop(usize),
    Reset,
    Resize(u64),
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1..20u64).prop_map(Step::Allocate),
        6 => any::<usize>().prop_map(Step::Drop),
        1 => Just(Step::Reset),
        1 => (1..4u64).prop_map(|quarters| Step::Resize(quarters * RANGE / 4)),
        1 => Just(Step::Trim),
    ]
}

proptest! {
    #[test]
    fn what_is_live_is_the_borrowers_own_whatever_is_forgotten(
        which in 0..4usize,
        steps in prop::collection::vec(step(), 0..60),
    ) {
        let Some(scene) = scenes().nth(which) else { return Ok(()) };
        let (mut live, mut stale) = (Vec::new(), Vec::new());
        for step in steps {
            match step {
                Step::Allocate(kib) => live.extend(scene.pool.allocate(kib * KIB, &scene.stream)),
                Step::Drop(which) if !live.is_empty() && which % 2 == 0 => {
                    live.swap_remove(which / 2 % live.len());
                }
                Step::Drop(which) if !stale.is_empty() => {
                    stale.swap_remove(which / 2 % stale.len());
                }
                Step::Drop(_) => {}
                Step::Reset => {
                    scene.arena.reset().expect("no region exists");
                    stale.append(&mut live);
                }
                Step::Resize(bytes) if !scene.arena.is_growing() => {
                    scene.arena.resize(bytes).expect("memory");
                    stale.append(&mut live);
                }
                Step::Resize(_) => {}
                Step::Trim => drop(scene.pool.trim().expect("a trim")),
            }
            scene.check(&mut live);
            prop_assert!(stale.iter().all(|buffer: &Buffer<Device>| buffer.address().is_none()));
            let stats = scene.pool.stats();
            prop_assert_eq!(stats.live_buffers, (live.len() + stale.len()) as u64);
            prop_assert!(stats.held_bytes >= stats.live_bytes);
        }
        drop((live, stale));
        scene.pool.trim().expect("a trim");
        prop_assert_eq!((scene.pool.stats().held_bytes, scene.arena.used()), (0, 0));
        let hits = scene.pool.stats().hits;
        drop(scene.buffer(1));
        drop(scene.buffer(1));
        prop_assert_eq!(scene.pool.stats().hits, hits + 1);
    }
}
