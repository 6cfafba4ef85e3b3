//! The caps hold at every instant, under any number of threads and whatever call of the driver fails; bytes
//! are conserved and no memory is handed out twice.

mod twin;

use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use twin::{Caps, Twin};
use vrampool::fitted::FittedClasses;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, Buffer, Pool, PoolStats, SizeClasses, Source};
use vrampool_test_support::{AuditDevice, has_virtual_memory};

type Device = AuditDevice<HostDevice>;
type Stream = <HostDevice as Backend>::Stream;

const KIB: u64 = 1024;

#[derive(Debug, Clone)]
enum Operation {
    /// Allocate so many bytes on one of the streams.
    Allocate {
        bytes: u64,
        stream: usize,
    },
    /// Drop one of this thread's buffers.
    Drop {
        which: usize,
    },
    /// Hand one of this thread's buffers to whoever takes it next.
    HandOver {
        which: usize,
    },
    /// Take a buffer that another thread handed over, and drop it.
    TakeOver,
    /// Use one of this thread's buffers on a stream.
    Use {
        which: usize,
        stream: usize,
    },
    Trim {
        to: u64,
    },
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..2 * KIB,
        3 => 0..70 * KIB,
        2 => (10u32..19, 0u64..3).prop_map(|(shift, more)| (1 << shift) + more - 1),
        1 => 1024 * KIB..3 * 1024 * KIB,
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (bytes(), 0..4usize).prop_map(|(bytes, stream)| Operation::Allocate { bytes, stream }),
        5 => any::<usize>().prop_map(|which| Operation::Drop { which }),
        1 => any::<usize>().prop_map(|which| Operation::HandOver { which }),
        1 => Just(Operation::TakeOver),
        1 => (any::<usize>(), 0..4usize).prop_map(|(which, stream)| Operation::Use { which, stream }),
        1 => (0..300 * KIB).prop_map(|to| Operation::Trim { to }),
    ]
}

fn caps() -> impl Strategy<Value = Caps> {
    let bytes = || prop_oneof![Just(0), 0..8 * KIB, 0..300 * KIB, 0..8000 * KIB, Just(u64::MAX)];
    let count = prop_oneof![Just(0), 1..5u64, Just(u64::MAX)];
    (bytes(), count, bytes(), bytes()).prop_map(|(max_cached, max_per_bucket, limit, budget)| Caps {
        max_cached,
        max_per_bucket,
        limit,
        budget,
    })
}

fn classes() -> impl Strategy<Value = SizeClasses> {
    prop_oneof![
        Just(SizeClasses::Fixed),
        Just(SizeClasses::PowerOfTwo),
        Just(SizeClasses::Geometric { per_doubling: 4, from: 2 * KIB }),
        Just(SizeClasses::Multiple(8 * KIB)),
        Just(SizeClasses::Exact(1)),
        Just(SizeClasses::Tight),
        Just(SizeClasses::Fitted(FittedClasses::new([700, 3000, 9000, 40_000]).expect("sizes"))),
    ]
}

/// What each thread may keep to itself.
fn magazine_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..8 * KIB, 0..300 * KIB, Just(1 << 30)]
}

struct Scene {
    device: Device,
    streams: Vec<Stream>,
    pool: Pool<Device>,
    caps: Caps,
}

/// Those that the host device has on this system.
fn sources() -> Vec<Source> {
    let has_virtual_memory = has_virtual_memory(&HostDevice::builder().memory_limit(1).build());
    Source::ALL.iter().copied().filter(|&source| has_virtual_memory || source != Source::Virtual).collect()
}

/// With threads that keep nothing to themselves, as the twin does.
fn scene(classes: SizeClasses, caps: Caps) -> Scene {
    scene_on(Source::Direct, classes, caps, 0)
}

