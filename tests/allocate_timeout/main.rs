//! Requests that wait for memory are served in order of arrival, none starves, and nothing is lost when they
//! time out or the pool is closed.
#![cfg(feature = "host")]

mod closed;
mod deadlines;
mod progress;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use vrampool::hooks::HookCalls;
use vrampool::host::HostDevice;
use vrampool::{Backend, BackendError, Error, Pool, SizeClasses, Source, internal};
use vrampool_test_support::{AuditDevice, Tap, gate, until};

type Device = AuditDevice<HostDevice>;
type Answer = Result<(), Error>;

const KIB: u64 = 1024;
const LONG: Duration = Duration::from_secs(120);

fn pool_of(slots: u64, bytes: u64) -> Result<(Device, Pool<Device>, <Device as Backend>::Stream), Error> {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(slots * bytes).size_classes(SizeClasses::EXACT).build()?;
    Ok((device, pool, stream))
}

#[test]
fn requests_are_served_in_order_of_arrival() -> Answer {
    // Small and large ones: in order, whatever their size.
    let sizes = [4, 64, 4, 16, 64, 4, 4, 32].map(|size| size * KIB);
    let (_, pool, stream) = pool_of(1, 64 * KIB)?;
    let all = pool.allocate(64 * KIB, &stream)?;
    let served = Mutex::new(Vec::new());
    // A served thread keeps the memory until it has recorded that.
    let last = Mutex::new(None);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (number, bytes) in (0u64..).zip(sizes) {
            let (pool, stream, served, last) = (&pool, &stream, &served, &last);
            threads.push(scope.spawn(move || -> Answer {
                let buffer = pool.allocate_timeout(bytes, stream, LONG)?;
                served.lock().expect("no panic").push(number);
                // The memory of the one before goes when this one's is there: several are out at a time.
                *last.lock().expect("no panic") = Some(buffer);
                *last.lock().expect("no panic") = None;
                Ok(())
            }));
            until(|| pool.waiting_requests() > number);
        }
        drop(all);
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })?;
    let served = served.into_inner().expect("no panic");
    // Requests that fit beside each other may finish in either order, as threads run.
    let place = |number: u64| served.iter().position(|&other| other == number).expect("all are served");
    for (number, &bytes) in (0u64..).zip(&sizes) {
        if bytes == 64 * KIB {
            assert!((0..number).all(|earlier| place(earlier) < place(number)), "{served:?}");
            assert!((number + 1..8).all(|later| place(later) > place(number)), "{served:?}");
        }
    }
    assert_eq!(pool.waiting_requests(), 0);
    Ok(())
}

/// A block that is freed after a request's search, before the request would have to release memory.
#[test]
fn memory_freed_meanwhile_serves_a_request_at_the_limit() -> Answer {
    for (bytes, time) in [(1024 * KIB, None), (1024 * KIB, Some(LONG)), (4 * KIB, Some(LONG))] {
        let (device, pool, stream) = pool_of(1, bytes)?;
        let live = Mutex::new(Some(pool.allocate(bytes, &stream)?));
        device.before_capture_query(move || drop(live.lock().expect("no panic").take()));
        let served = match time {
            None => pool.allocate(bytes, &stream)?,
            Some(time) => pool.allocate_timeout(bytes, &stream, time)?,
        };
        let stats = pool.stats();
        assert_eq!(
            (stats.served.by_bucket, stats.source.allocations, stats.released.evicted),
            (1, 1, 0),
            "{bytes} {time:?}"
        );
        assert_eq!((device.allocations(), device.frees()), (1, 0));
        drop(served);
    }
    Ok(())
}

/// Nor do the calls for bindings that never wait: a release by one is noticed, and memory is left to the request.
#[test]
fn calls_that_never_wait_leave_memory_to_waiting_requests() -> Answer {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream()?;
    for (bytes, magazine_bytes) in [(8 << 20, 0), (4 * KIB, 0), (4 * KIB, 1 << 20), (8 << 20, 1 << 20)] {
        let builder = Pool::builder(&device).limit(2 * bytes).size_classes(SizeClasses::EXACT);
        let pool = builder.magazine_bytes(magazine_bytes).build()?;
        let (first, second) = (pool.allocate(bytes, &stream)?, pool.allocate(bytes, &stream)?);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.allocate_timeout(2 * bytes, &stream, LONG).map(drop));
            until(|| pool.waiting_requests() >= 1);
            drop(internal::release_ready(first));
            assert!(internal::allocate_ready(&pool, bytes, &stream).is_none(), "it is not this call's turn");
            // A request is refused without a look at the buckets.
            let before = pool.stats();
            assert!(pool.allocate(bytes, &stream).is_err());
            let after = pool.stats();
            assert_eq!(after.failed.by_limit, before.failed.by_limit + 1);
            assert_eq!((after.served, after.source.allocations), (before.served, before.source.allocations));
            assert_eq!(pool.waiting_requests(), 1);
            drop(internal::release_ready(second));
            waiting.join().expect("no panic")
        })?;
        assert_eq!(pool.stats().live_buffers, 0);
    }
    Ok(())
}

