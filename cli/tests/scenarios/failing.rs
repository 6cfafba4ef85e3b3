//! Requests that fail, processes that end with it, and devices that are lost.

use crate::stage::{FREE, MIB, Scene, Served, Stage, allocate};
use std::net::SocketAddr;
use std::time::Duration;
use vrampool::host::{Call, HostDevice};
use vrampool::{BackendError, Buffer, SizeClasses, Source};

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

/// A pool of 8 MiB, and a block of half of it.
fn half_full(stage: &Stage, address: SocketAddr) -> (Served, Vec<Buffer<HostDevice>>) {
    let served = stage
        .served_at(address, 256 * MIB, |builder| builder.size_classes(SizeClasses::EXACT).limit(8 * MIB));
    let live = served.allocate(&[4 * MIB]);
    (served, live)
}

/// A request that does not fit beside the block, or that the pool refuses for another reason.
fn is_refused(served: &Served, bytes: u64) -> bool {
    served.pool.allocate(bytes, &served.stream).is_err()
}

fn once(stage: &Stage) {
    let (served, _live) = half_full(stage, FREE);
    stage.seconds(60);
    assert!(is_refused(&served, 5 * MIB));
    served.cycle(stage, &[1000]);
}

fn again(stage: &Stage) {
    let (served, _live) = half_full(stage, FREE);
    stage.every(Duration::from_millis(500), || assert!(is_refused(&served, 5 * MIB)));
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
fn fail_and_end(stage: &Stage, address: SocketAddr, seconds: u64) -> SocketAddr {
    let (served, _live) = half_full(stage, address);
    assert!(is_refused(&served, 5 * MIB));
    stage.seconds(seconds);
    served.process.exporter.address()
}

fn crash(stage: &Stage) {
    fail_and_end(stage, FREE, 10);
    stage.seconds(1000);
}

fn crash_loop(stage: &Stage) {
    let address = fail_and_end(stage, FREE, 6);
    while stage.seconds(2) {
        fail_and_end(stage, address, 4);
    }
}

fn crash_loop_of_pods(stage: &Stage) {
    loop {
        let (served, _live) = half_full(stage, FREE);
        assert!(is_refused(&served, 5 * MIB));
        // Prometheus takes up new targets every five seconds.
        let goes_on = stage.seconds(12);
        stage.end(served.process);
        if !goes_on {
            return;
        }
    }
}

fn lost_and_all_hit(stage: &Stage) {
    let Served { device, stream, pool, process: _process } = stage.served(256 * MIB, |builder| builder);
    drop(pool.allocate(1000, &stream));
    stage.seconds(30);
    device.faults().lose_device();
    stage.every(Duration::from_millis(100), || {
        let mut buffer = pool.allocate(1000, &stream).expect("a hit");
        assert!(buffer.write(&[1], &stream).is_err());
    });
}

fn lost_and_all_miss(stage: &Stage) {
    let served = stage.served(256 * MIB, |builder| builder.max_cached_bytes(0));
    stage.seconds(30);
    served.device.faults().lose_device();
    stage.every(Duration::from_millis(100), || assert!(is_refused(&served, 1000)));
}

fn lost_virtual(stage: &Stage) {
    if !vrampool_test_support::has_virtual_memory(&HostDevice::new()) {
        return;
    }
    let served = stage.served(256 * MIB, |builder| builder.source(Source::Virtual).limit(64 * MIB));
    drop(served.allocate(&[5 * MIB]));
    stage.seconds(30);
    served.device.faults().lose_device();
    stage.every(Duration::from_millis(100), || drop(served.allocate(&[5 * MIB])));
}

/// For ten seconds; the device stays.
fn errors(stage: &Stage) {
    let Served { device, stream, pool, process: _process } = stage.served(256 * MIB, |builder| builder);
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
    let (served, _live) = half_full(stage, FREE);
    stage.every(Duration::from_millis(100), || {
        (0..99).for_each(|_| assert!(is_refused(&served, 5 * MIB)));
        assert!(!is_refused(&served, 1000));
    });
}

/// A request above the limit and a deadline that passes, each so often, among ten requests a second that are served.
fn planned(stage: &Stage, time: Duration) {
    let (served, _live) = half_full(stage, FREE);
    let mut waited = Duration::ZERO;
    stage.every(Duration::from_millis(100), || {
        assert!(!is_refused(&served, 1000));
        waited += Duration::from_millis(100);
        if waited >= time {
            waited = Duration::ZERO;
            assert!(is_refused(&served, 9 * MIB));
            let deadline = Duration::from_millis(5);
            assert!(served.pool.allocate_timeout(5 * MIB, &served.stream, deadline).is_err());
        }
    });
}

/// The planned end of a server: all that is asked later is refused.
fn closed(stage: &Stage) {
    let (served, live) = half_full(stage, FREE);
    drop(live);
    stage.seconds(60);
    served.pool.close();
    (0..8).for_each(|_| assert!(is_refused(&served, 1000)));
    stage.seconds(1000);
}

fn invalid(stage: &Stage) {
    let (served, _live) = half_full(stage, FREE);
    let (_other, foreign, _) = stage.device(MIB);
    stage.seconds(60);
    assert!(served.pool.allocate(1000, &foreign).is_err());
    stage.seconds(1000);
}