fn scene_on(source: Source, classes: SizeClasses, caps: Caps, magazine_bytes: u64) -> Scene {
    // An arena of fixed size takes all of it at once, and not every system promises more memory than it has.
    let capacity = if source == Source::Arena && !cfg!(target_os = "linux") { 1 << 28 } else { 1 << 40 };
    let device = AuditDevice::new(HostDevice::builder().memory_limit(capacity).granularity(4 * KIB).build());
    let streams = (0..4).map(|_| device.create_stream().expect("a stream")).collect();
    let builder = Pool::builder(&device).size_classes(classes).max_cached_bytes(caps.max_cached);
    let builder = builder.max_buffers_per_bucket(caps.max_per_bucket).limit(caps.limit).budget(caps.budget);
    let pool = builder.source(source).magazine_bytes(magazine_bytes).build().expect("a pool");
    Scene { device, streams, pool, caps }
}

/// What must be true of every look at the pool.
fn check(stats: &PoolStats, caps: &Caps, exact: bool) {
    assert!(stats.idle_bytes <= caps.max_cached, "{stats:?}");
    assert!(stats.peak.idle_bytes <= caps.max_cached, "{stats:?}");
    assert!(stats.held_bytes <= caps.limit && stats.peak.held_bytes <= caps.limit, "{stats:?}");
    assert!(stats.live_bytes + stats.idle_bytes <= stats.held_bytes, "{stats:?}");
    assert!(stats.requested_bytes <= stats.live_bytes, "{stats:?}");
    if exact {
        // One bucket is one class, so the count cap can be read off.
        assert!(stats.buckets.iter().all(|bucket| bucket.idle_buffers <= caps.max_per_bucket), "{stats:?}");
    }
    assert_eq!(stats.idle_bytes, stats.buckets.iter().map(|bucket| bucket.idle_bytes).sum::<u64>());
}

/// Runs `operations` of one thread. Every buffer's address must be nobody else's while it is live. (Buffers
/// of an arena share a memory and move; what is in them is checked elsewhere.)
fn run(
    scene: &Scene,
    operations: &[Operation],
    addresses: &Mutex<HashSet<u64>>,
    handed_over: &Mutex<Vec<Buffer<Device>>>,
) {
    let mut mine: Vec<Buffer<Device>> = Vec::new();
    let address = |buffer: &Buffer<Device>| {
        vrampool::Memory::address(&*buffer.memory()).expect("the host has addresses")
    };
    let give_back = |buffer: Buffer<Device>| {
        let was_there = addresses.lock().expect("no panic").remove(&address(&buffer));
        assert!(was_there || scene.pool.arena().is_some());
        drop(buffer);
    };
    for operation in operations {
        match *operation {
            Operation::Allocate { bytes, stream } => {
                if let Ok(buffer) = scene.pool.allocate(bytes, &scene.streams[stream]) {
                    assert!(buffer.len() == bytes && buffer.capacity() >= bytes);
                    let is_new = addresses.lock().expect("no panic").insert(address(&buffer));
                    assert!(is_new || scene.pool.arena().is_some(), "handed out twice");
                    mine.push(buffer);
                }
            }
            Operation::Drop { which } if !mine.is_empty() => {
                let index = which % mine.len();
                give_back(mine.swap_remove(index));
            }
            Operation::HandOver { which } if !mine.is_empty() => {
                let index = which % mine.len();
                handed_over.lock().expect("no panic").push(mine.swap_remove(index));
            }
            Operation::TakeOver => {
                let taken = handed_over.lock().expect("no panic").pop();
                taken.into_iter().for_each(give_back);
            }
            Operation::Use { which, stream } if !mine.is_empty() => {
                let index = which % mine.len();
                // It may fail where faults are injected; then nothing was recorded and nothing is lost.
                let _ = mine[index].used_on(&scene.streams[stream]);
            }
            Operation::Trim { to } => {
                // As above: what the device does not take back stays the pool's.
                let _ = scene.pool.trim_to(to);
            }
            _ => {}
        }
    }
    mine.into_iter().for_each(give_back);
}

