//! Healthy pools, and caches that are too small.

use crate::stage::{KIB, MIB, Scene, Served, Stage};
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::{SizeClasses, Source};

const SMALL_BY_BYTES: &[&str] = &["CacheFull", "DriverCallsSteady", "HitRateCritical", "HitRateLow"];
const SMALL_BY_BUFFERS: &[&str] = &["BucketFull", "DriverCallsSteady", "HitRateCritical", "HitRateLow"];

pub(crate) const SCENES: &[Scene] = &[
    Scene::new("a_fixed", &[], |stage| healthy(stage, Source::Direct)),
    Scene::new("a_mixed", &[], mixed),
    Scene::new("b_virtual", &[], |stage| healthy(stage, Source::Virtual)),
    Scene::new("b_arena", &[], |stage| healthy(stage, Source::Arena)),
    Scene::new("b_driver", &[], |stage| healthy(stage, Source::Driver)),
    Scene::new("c_40_percent_of_bytes", SMALL_BY_BYTES, |stage| of_bytes(stage, 13)),
    Scene::new("c_half_of_bytes", SMALL_BY_BYTES, |stage| of_bytes(stage, 16)),
    Scene::new("c_25_percent_of_bytes", SMALL_BY_BYTES, |stage| of_bytes(stage, 8)),
    Scene::new("c_31_percent_of_buffers", SMALL_BY_BUFFERS, |stage| of_buffers(stage, Some(10))),
    Scene::new("c_half_of_buffers", SMALL_BY_BUFFERS, |stage| of_buffers(stage, None)),
    Scene::new("c_arena_behind_half_of_bytes", &["BucketHitRateLow"], arena_behind),
    Scene::new("c_every_size_new", SMALL_BY_BYTES, every_size_new),
    Scene::new("c_5_percent_miss", &["CacheFull"], some_miss),
    Scene::new("c_no_cache_by_choice", &[], no_cache),
    Scene::new("k_trimmed_every_7_s", &[], trimmed),
    Scene::new("m_idle", &[], idle),
    Scene::new("m_one_request_in_8_s", &[], seldom),
];

fn healthy(stage: &Stage, source: Source) {
    if source == Source::Virtual && !vrampool_test_support::has_virtual_memory(&HostDevice::new()) {
        return;
    }
    let served =
        stage.served(256 * MIB, |builder| builder.source(source).limit(128 * MIB).max_cached_bytes(64 * MIB));
    served.cycle(stage, &[1000, 70_000, 70_000, 5 * MIB, 12 * MIB]);
}

fn mixed(stage: &Stage) {
    let served = stage.served(256 * MIB, |builder| builder.limit(128 * MIB).max_cached_bytes(64 * MIB));
    let mut random = fastrand::Rng::with_seed(1);
    stage.every(Duration::from_millis(50), || {
        drop(served.allocate(&[(); 8].map(|()| random.u64(1..300_000))));
    });
}

/// A working set of 32 buffers, of which so many may be idle.
fn of_bytes(stage: &Stage, buffers: u64) {
    let served = stage.served(256 * MIB, |builder| {
        builder.max_cached_bytes(buffers * 64 * KIB).max_buffers_per_bucket(None).magazine_bytes(0)
    });
    served.cycle(stage, &[64 * KIB; 32]);
}

/// The same over an arena, which serves the misses of the buckets.
fn arena_behind(stage: &Stage) {
    let served = stage.served(256 * MIB, |builder| {
        let builder = builder.source(Source::Arena).limit(64 * MIB).max_cached_bytes(16 * 64 * KIB);
        builder.max_buffers_per_bucket(None).magazine_bytes(0)
    });
    served.cycle(stage, &[64 * KIB; 32]);
}

/// The same, by the cap on buffers; `None` is the default.
fn of_buffers(stage: &Stage, buffers: Option<u64>) {
    let served = stage.served(256 * MIB, |builder| {
        let builder = builder.max_cached_bytes(None).magazine_bytes(0);
        if let Some(buffers) = buffers { builder.max_buffers_per_bucket(buffers) } else { builder }
    });
    served.cycle(stage, &[64 * KIB; 32]);
}

fn every_size_new(stage: &Stage) {
    let served = stage.served(256 * MIB, |builder| {
        builder.size_classes(SizeClasses::EXACT).max_cached_bytes(8 * MIB).max_buffers_per_bucket(None)
    });
    let mut bytes = MIB;
    stage.every(Duration::from_millis(100), || {
        let sizes = [(); 5].map(|()| {
            bytes += 1024;
            bytes
        });
        drop(served.allocate(&sizes));
    });
}

/// Two of 21 requests miss, with nearly all bytes.
fn some_miss(stage: &Stage) {
    let served =
        stage.served(512 * MIB, |builder| builder.max_cached_bytes(4 * MIB).max_buffers_per_bucket(None));
    let mut sizes = vec![10 * KIB; 19];
    sizes.extend([16 * MIB; 2]);
    stage.every(Duration::from_secs(1), || drop(served.allocate(&sizes)));
}

fn no_cache(stage: &Stage) {
    stage.served(256 * MIB, |builder| builder.max_cached_bytes(0)).cycle(stage, &[64 * KIB; 8]);
}

fn trimmed(stage: &Stage) {
    let served = stage.served(256 * MIB, |builder| builder);
    let mut step = 0;
    stage.every(Duration::from_millis(100), || {
        step += 1;
        drop(served.allocate(&[64 * KIB; 4]));
        if step % 70 == 0 {
            served.pool.trim().expect("a trim");
        }
    });
}

fn idle(stage: &Stage) {
    let served = stage.served(256 * MIB, |builder| builder);
    drop(served.pool.allocate(1000, &served.stream).expect("memory"));
    stage.seconds(1000);
}

fn seldom(stage: &Stage) {
    let Served { stream, pool, process: _process, .. } =
        stage.served(256 * MIB, |builder| builder.max_cached_bytes(1000));
    stage.every(Duration::from_secs(8), || drop(pool.allocate(64 * KIB, &stream).expect("memory")));
}
