//! Memory that sleeps.

use crate::stage::{MIB, Scene, Stage, allocate};
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, SizeClasses};
use vrampool_sleep::{SleepBuffer, Sleeper, Wake};

pub(crate) const SCENES: &[Scene] = &[
    Scene::new("k_sleeps_every_7_s", &[], sleeps),
    Scene::new("k_wakes_fail", &["WakeFailing"], wakes_fail),
    Scene::new("k_sleeps_fail", &["SleepFailing"], sleeps_fail),
];

type Sleeping = (HostDevice, Sleeper<HostDevice>, SleepBuffer<HostDevice>);

/// A sleeper with 32 MiB on a device of 64; `None` without virtual memory.
fn sleeper(stage: &Stage) -> Option<Sleeping> {
    let (device, stream, _) = stage.device(64 * MIB);
    if !vrampool_test_support::has_virtual_memory(&device) {
        return None;
    }
    let sleeper = Sleeper::builder(&device).name(stage.name).build().expect("a sleeper");
    let weights = sleeper.allocate_tagged(32 * MIB, "weights", &stream).expect("memory");
    Some((device, sleeper, weights))
}

fn sleeps(stage: &Stage) {
    let Some((_device, sleeper, _weights)) = sleeper(stage) else { return };
    let _process = stage.serve().and(&sleeper);
    while stage.seconds(7) {
        let _ = sleeper.sleep(&["weights"]).expect("a sleep");
        stage.seconds(1);
        let _ = sleeper.wake_up(Wake::All).expect("a wake");
    }
}

/// A pool of the same process took the memory meanwhile.
fn wakes_fail(stage: &Stage) {
    let Some((device, sleeper, _weights)) = sleeper(stage) else { return };
    let _process = stage.serve().and(&sleeper);
    let _ = sleeper.sleep(&["weights"]).expect("a sleep");
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).size_classes(SizeClasses::EXACT).build().expect("a pool");
    let _taken = allocate(&pool, &stream, &[48 * MIB]);
    stage.every(Duration::from_secs(1), || assert!(sleeper.wake_up(Wake::All).is_err()));
}

/// Work has a region of a block.
fn sleeps_fail(stage: &Stage) {
    let Some((device, sleeper, weights)) = sleeper(stage) else { return };
    let _process = stage.serve().and(&sleeper);
    let stream = device.create_stream().expect("a stream");
    let _region = weights.on(&stream).expect("a region");
    stage.every(Duration::from_secs(1), || assert!(sleeper.sleep(&["weights"]).is_err()));
}