/// Runs each list on a thread of its own while others look, and checks what is left.
fn run_threads(scene: Scene, lists: &[Vec<Operation>], one_bucket_a_class: bool) {
    let (addresses, handed_over) = (Mutex::default(), Mutex::default());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| {
            let mut looks = 0u32;
            while !done.load(Ordering::Acquire) || looks == 0 {
                check(&scene.pool.stats(), &scene.caps, one_bucket_a_class);
                looks += 1;
            }
        });
        let workers: Vec<_> =
            lists.iter().map(|list| scope.spawn(|| run(&scene, list, &addresses, &handed_over))).collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Release);
        observer.join().expect("every look was right");
        outcomes.into_iter().for_each(|outcome| outcome.expect("no thread failed"));
    });
    handed_over.lock().expect("no panic").clear();
    // From below: never more than the limit was taken, and what is taken is what the pool says it holds.
    assert!(scene.device.peak() <= scene.caps.limit, "{} taken of {}", scene.device.peak(), scene.caps.limit);
    let stats = scene.pool.stats();
    check(&stats, &scene.caps, one_bucket_a_class);
    assert_eq!((stats.live_bytes, stats.requested_bytes, stats.live_buffers), (0, 0, 0));
    assert_eq!((stats.held_bytes, stats.source.in_transit_bytes), (stats.idle_bytes, 0));
    match scene.pool.arena() {
        None => {
            assert_eq!(scene.device.taken(), stats.held_bytes);
            assert_eq!(stats.source.frees, scene.device.frees());
        }
        Some(arena) if arena.is_growing() => assert_eq!(scene.device.taken(), arena.reserved_bytes()),
        Some(_) => {}
    }
    // What is still to fail would keep physical memory.
    scene.device.inner().faults().clear();
    scene.pool.trim().expect("a trim");
    assert_eq!(scene.pool.stats().held_bytes, 0);
    match scene.pool.arena() {
        Some(arena) if !arena.is_growing() => assert_eq!(arena.used(), 0),
        _ => assert_eq!(scene.device.taken(), 0),
    }
    let device = scene.device.clone();
    drop((scene, handed_over));
    assert_eq!(device.taken(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Several threads take turns, so that the twin sees the pool's own order of operations.
    #[test]
    fn pool_and_twin_agree_in_every_figure(
        classes in classes(),
        caps in caps(),
        lists in prop::collection::vec(prop::collection::vec(operation(), 0..80), 1..4),
    ) {
        let scene = scene(classes.clone(), caps);
        let turn = Mutex::new(Twin::new(classes, caps));
        std::thread::scope(|scope| {
            for list in &lists {
                let (scene, turn) = (&scene, &turn);
                scope.spawn(move || {
                    // One stream: which block of a bucket is taken does not matter to the twin, and no wait
                    // is needed.
                    let stream = &scene.streams[0];
                    let mut mine = Vec::new();
                    for operation in list {
                        let mut twin = turn.lock().expect("no panic");
                        match *operation {
                            Operation::Allocate { bytes, .. } => {
                                let expected = twin.allocate(bytes);
                                let got = scene.pool.allocate(bytes, stream);
                                assert_eq!(got.as_ref().ok().map(Buffer::capacity), expected, "{got:?}");
                                mine.extend(got);
                            }
                            Operation::Drop { which } if !mine.is_empty() => {
                                let buffer = mine.swap_remove(which % mine.len());
                                twin.release(buffer.capacity(), buffer.len());
                                drop(buffer);
                            }
                            Operation::Trim { to } => {
                                twin.trim_to(to);
                                // As above: what the device does not take back stays the pool's.
                let _ = scene.pool.trim_to(to);
                            }
                            _ => {}
                        }
                        twin.compare(&scene.pool.stats());
                        assert_eq!(scene.device.taken(), scene.pool.stats().held_bytes);
                    }
                    let mut twin = turn.lock().expect("no panic");
                    for buffer in mine {
                        twin.release(buffer.capacity(), buffer.len());
                        drop(buffer);
                    }
                    twin.compare(&scene.pool.stats());
                });
            }
        });
        prop_assert!(scene.device.peak() <= caps.limit);
    }

    /// What a thread keeps to itself changes nothing that can be seen, where no cap is reached: but for the
    /// peak of what is cached, which counts what was leased.
    #[test]
    fn one_threads_magazines_and_the_twin_agree(
        classes in classes(),
        magazine_bytes in magazine_bytes(),
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let caps = Caps { max_cached: u64::MAX, max_per_bucket: u64::MAX, limit: u64::MAX, budget: u64::MAX };
        let scene = scene_on(Source::Direct, classes.clone(), caps, magazine_bytes);
        let (mut twin, mut mine) = (Twin::new(classes, caps), Vec::new());
        for (step, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Allocate { bytes, .. } => {
                    let expected = twin.allocate(bytes);
                    let got = scene.pool.allocate(bytes, &scene.streams[0]).expect("no cap");
                    prop_assert_eq!(Some(got.capacity()), expected);
                    mine.push(got);
                }
                Operation::Drop { which } if !mine.is_empty() => {
                    let buffer = mine.swap_remove(which % mine.len());
                    twin.release(buffer.capacity(), buffer.len());
                    drop(buffer);
                }
                Operation::Trim { .. } => {
                    twin.trim_to(0);
                    scene.pool.trim().expect("a trim");
                }
                _ => {}
            }
            // Not at each step: a look makes the thread tell what it did.
            if step % 8 == 0 {
                let stats = scene.pool.stats();
                twin.compare_with_magazines(&stats);
                prop_assert_eq!(scene.device.taken(), stats.held_bytes);
            }
        }
        twin.compare_with_magazines(&scene.pool.stats());
    }

    /// Buffers of few sizes that come back in the reverse order, as most do, and nobody looks before the end:
    /// so all that the thread tells then, peaks too, is from its magazines.
    #[test]
    fn nested_buffers_and_the_twin_agree(
        sizes in prop::collection::vec((prop::sample::select(&[1000u64, 3000, 4000, 60_000][..]), 0..6u32), 0..200),
        magazine_bytes in prop::sample::select(&[5 * KIB, 9 * KIB, 70 * KIB, 1 << 30][..]),
    ) {
        let caps = Caps { max_cached: u64::MAX, max_per_bucket: u64::MAX, limit: u64::MAX, budget: u64::MAX };
        let scene = scene_on(Source::Direct, SizeClasses::Fixed, caps, magazine_bytes);
        let (mut twin, mut mine) = (Twin::new(SizeClasses::Fixed, caps), Vec::new());
        for (bytes, drops) in sizes {
            let got = scene.pool.allocate(bytes, &scene.streams[0]).expect("no cap");
            prop_assert_eq!(Some(got.capacity()), twin.allocate(bytes));
            mine.push(got);
            for buffer in mine.drain(mine.len().saturating_sub(drops as usize)..).rev() {
                twin.release(buffer.capacity(), buffer.len());
            }
        }
        twin.compare_with_magazines(&scene.pool.stats());
    }

    /// Threads run freely; every look at the pool, from above and from below, must be right.
    #[test]
    fn caps_hold_at_every_instant_under_threads(
        classes in classes(),
        caps in caps(),
        source in prop::sample::select(sources()),
        magazine_bytes in magazine_bytes(),
        lists in prop::collection::vec(prop::collection::vec(operation(), 50..200), 2..5),
    ) {
        // An arena of nothing cannot be.
        let caps = Caps { limit: caps.limit.max(4 * KIB), ..caps };
        let one_bucket_a_class = !matches!(classes, SizeClasses::Multiple(_) | SizeClasses::Exact(_) | SizeClasses::Tight);
        run_threads(scene_on(source, classes, caps, magazine_bytes), &lists, one_bucket_a_class);
    }

    /// As above, and calls of the driver fail: any kind, the n-th, out of memory or otherwise.
    #[test]
    fn nothing_is_lost_when_calls_of_the_driver_fail(
        caps in caps(),
        faults in prop::collection::vec((0..7usize, 1..60u64, any::<bool>()), 1..30),
        capacity in prop_oneof![Just(1u64 << 40), 0..4000 * KIB],
        source in prop::sample::select(sources()),
        magazine_bytes in magazine_bytes(),
        lists in prop::collection::vec(prop::collection::vec(operation(), 50..200), 1..4),
    ) {
        let caps = Caps { limit: caps.limit.max(4 * KIB), ..caps };
        let scene = scene_on(source, SizeClasses::Fixed, caps, magazine_bytes);
        scene.device.inner().set_memory_limit(capacity);
        for (call, n, out_of_memory) in faults {
            let mapping = [Call::CreatePhysical, Call::Map, Call::SetAccess, Call::Unmap];
            let call = [Call::Allocate, Call::Record, Call::Wait].into_iter().chain(mapping).nth(call).expect("one");
            if out_of_memory && matches!(call, Call::Allocate | Call::CreatePhysical) {
                let error = vrampool::BackendError::out_of_memory(1, Some(0));
                scene.device.inner().faults().fail_nth_with(call, n, error);
            } else {
                scene.device.inner().faults().fail_nth(call, n);
            }
        }
        run_threads(scene, &lists, true);
    }
}

