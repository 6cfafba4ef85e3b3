//! Requests that fail, processes that end with it, and devices that are lost.

use crate::stage::{MIB, Scene, Stage, allocate};
use std::time::Duration;
use vrampool::host::Call;
use vrampool::{BackendError, Pool, SizeClasses, Source};

pub(crate) const SCENES: &[Scene] = &[
    Scene::new("e_once", &["AllocationFailing(limit)"], once),
    Scene::new("e_again_and_again", &["AllocationFailing(limit)"], again),
    Scene::new("e_at_the_start", &["AllocationFailing(device)"], at_the_start),
    Scene::new("e_crash", &["AllocationFailing(limit)"], crash),
    Scene::new("e_crash_loop", &["AllocationFailing(limit)", "CrashLoop"], crash_loop),
    Scene::new("e_crash_loop_of_pods", &["AllocationFailing(limit)", "CrashLoop"], crash_loop_of_pods),
    Scene::new("h_lost_and_all_hit", &["DeviceLost"], lost_and_all_hit),
    Scene::new("h_lost_and_all_miss", &["DeviceLost", "AllocationFailing(backend)"], lost_and_all_miss),
    Scene::new("h_lost_virtual", &["DeviceLost"], lost_virtual),
    Scene::new("h_errors", &["DeviceErrors"], errors),
    Scene::new("n_99_percent_refused", &["AllocationFailing(limit)"], mostly_refused),
    Scene::new("n_planned_now_and_then", &[], |stage| planned(stage, Duration::from_secs(20))),
    Scene::new("n_planned_often", &["RequestsRefused"], |stage| planned(stage, Duration::from_millis(200))),
    Scene::new("n_closed", &[], closed),
    Scene::new("n_invalid", &["InvalidRequests"], invalid),
];

/// A pool of 8 MiB, half of it live.
fn half_full(stage: &Stage) -> (Pool<vrampool::host::HostDevice>, vrampool::host::HostStream) {
    let (_device, stream, builder) = stage.device(256 * MIB);
    (builder.size_classes(SizeClasses::EXACT).limit(8 * MIB).build().expect("a pool"), stream)
}

fn once(stage: &Stage) {
    let (pool, stream) = half_full(stage);
    let _process = stage.serve().and(&pool);
    let _live = allocate(&pool, &stream, &[4 * MIB]);
    stage.seconds(60);
    assert!(pool.allocate(5 * MIB, &stream).is_err());
    stage.cycle(&pool, &stream, &[1000]);
}

fn again(stage: &Stage) {
    let (pool, stream) = half_full(stage);
    let _process = stage.serve().and(&pool);
    let _live = allocate(&pool, &stream, &[4 * MIB]);
    stage.every(Duration::from_millis(500), || assert!(pool.allocate(5 * MIB, &stream).is_err()));
}

/// Before the first scrape.
fn at_the_start(stage: &Stage) {
    let (_device, stream, builder) = stage.device(8 * MIB);
    let pool = builder.size_classes(SizeClasses::EXACT).build().expect("a pool");
    let _live = allocate(&pool, &stream, &[4 * MIB]);
    assert!(pool.allocate(5 * MIB, &stream).is_err());
    let _process = stage.serve().and(&pool);
    stage.cycle(&pool, &stream, &[1000]);
}

/// A process that fails, and ends soon after: it is scraped a few times.
fn fail_and_end(stage: &Stage, address: Option<std::net::SocketAddr>, seconds: u64) -> std::net::SocketAddr {
    let (pool, stream) = half_full(stage);
    let process =
        if let Some(address) = address { stage.serve_at(address) } else { stage.serve() }.and(&pool);
    let _live = allocate(&pool, &stream, &[4 * MIB]);
    assert!(pool.allocate(5 * MIB, &stream).is_err());
    stage.seconds(seconds);
    process.exporter.address()
}

fn crash(stage: &Stage) {
    fail_and_end(stage, None, 10);
    stage.seconds(1000);
}

fn crash_loop(stage: &Stage) {
    let address = fail_and_end(stage, None, 6);
    while stage.seconds(2) {
        fail_and_end(stage, Some(address), 4);
    }
}

