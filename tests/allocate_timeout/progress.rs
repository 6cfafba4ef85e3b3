//! A request that can be served is served: whatever its thread keeps, whatever else asks the device, and whatever
//! hooks do meanwhile.

use crate::{KIB, LONG, pool_of};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use vrampool::hooks::{HookCalls, Outcome};
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Error, Pool, SizeClasses};
use vrampool_test_support::{AuditDevice, Tap, gate, until};

type Answer = Result<(), Error>;

/// Long enough for a loaded machine; shorter than [`LONG`], which ends waits without a cause.
const SOON: Duration = Duration::from_secs(60);

fn exact(device: &HostDevice, limit: Option<u64>) -> Result<Pool<HostDevice>, Error> {
    Pool::builder(device).limit(limit).size_classes(SizeClasses::EXACT).build()
}

/// Memory that a thread keeps is released to an earlier request once the thread itself waits.
#[test]
fn a_waiting_thread_keeps_no_memory() -> Answer {
    let (_, pool, stream) = pool_of(1, 1 << 20)?;
    let live = pool.allocate(512 * KIB, &stream)?;
    let (pool, stream) = (&pool, &stream);
    let ((ready, is_ready), (go, going)) = (mpsc::channel(), mpsc::channel::<()>());
    thread::scope(|scope| {
        let second = scope.spawn(move || {
            for _ in 0..4 {
                drop(pool.allocate(4 * KIB, stream)?);
            }
            ready.send(()).expect("it listens");
            going.recv().expect("the signal to go on");
            pool.allocate_timeout(64 * KIB, stream, LONG).map(drop)
        });
        is_ready.recv().expect("it keeps memory");
        let first = scope.spawn(move || pool.allocate_timeout(1 << 20, stream, SOON).map(drop));
        until(|| pool.waiting_requests() >= 1);
        go.send(()).expect("it listens");
        until(|| pool.waiting_requests() >= 2);
        drop(live);
        first.join().expect("no panic")?;
        second.join().expect("no panic")
    })
}

/// The device refuses before the request waits; other threads return what they keep all the same.
#[test]
fn a_request_that_the_device_refused_recalls_magazines() -> Answer {
    let device = HostDevice::builder().memory_limit(1 << 20).build();
    let stream = device.create_stream()?;
    let other = Pool::builder(&device).size_classes(SizeClasses::EXACT).max_cached_bytes(0).build()?;
    let pool = exact(&device, None)?;
    let _rest = other.allocate(768 * KIB, &stream)?;
    let ((ready, is_ready), (go, going)) = (mpsc::channel(), mpsc::channel::<()>());
    let (end, ending) = mpsc::channel::<()>();
    let (pool, stream) = (&pool, &stream);
    thread::scope(|scope| {
        scope.spawn(move || -> Answer {
            let held = (0..64).map(|_| pool.allocate(4 * KIB, stream)).collect::<Result<Vec<_>, _>>()?;
            ready.send(()).expect("it listens");
            going.recv().expect("the signal to go on");
            drop(held);
            // It makes no further call.
            let _ = ending.recv();
            Ok(())
        });
        is_ready.recv().expect("it holds memory");
        let waiting = scope.spawn(|| pool.allocate_timeout(256 * KIB, stream, SOON).map(drop));
        // It has looked for what threads keep, and found nothing.
        until(|| pool.waiting_requests() > 0 && pool.stats().rungs.trim > 0);
        go.send(()).expect("it listens");
        let answer = waiting.join().expect("no panic");
        drop(end);
        answer
    })
}

type Gated = (Pool<HostDevice>, HostStream, Receiver<()>, Sender<()>);

/// A pool of 256 KiB whose requests of 128 KiB are held up as they end.
fn gated() -> Result<Gated, Error> {
    let (device, (pass, at_gate, open)) = (HostDevice::new(), gate());
    let hook = Tap::new("gate", HookCalls::AFTER_REQUEST, move |_, event| {
        if event.requested_bytes == 128 * KIB && event.outcome != Outcome::Failed {
            pass();
        }
    });
    let builder = Pool::builder(&device).limit(256 * KIB).size_classes(SizeClasses::EXACT);
    Ok((builder.hook(hook).build()?, device.create_stream()?, at_gate, open))
}

/// Served from idle memory, its bytes are live and no longer awaited, while its hooks run.
#[test]
fn a_served_request_no_longer_reserves_bytes() -> Answer {
    let (pool, stream, at_gate, open) = gated()?;
    // Of the waiting request's class, and of other requested bytes.
    let (first, second) = (pool.allocate(128 * KIB - 1, &stream)?, pool.allocate(128 * KIB - 1, &stream)?);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(128 * KIB, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        drop(first);
        at_gate.recv().expect("it is served");
        drop(second);
        let beside = pool.allocate(100 * KIB, &stream).map(drop);
        drop(open);
        waiting.join().expect("no panic")?;
        beside
    })
}

