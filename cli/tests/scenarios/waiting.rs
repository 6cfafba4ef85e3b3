//! Requests that wait for memory.

use crate::stage::{KIB, MIB, Scene, Served, Stage, allocate};
use std::thread;
use std::time::Duration;
use vrampool::SizeClasses;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};

pub(crate) const SCENES: &[Scene] = &[
    Scene::new("g_served_by_waiting", &[], served_by_waiting).or(&["NearLimit", "LadderBusy"]),
    // Evictions are true, and as frequent as the sizes fall.
    Scene::new("g_mixed_sizes_wait", &[], mixed_sizes_wait).or(&[
        "HitRateCritical",
        "HitRateLow",
        "DriverCallsSteady",
        "LadderBusy",
        "NearLimit",
        "CacheFull",
    ]),
    Scene::new("i_stall", &["WaitingLong"], stall),
    Scene::new("i_one_waits_for_ever", &["WaitingLong", "AllocationFailing(limit)"], one_waits_for_ever),
    Scene::new("i_driver_hangs", &[], driver_hangs),
];

fn exact(stage: &Stage, limit: u64) -> Served {
    stage.served(256 * MIB, |builder| builder.size_classes(SizeClasses::EXACT).limit(limit))
}

fn served_by_waiting(stage: &Stage) {
    let Served { stream, pool, process: _process, .. } = exact(stage, 8 * MIB);
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| {
                stage.every(Duration::from_millis(20), || {
                    let buffer =
                        pool.allocate_timeout(MIB, &stream, Duration::from_secs(60)).expect("memory");
                    thread::park_timeout(Duration::from_millis(20));
                    drop(buffer);
                });
            });
        }
    });
}

fn mixed_sizes_wait(stage: &Stage) {
    let Served { stream, pool, process: _process, .. } = exact(stage, 8 * MIB);
    thread::scope(|scope| {
        for seed in 0..8 {
            let (pool, stream) = (&pool, &stream);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                stage.every(Duration::from_millis(50), || {
                    let bytes = random.u64(100 * KIB..3 * MIB);
                    let buffer =
                        pool.allocate_timeout(bytes, stream, Duration::from_secs(60)).expect("memory");
                    thread::park_timeout(Duration::from_millis(50));
                    drop(buffer);
                });
            });
        }
    });
}

/// Half of the limit is live for ever, and four requests of more than the rest wait for it, until the pool closes.
fn stall(stage: &Stage) {
    waits(stage, 4, |_, _| stage.seconds(1000));
}

/// One waits, and others that would fit are refused half of the time.
fn one_waits_for_ever(stage: &Stage) {
    waits(stage, 1, |pool, stream| {
        stage.every(Duration::from_millis(100), || drop(allocate(pool, stream, &[MIB])));
        false
    });
}

fn waits(
    stage: &Stage,
    number: u64,
    then: impl FnOnce(&Pool<HostDevice>, &<HostDevice as Backend>::Stream) -> bool,
) {
    let Served { stream, pool, process: _process, .. } = exact(stage, 16 * MIB);
    let _live = allocate(&pool, &stream, &[8 * MIB]);
    thread::scope(|scope| {
        for _ in 0..number {
            scope.spawn(|| assert!(pool.allocate_timeout(12 * MIB, &stream, Duration::MAX).is_err()));
        }
        then(&pool, &stream);
        pool.close();
    });
}

/// One allocation of the device takes two seconds, 40 at full length; before and after it requests hit.
fn driver_hangs(stage: &Stage) {
    let device = HostDevice::builder().allocation_latency(Duration::from_secs(2)).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).name(stage.name).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.cycle(&pool, &stream, &[1000]);
}