/// Every call of the driver that one fixed history makes, failed once: each in turn.
#[test]
fn every_single_call_of_the_driver_may_fail() {
    fn history(fault: Option<(Call, u64)>) -> (Scene, [u64; 3]) {
        let caps = Caps { max_cached: 12 * KIB, max_per_bucket: 2, limit: 40 * KIB, ..Caps::default() };
        let scene = scene(SizeClasses::Fixed, caps);
        let faults = scene.device.inner().faults();
        if let Some((call, n)) = fault {
            faults.fail_nth(call, n);
        }
        let mut live = Vec::new();
        for step in 0..60u64 {
            let stream = &scene.streams[(step % 3) as usize];
            live.extend(scene.pool.allocate(step * 577 % 9000, stream));
            if step % 4 == 1 {
                // It may be the call that fails.
                let _ = live.last().map(|buffer| buffer.used_on(&scene.streams[3]));
            }
            if step % 3 != 0 && !live.is_empty() {
                live.swap_remove((step * 7) as usize % live.len());
            }
            let stats = scene.pool.stats();
            check(&stats, &scene.caps, true);
            assert_eq!(stats.source.in_transit_bytes, 0);
            assert_eq!((scene.device.taken(), stats.live_buffers), (stats.held_bytes, live.len() as u64));
        }
        drop(live);
        let calls = [Call::Allocate, Call::Record, Call::Wait].map(|call| faults.calls(call));
        (scene, calls)
    }
    let (_, calls) = history(None);
    assert!(calls.iter().all(|&calls| calls > 5), "the history makes every kind of call: {calls:?}");
    for (call, count) in [Call::Allocate, Call::Record, Call::Wait].into_iter().zip(calls) {
        for n in 1..=count {
            let (scene, _) = history(Some((call, n)));
            let stats = scene.pool.stats();
            let failures = stats.failed.by_backend;
            // A failed use of a live buffer is an error of that call, not of a request.
            assert!(failures <= 1, "{call:?} {n}: {stats:?}");
            assert_eq!((stats.live_bytes, stats.held_bytes), (0, stats.idle_bytes), "{call:?} {n}");
            let (device, pool) = (scene.device, scene.pool);
            drop(pool);
            assert_eq!(device.taken(), 0, "{call:?} {n}");
        }
    }
}