/// Requests that do not wait, and take whatever is free again and again, do not keep a waiting one out.
#[test]
fn requests_that_do_not_wait_starve_none() -> Answer {
    for bytes in [4 * KIB, 8 << 20] {
        let (_, pool, stream) = pool_of(8, bytes)?;
        let is_served = AtomicBool::new(false);
        thread::scope(|scope| {
            let greedy: Vec<_> = (0..2)
                .map(|_| {
                    let (pool, stream, is_served) = (&pool, &stream, &is_served);
                    scope.spawn(move || {
                        // At least five of eight slots are taken at any time, by the two together.
                        let mut held = std::collections::VecDeque::new();
                        while !is_served.load(Relaxed) {
                            if let Ok(buffer) = pool.allocate(bytes, stream) {
                                held.push_back(buffer);
                            }
                            if held.len() > 4
                                || pool.waiting_requests() > 0 && pool.allocate(bytes, stream).is_err()
                            {
                                held.pop_front();
                            }
                        }
                    })
                })
                .collect();
            let all = pool.allocate_timeout(8 * bytes, &stream, LONG);
            is_served.store(true, Relaxed);
            greedy.into_iter().for_each(|thread| thread.join().expect("no panic"));
            all.map(drop)
        })?;
    }
    Ok(())
}

#[test]
fn memory_reserved_for_a_waiting_request_serves_no_later_one() -> Answer {
    let (_, pool, stream) = pool_of(4, 64 * KIB)?;
    let mut held: Vec<_> = (0..3).map(|_| pool.allocate(64 * KIB, &stream)).collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(256 * KIB, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        assert!(pool.allocate(64 * KIB, &stream).is_err_and(|error| error.is_out_of_memory()));
        assert!(pool.allocate(1, &stream).is_err(), "nor a smaller one");
        drop(held.pop());
        assert!(pool.allocate(64 * KIB, &stream).is_err(), "nor what comes back and is idle");
        held.clear();
        waiting.join().expect("no panic")
    })?;
    drop(pool.allocate(64 * KIB, &stream)?);
    Ok(())
}

#[test]
fn a_timeout_is_out_of_memory_and_leaves_nothing() -> Answer {
    const LIMIT: u64 = 16 << 20;
    for source in Source::ALL.iter().copied() {
        let device = AuditDevice::new(HostDevice::builder().memory_limit(64 << 20).build());
        let stream = device.create_stream()?;
        let pool = match Pool::builder(&device).source(source).limit(LIMIT).build() {
            Err(error) if matches!(error.backend(), Some(BackendError::Unsupported { .. })) => continue,
            pool => pool?,
        };
        let all = pool.allocate(LIMIT, &stream)?;
        let began = Instant::now();
        let refused = pool.allocate_timeout(4 * KIB, &stream, Duration::from_millis(30));
        assert!(refused.is_err_and(|error| error.is_out_of_memory()), "{source}");
        assert!(began.elapsed() >= Duration::from_millis(30), "{source}");
        assert!(pool.allocate_timeout(4 * KIB, &stream, Duration::ZERO).is_err(), "{source}");
        // More than the limit is not waited for.
        assert!(pool.allocate_timeout(LIMIT + 1, &stream, Duration::MAX).is_err(), "{source}");
        assert_eq!((pool.waiting_requests(), pool.stats().live_buffers), (0, 1), "{source}");
        drop(all);
        // Magazines are back: a hit takes no lock.
        drop(pool.allocate(4 * KIB, &stream)?);
        let before = pool.stats().served.by_bucket;
        drop(pool.allocate(4 * KIB, &stream)?);
        assert!(source != Source::Direct || pool.stats().served.by_bucket > before, "{source}");
    }
    Ok(())
}

/// The device is out of memory below the limit: the pool gets no notice of another pool's release.
#[test]
fn memory_of_another_pool_ends_the_wait() -> Answer {
    let device = HostDevice::builder().memory_limit(1 << 20).build();
    let stream = device.create_stream()?;
    let (pool, other) = (
        Pool::new(&device)?,
        Pool::builder(&device).size_classes(SizeClasses::EXACT).max_cached_bytes(0).build()?,
    );
    let all = other.allocate(1 << 20, &stream)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(1 << 20, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        drop(all);
        waiting.join().expect("no panic")
    })
}

/// Where the device is short, nothing is promised, but the first to wait is still the first to be served.
#[test]
fn a_device_without_memory_is_asked_in_order_of_arrival() -> Answer {
    // A request asks once as it arrives, mostly before memory is freed here.
    for _ in 0..10 {
        if is_later_request_refused()? {
            return Ok(());
        }
    }
    panic!("a later request was served first");
}

