//! Hooks, panics, waiting requests and a close while a child takes or releases memory.

use crate::{KIB, device, device_and_stream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::Duration;
use vrampool::hooks::HookCalls;
use vrampool::host::HostStream;
use vrampool::{Error, Pool, SizeClasses, Source};
use vrampool_test_support::{Tap, streams};

#[test]
fn a_hook_that_requests_of_the_child_whose_memory_is_released_does_not_wait_for_itself() {
    let (done, is_done) = channel();
    thread::spawn(move || {
        let (device, stream) = device_and_stream();
        let asked =
            Arc::new((OnceLock::<(Arc<Pool<crate::Device>>, HostStream)>::new(), AtomicBool::new(false)));
        let of_hook = Arc::clone(&asked);
        let hook = Tap::new("requester", HookCalls::BEFORE_FREE, move |_, _| {
            if let Some((child, stream)) = of_hook.0.get()
                && !of_hook.1.swap(true, SeqCst)
            {
                drop(child.allocate(32 * KIB, stream));
            }
        });
        let pool =
            Pool::builder(&device).size_classes(SizeClasses::EXACT).hook(hook).build().expect("a pool");
        let child = Arc::new(pool.child("tenant").build().expect("a pool"));
        child.set_limit(64 * KIB).expect("no share");
        drop(child.allocate(64 * KIB, &stream).expect("memory"));
        assert!(asked.0.set((Arc::clone(&child), stream.clone())).is_ok());
        assert!(child.allocate(4 * KIB, &stream).is_ok());
        assert!(asked.1.load(SeqCst), "it was called");
        done.send(()).expect("the receiver waits");
    });
    is_done.recv_timeout(Duration::from_secs(20)).expect("no wait is endless");
}

#[test]
fn a_panic_in_a_destructor_while_a_child_releases_memory_loses_nothing() {
    for max_cached in [u64::MAX, 48 * KIB] {
        let (device, stream) = device_and_stream();
        let pool = Pool::builder(&device)
            .size_classes(SizeClasses::EXACT)
            .max_cached_bytes(max_cached)
            .limit(64 * KIB)
            .build()
            .expect("a pool");
        let child = pool.child("tenant").build().expect("a pool");
        child.set_share(48 * KIB).expect("room");
        child.set_limit(48 * KIB).expect("not below");
        let three: Vec<_> = (0..3).map(|_| child.allocate(16 * KIB, &stream).expect("memory")).collect();
        drop(three);
        device.panic_in("drop", 0);
        let outcome = catch_unwind(AssertUnwindSafe(|| child.allocate(32 * KIB, &stream)));
        let is_pending = device.forget_panic();
        assert!(outcome.is_err() && !is_pending, "{outcome:?}");
        assert_eq!(pool.stats().held_bytes, device.taken(), "{max_cached}");
        assert!(child.allocate(32 * KIB, &stream).is_ok(), "within its share");
        drop(child);
        pool.trim().expect("a trim");
        assert_eq!((pool.stats().held_bytes, device.taken()), (0, 0));
        assert!(pool.allocate(64 * KIB, &stream).is_ok());
    }
}

#[test]
fn a_panic_in_a_destructor_while_a_child_is_dropped_loses_nothing() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device)
        .size_classes(SizeClasses::EXACT)
        .max_cached_bytes(0)
        .magazine_bytes(0)
        .limit(64 * KIB)
        .build()
        .expect("a pool");
    let child = pool.child("tenant").private(true).build().expect("a pool");
    let three: Vec<_> = (0..3).map(|_| child.allocate(16 * KIB, &stream).expect("memory")).collect();
    drop(three);
    device.panic_in("drop", 0);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(child))).is_err());
    pool.trim().expect("a trim");
    assert_eq!((pool.stats().held_bytes, device.taken()), (0, 0));
    assert!(pool.allocate(64 * KIB, &stream).is_ok());
}

/// The device is called without the lock of the child.
#[test]
fn a_launch_on_another_stream_blocks_no_free() {
    let device = device();
    let [stream, other] = streams(&device);
    let pool = Pool::builder(&device).build().expect("a pool");
    let child = Arc::new(pool.child("graph").private(true).build().expect("a pool"));
    let blocks: Vec<_> = (0..3).map(|_| child.allocate(4 * KIB, &stream).expect("memory")).collect();
    let live = child.allocate(4 * KIB, &stream).expect("memory");
    drop(blocks);
    let (dropped, asked) = (std::sync::Mutex::new(Some(live)), Arc::clone(&child));
    device.before_capture_query(move || {
        drop(dropped.lock().expect("no panic").take());
        assert!(asked.stats().idle_bytes > 0);
    });
    child.used_on(&other).expect("a use");
    device.forget_hook();
    assert_eq!((child.stats().live_bytes, child.stats().idle_bytes), (0, 16 * KIB));
}

#[test]
fn a_close_of_the_pool_keeps_no_block_of_a_dropped_child() {
    let (device, stream) = device_and_stream();
    for is_private in [false, true] {
        let pool = Pool::builder(&device).build().expect("a pool");
        let child = pool.child("tenant").private(is_private).build().expect("a pool");
        let live = child.allocate(64 * KIB, &stream).expect("memory");
        drop(child);
        pool.close();
        drop(live);
        assert_eq!(device.taken(), 0, "private: {is_private}");
    }
}

#[test]
fn a_child_that_is_built_during_a_close_is_closed() {
    let device = device();
    let begin = Barrier::new(2);
    for _ in 0..2000 {
        let pool = Pool::builder(&device).build().expect("a pool");
        let child = pool.child("tenant").build().expect("a pool");
        let below = thread::scope(|scope| {
            let built = scope.spawn(|| {
                begin.wait();
                child.child("below").build().expect("a pool")
            });
            begin.wait();
            pool.close();
            built.join().expect("no panic")
        });
        assert!(below.is_closed());
    }
}

#[test]
fn a_share_of_all_bytes_overflows_nothing() {
    for source in [Source::Direct, Source::Driver, Source::Virtual] {
        let device = device();
        let [one, two] = streams(&device);
        let Ok(pool) = Pool::builder(&device).source(source).build() else { continue };
        let [child, other] = ["one", "other"].map(|tag| pool.child(tag).build().expect("a pool"));
        child.set_share(u64::MAX).expect("there is no limit");
        child.set_limit(u64::MAX).expect("no less than the share");
        assert!(other.set_share(1).is_err() && pool.allocate(1, &one).is_err());
        for _ in 0..3 {
            let own =
                (0..8).map(|nth| child.allocate(nth * 20 * KIB, if nth % 2 == 0 { &one } else { &two }));
            let own: Result<Vec<_>, _> = own.collect();
            assert!(own.is_ok(), "{own:?}");
            assert!(pool.allocate_timeout(1, &one, Duration::from_millis(1)).is_err());
        }
        drop(child);
        assert!(pool.allocate(4 * KIB, &one).is_ok());
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().held_bytes, 0);
    }
}

#[test]
fn a_pool_that_is_closed_while_a_request_recalls_memory_refuses_it() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).magazine_bytes(0).limit(64 * KIB).build().expect("a pool");
    let [idle, asks] = [(); 2].map(|()| pool.child("tenant").build().expect("a pool"));
    drop(idle.allocate(64 * KIB, &stream).expect("memory"));
    let closes = asks.clone();
    device.before_drop(move || closes.close());
    let got = asks.allocate(64 * KIB, &stream);
    device.forget_hook();
    assert!(matches!(got, Err(Error::Closed)), "{got:?}");
    assert_eq!((device.taken(), pool.stats().held_bytes), (0, 0));
}
