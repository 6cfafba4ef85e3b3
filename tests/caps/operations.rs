//! Random operations on a pool with caps, and the checks after each.

use super::{Device, KIB, Stream};
use crate::twin::Caps;
use proptest::prelude::*;
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Pool, PoolStats, SizeClasses, SizeTable, Source};
use vrampool_test_support::{AuditDevice, has_virtual_memory};

#[derive(Debug, Clone)]
pub(super) enum Operation {
    // Allocate so many bytes on one of the streams.
    Allocate { bytes: u64, stream: usize },
    // Drop one of this thread's buffers.
    Drop { which: usize },
    // Hand one of this thread's buffers to the next thread that takes one.
    HandOver { which: usize },
    // Take a buffer that another thread handed over, and drop it.
    TakeOver,
    // Use one of this thread's buffers on a stream.
    Use { which: usize, stream: usize },
    Trim { to: u64 },
}

pub(super) fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 0..2 * KIB,
        3 => 0..70 * KIB,
        2 => (10u32..19, 0u64..3).prop_map(|(shift, more)| (1 << shift) + more - 1),
        1 => 1024 * KIB..3 * 1024 * KIB,
    ]
}

pub(super) fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        6 => (bytes(), 0..4usize).prop_map(|(bytes, stream)| Operation::Allocate { bytes, stream }),
        5 => any::<usize>().prop_map(|which| Operation::Drop { which }),
        1 => any::<usize>().prop_map(|which| Operation::HandOver { which }),
        1 => Just(Operation::TakeOver),
        1 => (any::<usize>(), 0..4usize).prop_map(|(which, stream)| Operation::Use { which, stream }),
        1 => (0..300 * KIB).prop_map(|to| Operation::Trim { to }),
    ]
}

pub(super) fn caps() -> impl Strategy<Value = Caps> {
    let bytes = || prop_oneof![Just(0), 0..8 * KIB, 0..300 * KIB, 0..8000 * KIB, Just(u64::MAX)];
    let count = prop_oneof![Just(0), 1..5u64, Just(u64::MAX)];
    (bytes(), count, bytes(), bytes()).prop_map(|(max_cached, max_per_bucket, limit, budget)| Caps {
        max_cached,
        max_per_bucket,
        limit,
        budget,
    })
}

pub(super) fn classes() -> impl Strategy<Value = SizeClasses> {
    prop_oneof![
        Just(SizeClasses::Fixed),
        Just(SizeClasses::PowerOfTwo),
        Just(SizeClasses::Geometric { per_doubling: 4, from: 2 * KIB }),
        Just(SizeClasses::Multiple(8 * KIB)),
        Just(SizeClasses::Exact(1)),
        Just(SizeClasses::Tight),
        Just(SizeClasses::Table(SizeTable::new([700, 3000, 9000, 40_000]))),
    ]
}

/// The bytes that each thread may keep.
pub(super) fn magazine_bytes() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..8 * KIB, 0..300 * KIB, Just(1 << 30)]
}

pub(super) struct Scene {
    pub(super) device: Device,
    pub(super) streams: Vec<Stream>,
    pub(super) pool: Pool<Device>,
    pub(super) caps: Caps,
}

/// Returns the sources of the host device on this system.
pub(super) fn sources() -> Vec<Source> {
    let has_virtual_memory = has_virtual_memory(&HostDevice::builder().memory_limit(1).build());
    Source::ALL.iter().copied().filter(|&source| has_virtual_memory || source != Source::Virtual).collect()
}

/// With threads that keep nothing to themselves, as the twin does.
pub(super) fn scene(classes: SizeClasses, caps: Caps) -> Scene {
    scene_on(Source::Direct, classes, caps, 0)
}

