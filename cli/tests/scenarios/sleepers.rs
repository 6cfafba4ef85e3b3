//! Memory that sleeps.

use crate::stage::{MIB, Scene, Stage, allocate};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vrampool::host::HostDevice;
use vrampool::telemetry::{Owner, OwnerFigures, Watch, WatchArc};
use vrampool::{Backend, Buffer, Pool, SizeClasses, Source};
use vrampool_sleep::{Offload, SleepArena, SleepCounts, figures_of};

pub(crate) const SCENES: &[Scene] = &[
    Scene::new("k_sleeps_every_7_s", &[], sleeps),
    Scene::new("k_wakes_fail", &["WakeFailing"], wakes_fail),
    Scene::new("k_sleeps_fail", &["SleepFailing"], sleeps_fail),
];

/// A tag that is named after its scenario.
struct Sleeping {
    name: &'static str,
    tag: Pool<HostDevice>,
    arena: SleepArena<HostDevice>,
    counts: Mutex<SleepCounts>,
}

impl Sleeping {
    fn sleep(&self) -> bool {
        let slept = self.arena.sleep(Offload::Pinned);
        self.counts.lock().expect("no panic").count_sleep(&slept);
        slept.is_ok()
    }

    fn figures(&self) -> OwnerFigures {
        figures_of([("weights", &self.arena)], &self.counts.lock().expect("no panic"))
    }

    fn wake(&self) -> bool {
        let woken = self.arena.wake();
        self.counts.lock().expect("no panic").count_wake(&woken);
        woken.is_ok()
    }
}

struct Exported(Arc<Sleeping>);

impl Owner for Exported {
    type Device = HostDevice;

    const LABEL: &'static str = "sleeper";

    fn name(&self) -> &str {
        self.0.name
    }

    fn device(&self) -> &HostDevice {
        self.0.tag.device()
    }

    fn figures(&self) -> OwnerFigures {
        self.0.figures()
    }

    fn watch(&self) -> impl Watch + 'static {
        WatchArc::new(&self.0, Sleeping::figures)
    }
}

/// A tag with 32 MiB on a device of 64; `None` without virtual memory.
fn sleeping(stage: &Stage) -> Option<(Exported, Buffer<HostDevice>)> {
    let (device, stream, builder) = stage.device(64 * MIB);
    if !vrampool_test_support::has_virtual_memory(&device) {
        return None;
    }
    let pool = builder.source(Source::Virtual).addresses_stay(true).build().expect("a pool");
    let tag = pool.child("weights").build().expect("a pool");
    let arena = SleepArena::new(tag.arena().expect("virtual").clone());
    let weights = tag.allocate(32 * MIB, &stream).expect("memory");
    let sleeping = Sleeping { name: stage.name, tag, arena, counts: Mutex::default() };
    Some((Exported(Arc::new(sleeping)), weights))
}

fn sleeps(stage: &Stage) {
    let Some((exported, _weights)) = sleeping(stage) else { return };
    let _process = stage.serve().and(&exported);
    while stage.seconds(7) {
        assert!(exported.0.sleep());
        stage.seconds(1);
        assert!(exported.0.wake());
    }
}

/// A pool of the same process took the memory meanwhile.
fn wakes_fail(stage: &Stage) {
    let Some((exported, _weights)) = sleeping(stage) else { return };
    let _process = stage.serve().and(&exported);
    assert!(exported.0.sleep());
    let device = exported.device();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(device).size_classes(SizeClasses::EXACT).build().expect("a pool");
    let _taken = allocate(&pool, &stream, &[48 * MIB]);
    stage.every(Duration::from_secs(1), || assert!(!exported.0.wake()));
}

/// Work has a region of a block.
fn sleeps_fail(stage: &Stage) {
    let Some((exported, weights)) = sleeping(stage) else { return };
    let _process = stage.serve().and(&exported);
    let stream = exported.device().create_stream().expect("a stream");
    let _region = weights.on(&stream).expect("a region");
    stage.every(Duration::from_secs(1), || assert!(!exported.0.sleep()));
}