fn is_later_request_refused() -> Result<bool, Error> {
    let device = HostDevice::builder().memory_limit(1 << 20).build();
    let stream = device.create_stream()?;
    let (pool, other) = (
        Pool::new(&device)?,
        Pool::builder(&device).size_classes(SizeClasses::EXACT).max_cached_bytes(0).build()?,
    );
    let (part, rest) = (other.allocate(64 * KIB, &stream)?, other.allocate(15 * 64 * KIB, &stream)?);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(1 << 20, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        // Enough is free for the second one alone, once it waits.
        let behind =
            scope.spawn(|| pool.allocate_timeout(64 * KIB, &stream, Duration::from_millis(100)).map(drop));
        until(|| pool.waiting_requests() >= 2);
        drop(part);
        let is_refused = behind.join().expect("no panic").is_err_and(|error| error.is_out_of_memory());
        drop(rest);
        waiting.join().expect("no panic")?;
        Ok(is_refused)
    })
}

/// A thread that frees and never calls again keeps nothing to itself meanwhile.
#[test]
fn freed_memory_is_not_kept_in_magazines_while_requests_wait() -> Answer {
    const SLOTS: u64 = 1024;
    let (_, pool, stream) = pool_of(SLOTS, 4 * KIB)?;
    let held: Vec<_> = (0..SLOTS).map(|_| pool.allocate(4 * KIB, &stream)).collect::<Result<_, _>>()?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(SLOTS * 4 * KIB, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        drop(held);
        waiting.join().expect("no panic")
    })
}

/// Its bytes are reserved then, and not promised beside that.
#[test]
fn a_request_that_is_being_served_is_counted_once() -> Answer {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let (pass, at_gate, open) = gate();
    let hook = Tap::new("gate", HookCalls::BEFORE_ALLOCATION, move |_, event| {
        if event.requested_bytes == 128 * KIB {
            pass();
        }
    });
    let pool = Pool::builder(&device).limit(256 * KIB).size_classes(SizeClasses::EXACT).hook(hook).build()?;
    let (first, second) = (pool.allocate(128 * KIB - 512, &stream)?, pool.allocate(64 * KIB, &stream)?);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(128 * KIB, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        drop(first);
        at_gate.recv().expect("it asks the device");
        let beside = pool.allocate(64 * KIB, &stream);
        open.send(()).expect("it waits for the gate");
        waiting.join().expect("no panic").and(beside.map(drop))
    })?;
    drop(second);
    Ok(())
}

/// A request that is served after a wait is no failure, and one that is refused is one.
#[test]
fn a_request_that_waits_fails_once_or_not_at_all() -> Answer {
    let (_, pool, stream) = pool_of(1, 64 * KIB)?;
    let all = pool.allocate(64 * KIB, &stream)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(64 * KIB, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        // Never asked before its deadline: the other request is the first.
        let refused = pool.allocate_timeout(4 * KIB, &stream, Duration::from_millis(5));
        assert!(refused.is_err_and(|error| error.is_out_of_memory()));
        let failed = pool.stats().failed;
        assert_eq!((failed.by_timeout, failed.by_limit), (1, 0), "{failed:?}");
        drop(all);
        waiting.join().expect("no panic")
    })?;
    let stats = pool.stats();
    assert_eq!((stats.failed.total(), stats.rungs.fail), (1, 1));
    assert_eq!((stats.served.total(), stats.waits.count()), (2, 2), "each request counts once: {stats:?}");
    let _all = pool.allocate(64 * KIB, &stream)?;
    assert!(pool.allocate_timeout(64 * KIB, &stream, Duration::from_millis(20)).is_err());
    assert!(pool.allocate_timeout(128 * KIB, &stream, LONG).is_err(), "it is over the limit");
    let stats = pool.stats();
    assert_eq!((stats.failed.by_timeout, stats.failed.by_request, stats.rungs.fail), (2, 1, 3), "{stats:?}");
    assert_eq!((stats.failed.total(), stats.served.total(), stats.waits.count()), (3, 3, 3), "{stats:?}");

    let small = HostDevice::builder().memory_limit(1 << 20).build();
    let (stream, pool) = (small.create_stream()?, Pool::new(&small)?);
    let _all = pool.allocate(1 << 20, &stream)?;
    assert!(pool.allocate_timeout(1 << 20, &stream, Duration::from_millis(50)).is_err());
    let stats = pool.stats();
    assert_eq!((stats.failed.by_timeout, stats.rungs.fail), (1, 1), "it asked several times");
    assert_eq!(
        (stats.failed.total(), stats.source.allocations, stats.served.by_bucket),
        (1, 1, 0),
        "{stats:?}"
    );
    Ok(())
}