fn crash_loop_of_pods(stage: &Stage) {
    loop {
        let (pool, stream) = half_full(stage);
        let process = stage.serve().and(&pool);
        let _live = allocate(&pool, &stream, &[4 * MIB]);
        assert!(pool.allocate(5 * MIB, &stream).is_err());
        // Prometheus takes up new targets every five seconds.
        let goes_on = stage.seconds(12);
        stage.end(process);
        if !goes_on {
            return;
        }
    }
}

fn lost_and_all_hit(stage: &Stage) {
    let (device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.build().expect("a pool");
    let _process = stage.serve().and(&pool);
    drop(pool.allocate(1000, &stream));
    stage.seconds(30);
    device.faults().lose_device();
    stage.every(Duration::from_millis(100), || {
        let mut buffer = pool.allocate(1000, &stream).expect("a hit");
        assert!(buffer.write(&[1], &stream).is_err());
    });
}

fn lost_and_all_miss(stage: &Stage) {
    let (device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.max_cached_bytes(0).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    stage.seconds(30);
    device.faults().lose_device();
    stage.every(Duration::from_millis(100), || assert!(pool.allocate(1000, &stream).is_err()));
}

fn lost_virtual(stage: &Stage) {
    let (device, stream, builder) = stage.device(256 * MIB);
    if !vrampool_test_support::has_virtual_memory(&device) {
        return;
    }
    let pool = builder.source(Source::Virtual).limit(64 * MIB).build().expect("a pool");
    let _process = stage.serve().and(&pool);
    drop(pool.allocate(5 * MIB, &stream));
    stage.seconds(30);
    device.faults().lose_device();
    stage.every(Duration::from_millis(100), || drop(pool.allocate(5 * MIB, &stream)));
}

/// For ten seconds; the device stays.
fn errors(stage: &Stage) {
    let (device, stream, builder) = stage.device(256 * MIB);
    let pool = builder.build().expect("a pool");
    let _process = stage.serve().and(&pool);
    let mut step = 0;
    stage.every(Duration::from_millis(100), || {
        step += 1;
        match step {
            600 => device.faults().fail_all(Call::Upload, BackendError::driver("upload", 1, "a fault")),
            700 => device.faults().clear(),
            _ => {}
        }
        let mut buffer = pool.allocate(1000, &stream).expect("a hit");
        let _ = buffer.write(&[1], &stream);
    });
}

fn mostly_refused(stage: &Stage) {
    let (pool, stream) = half_full(stage);
    let _process = stage.serve().and(&pool);
    let _live = allocate(&pool, &stream, &[4 * MIB]);
    stage.every(Duration::from_millis(100), || {
        (0..99).for_each(|_| assert!(pool.allocate(5 * MIB, &stream).is_err()));
        drop(pool.allocate(1000, &stream).expect("memory"));
    });
}

/// A request above the limit and a deadline that passes, each so often, among ten requests a second that are served.
fn planned(stage: &Stage, time: Duration) {
    let (pool, stream) = half_full(stage);
    let _process = stage.serve().and(&pool);
    let _live = allocate(&pool, &stream, &[4 * MIB]);
    let mut waited = Duration::ZERO;
    stage.every(Duration::from_millis(100), || {
        drop(pool.allocate(1000, &stream).expect("memory"));
        waited += Duration::from_millis(100);
        if waited >= time {
            waited = Duration::ZERO;
            assert!(pool.allocate(9 * MIB, &stream).is_err());
            assert!(pool.allocate_timeout(5 * MIB, &stream, Duration::from_millis(5)).is_err());
        }
    });
}

/// The planned end of a server: all that is asked later is refused.
fn closed(stage: &Stage) {
    let (pool, stream) = half_full(stage);
    let _process = stage.serve().and(&pool);
    drop(allocate(&pool, &stream, &[1000]));
    stage.seconds(60);
    pool.close();
    (0..8).for_each(|_| assert!(pool.allocate(1000, &stream).is_err()));
    stage.seconds(1000);
}

fn invalid(stage: &Stage) {
    let (pool, stream) = half_full(stage);
    let (_other, foreign, _) = stage.device(MIB);
    let _process = stage.serve().and(&pool);
    drop(allocate(&pool, &stream, &[1000]));
    stage.seconds(60);
    assert!(pool.allocate(1000, &foreign).is_err());
    stage.seconds(1000);
}
