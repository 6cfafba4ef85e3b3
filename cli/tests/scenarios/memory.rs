//! Leaks, rounding, holes, and pools that come and go.

use crate::stage::{KIB, MIB, Scene, Served, Stage, allocate};
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::{Pool, SizeClasses, Source};
use vrampool_hooks::CallSites;

pub(crate) const SCENES: &[Scene] = &[
    Scene::new("d_leak", &["LiveGrowing", "AllocationFailing(limit)"], |stage| {
        leak(stage, 512 * MIB, Some(220 * MIB))
    })
    .or(&["NearLimit"]),
    Scene::new("d_leak_of_the_device", &["LiveGrowing", "AllocationFailing(device)"], |stage| {
        leak(stage, 220 * MIB, None)
    })
    .or(&["OverBudget", "DeviceNearlyFull", "LadderBusy", "Fragmentation"]),
    Scene::new("d_step_up", &[], step_up),
    Scene::new("d_tags_and_lines", &[], tags_and_lines),
    Scene::new("f_rounding", &["Fragmentation"], |stage| {
        rounding(stage, SizeClasses::Fixed, 20 * KIB, 64 * KIB)
    }),
    Scene::new("f_powers_of_two", &["Fragmentation"], |stage| {
        rounding(stage, SizeClasses::PowerOfTwo, 64 * KIB + 1, 128 * KIB);
    }),
    Scene::new("f_holes_in_an_arena", &["AllocationFailing(fragmentation)"], holes).or(&["LadderBusy"]),
    Scene::new("f_full_arena", &["AllocationFailing(arena)"], full_arena)
        .or(&["LadderBusy", "DeviceNearlyFull"]),
    Scene::new("j_restart", &[], restart),
    Scene::new("j_fifty_pools", &[], fifty_pools),
    Scene::new("j_a_pool_for_each_request", &[], pool_for_each),
    Scene::new("j_two_processes", &[], two_processes),
];

fn leak(stage: &Stage, memory: u64, limit: Option<u64>) {
    let served = stage.served(memory, |builder| builder.size_classes(SizeClasses::EXACT).limit(limit));
    let mut leaked = served.allocate(&[40 * MIB]);
    stage.every(Duration::from_secs(1), || leaked.extend(served.allocate(&[MIB])));
}

fn step_up(stage: &Stage) {
    let served = stage.served(512 * MIB, |builder| builder.size_classes(SizeClasses::EXACT).limit(200 * MIB));
    let _live = served.allocate(&[40 * MIB]);
    stage.seconds(110);
    let _more = served.allocate(&[80 * MIB]);
    stage.seconds(1000);
}

/// Live and idle memory has a tag; lines of code are counted.
fn tags_and_lines(stage: &Stage) {
    let Served { stream, pool, process: _process, .. } =
        stage.served(512 * MIB, |builder| builder.hook(CallSites::new()));
    let children = ["decode", "prefill"].map(|tag| pool.child(tag).build().expect("a pool"));
    let _live = children[0].allocate(MIB, &stream).expect("memory");
    stage.every(Duration::from_secs(1), || drop(children[1].allocate(4 * MIB, &stream).expect("memory")));
}

/// Four fifths of the limit are live.
fn rounding(stage: &Stage, classes: SizeClasses, bytes: u64, class: u64) {
    let served = stage.served(512 * MIB, |builder| builder.size_classes(classes).limit(20 * class));
    let _live = served.allocate(&[bytes; 16]);
    stage.seconds(1000);
}

fn holes(stage: &Stage) {
    let served = stage.served(512 * MIB, |builder| {
        let builder = builder.source(Source::Arena).addresses_stay(true).size_classes(SizeClasses::EXACT);
        builder.limit(16 * MIB)
    });
    let live = served.allocate(&[MIB; 16]);
    let _half: Vec<_> = live.into_iter().enumerate().filter(|(at, _)| at % 2 == 0).collect();
    served.pool.trim().expect("a trim");
    stage.every(Duration::from_secs(1), || drop(served.allocate(&[4 * MIB])));
}

fn full_arena(stage: &Stage) {
    let (device, stream, builder) = stage.device(512 * MIB);
    let arena = DeviceArena::builder(&device).limit(16 * MIB).build().expect("an arena");
    let _others = arena.allocate(12 * MIB, &stream).expect("memory");
    let pool = builder.arena(&arena).size_classes(SizeClasses::EXACT).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    let _live = allocate(&pool, &stream, &[MIB; 2]);
    stage.every(Duration::from_secs(1), || _ = pool.allocate(4 * MIB, &stream));
}

fn restart(stage: &Stage) {
    let process = stage.serve();
    let address = process.exporter.address();
    drop(process);
    loop {
        let (_device, stream, builder) = stage.device(256 * MIB);
        let pool = builder.build().expect("a pool");
        let _process = stage.serve_at(address).and(&pool);
        for _ in 0..200 {
            drop(allocate(&pool, &stream, &[1000, 70_000]));
            if !stage.pass(Duration::from_millis(100)) {
                return;
            }
        }
    }
}

fn fifty_pools(stage: &Stage) {
    let (device, stream, _) = stage.device(512 * MIB);
    let pool = |number: u64| Pool::builder(&device).name(format!("pool {number}")).build().expect("a pool");
    let pools: Vec<_> = (0..50).map(pool).collect();
    let process = stage.serve();
    pools.iter().for_each(|pool| process.exporter.add(pool).expect("a new one"));
    stage.every(Duration::from_millis(500), || {
        pools.iter().for_each(|pool| drop(allocate(pool, &stream, &[1000, 70_000, 300_000])));
    });
}

fn pool_for_each(stage: &Stage) {
    let (device, stream, _) = stage.device(512 * MIB);
    let process = stage.serve();
    let mut number = 0;
    stage.every(Duration::from_millis(500), || {
        number += 1;
        let pool = Pool::builder(&device).name(format!("request {number}")).build().expect("a pool");
        process.exporter.add(&pool).expect("a new one");
        drop(allocate(&pool, &stream, &[1000, 70_000]));
    });
}

fn two_processes(stage: &Stage) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    let pools = [(); 2].map(|()| builder.clone().build().expect("a pool"));
    let _processes = pools.each_ref().map(|pool| stage.serve().and(pool));
    stage.every(Duration::from_millis(100), || {
        pools.iter().for_each(|pool| drop(allocate(pool, &stream, &[1000, 70_000])));
    });
}
