//! Healthy pools, and caches that are too small.

use crate::stage::{KIB, MIB, Scene, Stage};
use std::time::Duration;
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
    let (device, stream, builder) = stage.device(256 * MIB);
    if source == Source::Virtual && !vrampool_test_support::has_virtual_memory(&device) {
        return;
    }
    let pool = builder.source(source).limit(128 * MIB).max_cached_bytes(64 * MIB).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.cycle(&pool, &stream, &[1000, 70_000, 70_000, 5 * MIB, 12 * MIB]);
}

fn mixed(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.limit(128 * MIB).max_cached_bytes(64 * MIB).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    let mut random = fastrand::Rng::with_seed(1);
    stage.every(Duration::from_millis(50), || {
        let sizes = [(); 8].map(|()| random.u64(1..300_000));
        drop(crate::stage::allocate(&pool, &stream, &sizes));
    });
}

/// A working set of 32 buffers, of which so many may be idle.
fn of_bytes(stage: &Stage, buffers: u64) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let builder = builder.max_cached_bytes(buffers * 64 * KIB).max_buffers_per_bucket(None).magazine_bytes(0);
    let pool = builder.build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.cycle(&pool, &stream, &[64 * KIB; 32]);
}

/// The same over an arena, which serves the misses of the buckets.
fn arena_behind(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let builder = builder.source(Source::Arena).limit(64 * MIB).max_cached_bytes(16 * 64 * KIB);
    let pool = builder.max_buffers_per_bucket(None).magazine_bytes(0).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.cycle(&pool, &stream, &[64 * KIB; 32]);
}

/// The same, by the cap on buffers; `None` is the default.
fn of_buffers(stage: &Stage, buffers: Option<u64>) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let builder = builder.max_cached_bytes(None).magazine_bytes(0);
    let builder = if let Some(buffers) = buffers { builder.max_buffers_per_bucket(buffers) } else { builder };
    let pool = builder.build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.cycle(&pool, &stream, &[64 * KIB; 32]);
}

fn every_size_new(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let builder =
        builder.size_classes(SizeClasses::EXACT).max_cached_bytes(8 * MIB).max_buffers_per_bucket(None);
    let pool = builder.build().expect("a pool");
    let _process = stage.serve().and(&pool);
    let mut bytes = MIB;
    stage.every(Duration::from_millis(100), || {
        let sizes = [(); 5].map(|()| {
            bytes += 1024;
            bytes
        });
        drop(crate::stage::allocate(&pool, &stream, &sizes));
    });
}

/// Two of 21 requests miss, with nearly all bytes.
fn some_miss(stage: &Stage) {
    let (_device, stream, builder) = stage.device(512 * MIB);
    let pool = builder.max_cached_bytes(4 * MIB).max_buffers_per_bucket(None).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    let mut sizes = vec![10 * KIB; 19];
    sizes.extend([16 * MIB; 2]);
    stage.every(Duration::from_secs(1), || drop(crate::stage::allocate(&pool, &stream, &sizes)));
}

fn no_cache(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.max_cached_bytes(0).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.cycle(&pool, &stream, &[64 * KIB; 8]);
}

fn trimmed(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.build().expect("a pool");
    let _process = stage.serve().and(&pool);
    let mut step = 0;
    stage.every(Duration::from_millis(100), || {
        step += 1;
        drop(crate::stage::allocate(&pool, &stream, &[64 * KIB; 4]));
        if step % 70 == 0 {
            pool.trim().expect("a trim");
        }
    });
}

fn idle(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.build().expect("a pool");
    let _process = stage.serve().and(&pool);
    drop(pool.allocate(1000, &stream).expect("memory"));
    stage.seconds(1000);
}

fn seldom(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.max_cached_bytes(1000).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.every(Duration::from_secs(8), || drop(pool.allocate(64 * KIB, &stream).expect("memory")));
}
