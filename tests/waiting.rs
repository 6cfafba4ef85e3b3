//! Requests that wait for a release in progress are served first come, first served. No later request
//! takes the memory, whether the limit or the device refused the earlier ones.

use std::sync::Arc;
use std::thread;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, SizeClasses, Source};
use vrampool_test_support::{AuditDevice, gate, until};

const KIB: u64 = 1024;
const ROUNDS: usize = 20;

type Device = AuditDevice<HostDevice>;
type Hook = Box<dyn Fn() + Send + Sync>;

/// One thread releases all memory, during which `on_drop` calls a hook that blocks. Another thread waits for
/// the memory. A later request does not get it instead, whether it comes before or after the memory is free,
/// nor does a request of the releasing thread, which need not be woken.
fn assert_waiter_is_first(
    pool: &Pool<Device>,
    stream: &<Device as Backend>::Stream,
    on_drop: impl FnOnce(Hook),
    what: &str,
) {
    let (pass, is_there, go) = gate();
    on_drop(Box::new(pass));
    let allocate = {
        let (pool, stream) = (pool.clone(), stream.clone());
        Arc::new(move || pool.allocate(8 * KIB, &stream))
    };
    let giver = thread::spawn({
        let (pool, allocate) = (pool.clone(), Arc::clone(&allocate));
        move || {
            pool.trim().expect("a trim");
            allocate().is_ok()
        }
    });
    is_there.recv().expect("the release began");
    let waiter = thread::spawn({
        let allocate = Arc::clone(&allocate);
        move || allocate()
    });
    until(|| pool.stats().rungs.wait > 0);
    drop(go);
    let served = waiter.join().expect("no panic");
    assert!(served.is_ok(), "{what}: overtaken: {served:?}");
    assert!(!giver.join().expect("no panic"), "{what}: nothing was left");
    drop(served);
}

/// A pool of 8 KiB, all of them idle.
fn idle_pool(device: &Device, stream: &<Device as Backend>::Stream) -> Pool<Device> {
    let builder = Pool::builder(device).size_classes(SizeClasses::Multiple(KIB)).limit(8 * KIB);
    let pool = builder.magazine_bytes(0).build().expect("a pool");
    drop(pool.allocate(8 * KIB, stream).expect("memory"));
    pool
}

#[test]
fn a_request_that_waits_is_not_overtaken() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 20).build());
    let stream = device.create_stream().expect("a stream");
    for round in 0..ROUNDS {
        let pool = idle_pool(&device, &stream);
        assert_waiter_is_first(&pool, &stream, |hook| device.on_drop(hook), &format!("round {round}"));
        device.forget_hook();
        assert!(pool.allocate(8 * KIB, &stream).is_ok(), "no request waits any more");
    }
}

/// As many as wait are served one after the other, and each that is served was before all that were not.
#[test]
fn waiting_requests_are_served_in_their_order() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 20).build());
    let stream = device.create_stream().expect("a stream");
    let pool = idle_pool(&device, &stream);
    let (pass, is_there, go) = gate();
    device.on_drop(pass);
    let giver = thread::spawn({
        let pool = pool.clone();
        move || pool.trim().expect("a trim")
    });
    is_there.recv().expect("the release began");
    // Of 8 KiB: the first two fit, the third does not, the last one would.
    let waiters: Vec<_> = (0..)
        .zip([3, 4, 4, 1])
        .map(|(number, kib)| {
            let (pool, stream) = (pool.clone(), stream.clone());
            let waiter = thread::spawn({
                let pool = pool.clone();
                move || pool.allocate(kib * KIB, &stream)
            });
            until(|| pool.stats().rungs.wait > number);
            waiter
        })
        .collect();
    drop(go);
    assert_eq!(giver.join().expect("no panic"), 8 * KIB);
    let served: Vec<_> = waiters.into_iter().map(|waiter| waiter.join().expect("no panic")).collect();
    let are_served: Vec<_> = served.iter().map(Result::is_ok).collect();
    assert_eq!(are_served, [true, true, false, true]);
    device.forget_hook();
    drop(served);
    pool.trim().expect("a trim");
    assert_eq!((device.taken(), pool.stats().held_bytes), (0, 0));
}

/// The same where nothing but the device's memory is short: one thread releases it slowly and requests it
/// again at once.
#[test]
fn a_request_that_the_device_refused_is_not_overtaken() {
    for source in [Source::Direct, Source::Driver] {
        for round in 0..ROUNDS {
            let device = AuditDevice::new(HostDevice::builder().memory_limit(8 * KIB).build());
            let stream = device.create_stream().expect("a stream");
            let builder = Pool::builder(&device).source(source).size_classes(SizeClasses::Multiple(KIB));
            let pool = builder.magazine_bytes(0).build().expect("a pool");
            drop(pool.allocate(8 * KIB, &stream).expect("memory"));
            let what = format!("{source}, round {round}");
            assert_waiter_is_first(&pool, &stream, |hook| device.before_drop(hook), &what);
            device.forget_hook();
            pool.trim().expect("a trim");
            assert!(pool.allocate(8 * KIB, &stream).is_ok(), "no request waits any more");
        }
    }
}