pub(super) fn scene_on(source: Source, classes: SizeClasses, caps: Caps, magazine_bytes: u64) -> Scene {
    // An arena of fixed size takes all of it at once, and not every system promises more memory than it has.
    let capacity = if source == Source::Arena && !cfg!(target_os = "linux") { 1 << 28 } else { 1 << 40 };
    let device = AuditDevice::new(HostDevice::builder().memory_limit(capacity).granularity(4 * KIB).build());
    let streams = (0..4).map(|_| device.create_stream().expect("a stream")).collect();
    let builder = Pool::builder(&device).size_classes(classes).max_cached_bytes(caps.max_cached);
    let builder = builder.max_buffers_per_bucket(caps.max_per_bucket).limit(caps.limit).budget(caps.budget);
    let pool = builder.source(source).magazine_bytes(magazine_bytes).build().expect("a pool");
    Scene { device, streams, pool, caps }
}

/// Checks invariants of a pool's statistics.
pub(super) fn check(stats: &PoolStats, caps: &Caps, exact: bool) {
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

/// Runs `operations` of one thread. Every buffer's address must be no other owner's while it is live. (Buffers
/// of an arena share a memory and move; what is in them is checked elsewhere.)
pub(super) fn run(
    scene: &Scene,
    operations: &[Operation],
    addresses: &Mutex<HashSet<u64>>,
    passed_on: &Mutex<Vec<Buffer<Device>>>,
) {
    let mut mine: Vec<Buffer<Device>> = Vec::new();
    let address = |buffer: &Buffer<Device>| {
        vrampool::Memory::address(&*buffer.memory()).expect("the host has addresses")
    };
    let release = |buffer: Buffer<Device>| {
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
                    assert!(is_new || scene.pool.arena().is_some(), "two live buffers share memory");
                    mine.push(buffer);
                }
            }
            Operation::Drop { which } if !mine.is_empty() => {
                let index = which % mine.len();
                release(mine.swap_remove(index));
            }
            Operation::HandOver { which } if !mine.is_empty() => {
                let index = which % mine.len();
                passed_on.lock().expect("no panic").push(mine.swap_remove(index));
            }
            Operation::TakeOver => {
                let taken = passed_on.lock().expect("no panic").pop();
                taken.into_iter().for_each(release);
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
    mine.into_iter().for_each(release);
}

/// Runs each list on a separate thread while other threads read statistics, then checks the remaining state.
pub(super) fn run_threads(scene: Scene, lists: &[Vec<Operation>], one_bucket_a_class: bool) {
    let (addresses, passed_on) = (Mutex::default(), Mutex::default());
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
            lists.iter().map(|list| scope.spawn(|| run(&scene, list, &addresses, &passed_on))).collect();
        let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        done.store(true, Ordering::Release);
        observer.join().expect("every look was right");
        outcomes.into_iter().for_each(|outcome| outcome.expect("no thread failed"));
    });
    passed_on.lock().expect("no panic").clear();
    // From below: never more than the limit was taken, and what is taken is what the pool says it holds.
    assert!(scene.device.peak() <= scene.caps.limit, "{} taken of {}", scene.device.peak(), scene.caps.limit);
    let stats = scene.pool.stats();
    check(&stats, &scene.caps, one_bucket_a_class);
    assert_eq!((stats.live_bytes, stats.requested_bytes, stats.live_buffers), (0, 0, 0));
    assert_eq!((stats.held_bytes, stats.in_transit_bytes), (stats.idle_bytes, 0));
    match scene.pool.arena() {
        None => {
            assert_eq!(scene.device.taken(), stats.held_bytes);
            assert_eq!(stats.source.frees, scene.device.frees());
        }
        Some(arena) if arena.is_growing() => assert_eq!(scene.device.taken(), arena.reserved_bytes()),
        Some(_) => {}
    }
    // Pending faults would keep physical memory.
    scene.device.inner().faults().clear();
    scene.pool.trim().expect("a trim");
    assert_eq!(scene.pool.stats().held_bytes, 0);
    match scene.pool.arena() {
        Some(arena) if !arena.is_growing() => assert_eq!(arena.used(), 0),
        _ => assert_eq!(scene.device.taken(), 0),
    }
    let device = scene.device.clone();
    drop((scene, passed_on));
    assert_eq!(device.taken(), 0);
}
