//! Requests that wait, and other pools of the tree.

use crate::{KIB, device_and_stream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use vrampool::errors::Cause;
use vrampool::host::HostDevice;
use vrampool::{Backend, Error, Pool, Shortage, SizeClasses, Source};
use vrampool_test_support::until;

#[test]
fn magazines_of_another_pool_serve_a_request_that_waits() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).limit(1024 * KIB).magazine_bytes(1 << 20).build().expect("a pool");
    let [one, other] = ["one", "other"].map(|name| pool.child(name).build().expect("a pool"));
    let ((takes, is_taken), (go, going)) = (channel(), channel::<()>());
    let (tenant, on) = (&one, &stream);
    thread::scope(|scope| {
        scope.spawn(move || {
            let all: Vec<_> = (0..16).map(|_| tenant.allocate(64 * KIB, on).expect("memory")).collect();
            takes.send(()).expect("it listens");
            let _ = going.recv();
            drop(all);
            // It makes no further call.
            let _ = going.recv();
        });
        is_taken.recv().expect("it took all");
        let waiting = scope.spawn(|| other.allocate_timeout(1000 * KIB, &stream, Duration::from_secs(60)));
        until(|| other.waiting_requests() > 0);
        go.send(()).expect("it listens");
        drop(waiting.join().expect("no panic").expect("all of it is free"));
        drop(go);
    });
}

/// A pool of 1 MiB without rounding.
fn pool(device: &crate::Device) -> Pool<crate::Device> {
    Pool::builder(device).limit(1024 * KIB).size_classes(SizeClasses::EXACT).build().expect("a pool")
}

/// Calls `check` while a request of `bytes` of `waiting` waits. Afterwards it is served.
fn while_one_waits(waiting: &Pool<crate::Device>, bytes: u64, check: impl FnOnce()) {
    let stream = waiting.device().create_stream().expect("a stream");
    thread::scope(|scope| {
        let served = scope.spawn(|| waiting.allocate_timeout(bytes, &stream, Duration::from_secs(60)));
        until(|| waiting.waiting_requests() > 0);
        check();
        drop(served.join().expect("no panic").expect("memory was freed"));
    });
}

#[test]
fn memory_that_a_request_of_one_child_waits_for_serves_no_other_child() {
    let (device, stream) = device_and_stream();
    let pool = pool(&device);
    let one = pool.child("one").limit(900 * KIB).build().expect("a pool");
    let other = pool.child("other").build().expect("a pool");
    let live = one.allocate(768 * KIB, &stream).expect("memory");
    while_one_waits(&other, 512 * KIB, || {
        for pool in [&pool, &one] {
            let Err(Error::OutOfMemory(refused)) = pool.allocate(64 * KIB, &stream) else {
                panic!("it overtakes the request that waits");
            };
            assert_eq!((refused.cause(), refused.waiting_bytes), (Cause::Waiting, 512 * KIB), "{refused}");
            assert_eq!(refused.shortage, Shortage::Limit(1024 * KIB), "{refused}");
        }
        drop(live);
        drop(one.allocate(512 * KIB, &stream).expect("both fit"));
    });
}

#[test]
fn a_request_that_waits_for_its_childs_limit_shuts_no_other_out() {
    let (device, stream) = device_and_stream();
    let pool = pool(&device);
    let bounded = pool.child("bounded").limit(256 * KIB).build().expect("a pool");
    let below = bounded.child("below").build().expect("a pool");
    let other = pool.child("other").build().expect("a pool");
    let live = bounded.allocate(256 * KIB, &stream).expect("memory");
    while_one_waits(&below, 256 * KIB, || {
        drop(pool.allocate(768 * KIB, &stream).expect("memory of the pool"));
        drop(other.allocate(768 * KIB, &stream).expect("memory of another child"));
        assert!(bounded.allocate(64 * KIB, &stream).is_err());
        drop(live);
    });
}

#[test]
fn a_request_within_its_share_is_served_beside_one_that_waits() {
    let (device, stream) = device_and_stream();
    let pool = pool(&device);
    let shared = pool.child("shared").share(512 * KIB).build().expect("a pool");
    let below = shared.child("below").build().expect("a pool");
    let live = pool.allocate(512 * KIB, &stream).expect("memory");
    while_one_waits(&pool, 256 * KIB, || {
        for _ in 0..2 {
            let all: Vec<_> = (0..4).map(|_| below.allocate(64 * KIB, &stream).expect("its share")).collect();
            drop(shared.allocate(256 * KIB, &stream).expect("its share"));
            assert!(shared.allocate(512 * KIB, &stream).is_err());
            drop(all);
        }
        drop(live);
    });
}

/// It counts again once it is awake.
#[test]
fn memory_that_falls_asleep_makes_room_for_a_request_that_waits() {
    const MIB: u64 = 1 << 20;
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    if !vrampool_test_support::has_virtual_memory(&device) {
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).source(Source::Virtual).limit(32 * MIB).build().expect("a pool");
    let [one, other] = ["one", "other"].map(|name| pool.child(name).build().expect("a pool"));
    let (block, arena) = (one.allocate(20 * MIB, &stream).expect("memory"), one.arena().expect("virtual"));
    let awake = thread::scope(|scope| {
        let waiting = scope.spawn(|| other.allocate_timeout(20 * MIB, &stream, Duration::from_secs(60)));
        until(|| other.waiting_requests() > 0);
        let detaching = arena.detach(Duration::ZERO).expect("no region").expect("attached");
        assert_eq!(detaching.unmap().expect("no fault").commit(|_| {}), 20 * MIB);
        waiting.join().expect("no panic").expect("room")
    });
    // It is asleep, whether or not there is room.
    for bytes in [MIB, 20 * MIB] {
        assert!(matches!(one.allocate(bytes, &stream), Err(Error::Asleep { .. })));
    }
    assert!(arena.attach().is_err_and(|error| error.is_out_of_memory()));
    assert!(other.allocate(8 * MIB, &stream).is_ok(), "a wake that failed takes nothing");
    drop(awake);
    pool.trim().expect("no fault");
    assert_eq!(arena.attach().expect("room").expect("detached").commit(), 20 * MIB);
    assert!(other.allocate(20 * MIB, &stream).is_err() && block.on(&stream).is_ok());
}

#[test]
fn a_request_waits_for_memory_of_the_child_that_is_being_released() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).build().expect("a pool");
    let child = pool.child("tenant").build().expect("a pool");
    child.set_limit(64 * KIB).expect("no share");
    drop(child.allocate(64 * KIB, &stream).expect("memory"));
    let (is_releasing, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (releasing, over) = (Arc::clone(&is_releasing), Arc::clone(&is_over));
    device.before_drop(move || {
        releasing.store(true, SeqCst);
        // Long enough for a request that does not wait.
        for _ in 0..10_000 {
            if over.load(SeqCst) {
                break;
            }
            thread::yield_now();
        }
    });
    let buffers = thread::scope(|scope| {
        let first = scope.spawn(|| child.allocate(16 * KIB, &stream));
        until(|| is_releasing.load(SeqCst));
        let second = child.allocate(16 * KIB, &stream);
        is_over.store(true, SeqCst);
        [first.join().expect("no panic"), second]
    });
    device.forget_hook();
    assert!(buffers.iter().all(Result::is_ok), "{buffers:?}");
    assert!(device.peak() <= 64 * KIB, "{}", device.peak());
}