#[test]
fn a_close_ends_requests_behind_one_that_is_held_up() -> Answer {
    let (pool, stream, at_gate, open) = gated()?;
    let (first, _second) = (pool.allocate(128 * KIB - 1, &stream)?, pool.allocate(128 * KIB - 1, &stream)?);
    thread::scope(|scope| {
        let held_up = scope.spawn(|| pool.allocate_timeout(128 * KIB, &stream, LONG).map(drop));
        until(|| pool.waiting_requests() >= 1);
        let ((done, is_done), (pool, stream)) = (mpsc::channel(), (&pool, &stream));
        scope.spawn(move || done.send(pool.allocate_timeout(200 * KIB, stream, LONG).map(drop)));
        until(|| pool.waiting_requests() >= 2);
        drop(first);
        at_gate.recv().expect("it is served");
        pool.close();
        // Before the one ahead of it goes on.
        let closed = is_done.recv_timeout(SOON);
        drop(open);
        assert!(matches!(closed, Ok(Err(Error::Closed))), "{closed:?}");
        held_up.join().expect("no panic")
    })
}

/// A hook may use the pool, also while its request asks a device that refused it.
#[test]
fn a_hook_that_allocates_does_not_wait_for_its_own_request() -> Answer {
    for at_device in [true, false] {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let stream = device.create_stream()?;
        let nested = Arc::new((OnceLock::<Pool<HostDevice>>::new(), AtomicU64::new(0)));
        let calls = if at_device { HookCalls::BEFORE_ALLOCATION } else { HookCalls::AFTER_REQUEST };
        let (of_hook, own) = (Arc::clone(&nested), stream.clone());
        let hook = Tap::new("nested", calls, move |call, _| {
            thread_local! {
                static IS_NESTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
            }
            let (pool, answers) = &*of_hook;
            if let Some(pool) = pool.get().filter(|_| call == calls && !IS_NESTED.replace(true)) {
                let _ = pool.allocate(192 * KIB, &own);
                answers.fetch_add(1, Relaxed);
                IS_NESTED.set(false);
            }
        });
        let builder = Pool::builder(&device).size_classes(SizeClasses::EXACT).hook(hook);
        let pool = builder.build()?;
        let live = pool.allocate(640 * KIB, &stream)?;
        nested.0.set(pool.clone()).expect("once");
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || done.send(pool.allocate(512 * KIB, &stream).map(drop)));
        let refused = is_done.recv_timeout(SOON).expect("it does not wait for itself");
        assert!(refused.is_err_and(|error| error.is_out_of_memory()));
        assert!(nested.1.load(Relaxed) > 0);
        drop(live);
    }
    Ok(())
}

/// Memory that becomes idle serves a request that waits for other memory to be released.
#[test]
fn idle_memory_ends_a_wait_for_a_release() -> Answer {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream()?;
    let builder = Pool::builder(&device).size_classes(SizeClasses::Multiple(KIB)).limit(16 * KIB);
    let pool = builder.magazine_bytes(0).build()?;
    let (idle, live) = (pool.allocate(8 * KIB, &stream)?, pool.allocate(8 * KIB, &stream)?);
    drop(idle);
    let ((go, gate), (there, is_there)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
    let gate = Mutex::new(gate);
    device.on_drop(move || {
        let _ = there.send(());
        let _ = gate.lock().expect("no panic").recv_timeout(SOON);
    });
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| pool.trim());
        is_there.recv().expect("it is being released");
        let waiter = scope.spawn(|| pool.allocate(7 * KIB, &stream).map(drop));
        until(|| pool.stats().rungs.wait > 0);
        drop(live);
        let answer = waiter.join().expect("no panic");
        drop(go);
        answer
    })?;
    assert!(began.elapsed() < SOON, "the release ended the wait");
    Ok(())
}

/// A request whose class is larger than a lowered limit fits without rounding.
#[test]
fn a_lowered_limit_fits_the_class_of_a_waiting_request() -> Answer {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let builder = Pool::builder(&device).limit(16 << 20).size_classes(SizeClasses::PowerOfTwo);
    let pool = builder.magazine_bytes(0).build()?;
    let live = pool.allocate(16 << 20, &stream)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(5 << 20, &stream, SOON).map(drop));
        until(|| pool.waiting_requests() >= 1);
        pool.set_limit(6 << 20)?;
        drop(live);
        waiting.join().expect("no panic")
    })
}
