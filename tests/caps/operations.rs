//! Random operations on a pool with caps, and the checks after each.

use super::{Device, KIB, Stream};
use crate::twin::Caps;
use proptest::prelude::*;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, PoolStats, SizeClasses, SizeTable};
use vrampool_test_support::AuditDevice;

#[derive(Debug, Clone)]
pub(super) enum Operation {
    Allocate { bytes: u64 },
    // Drop one of this thread's buffers.
    Drop { which: usize },
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
        6 => bytes().prop_map(|bytes| Operation::Allocate { bytes }),
        5 => any::<usize>().prop_map(|which| Operation::Drop { which }),
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
    /// The first, and pools below any before them: the caps are those of the first.
    pub(super) pools: Vec<Pool<Device>>,
    pub(super) caps: Caps,
}

pub(super) fn scene(classes: SizeClasses, caps: Caps, magazine_bytes: u64, count: usize) -> Scene {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 40).build());
    let streams = (0..4).map(|_| device.create_stream().expect("a stream")).collect();
    let builder = Pool::builder(&device).size_classes(classes).max_cached_bytes(caps.max_cached);
    let builder = builder.max_buffers_per_bucket(caps.max_per_bucket).limit(caps.limit).budget(caps.budget);
    let mut pools = vec![builder.magazine_bytes(magazine_bytes).build().expect("a pool")];
    (1..count).for_each(|at| pools.push(pools[at / 2].child("child").build().expect("a pool")));
    Scene { device, streams, pools, caps }
}

/// Checks invariants of a pool's statistics.
pub(super) fn check(stats: &PoolStats, caps: &Caps) {
    assert!(stats.idle_bytes <= caps.max_cached, "{stats:?}");
    assert!(stats.peak.idle_bytes <= caps.max_cached, "{stats:?}");
    assert!(stats.held_bytes <= caps.limit && stats.peak.held_bytes <= caps.limit, "{stats:?}");
    assert!(stats.live_bytes + stats.idle_bytes <= stats.held_bytes, "{stats:?}");
    assert!(stats.requested_bytes <= stats.live_bytes, "{stats:?}");
    assert!(stats.buckets.iter().all(|bucket| bucket.idle_buffers <= caps.max_per_bucket), "{stats:?}");
    assert_eq!(stats.idle_bytes, stats.buckets.iter().map(|bucket| bucket.idle_bytes).sum::<u64>());
}
