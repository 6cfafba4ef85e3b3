//! A request ends with its time, however long the driver takes, and makes no more calls than one without a deadline.

use crate::{Answer, Device, KIB};
use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use vrampool::hooks::{Hook, HookCalls};
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, Pool, PoolBuilder, Shortage, SizeClasses, Source};
use vrampool_test_support::{AuditDevice, Tap, gate, until};

/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(60);

fn device(bytes: u64) -> Device {
    AuditDevice::new(HostDevice::builder().memory_limit(bytes).build())
}

/// A hook that does this before each allocation of the driver.
fn gated(pass: impl Fn() + Send + Sync + 'static) -> impl Hook + 'static {
    Tap::new("gate", HookCalls::BEFORE_ALLOCATION, move |_, _| pass())
}

fn exact(device: &Device) -> PoolBuilder<Device> {
    Pool::builder(device).size_classes(SizeClasses::EXACT)
}

/// Returns what refused a request of so many bytes, which must end while the driver does not answer.
fn refused(pool: &Pool<Device>, bytes: u64, timeout: Duration) -> Shortage {
    let (pool, stream) = (pool.clone(), pool.device().create_stream().expect("a stream"));
    let (done, is_done) = mpsc::channel();
    let thread = thread::spawn(move || done.send(pool.allocate_timeout(bytes, &stream, timeout).map(drop)));
    let answer = is_done.recv_timeout(SOON).expect("it ends with its time");
    // Its handle of the pool is not the last one.
    thread.join().expect("no panic").expect("it is received");
    let error = answer.expect_err("nothing serves it");
    error.out_of_memory().expect("a lack of memory").shortage.clone()
}

/// As [`refused`], again until a call of the driver for it does not end: on a loaded machine a request without time may
/// end before it calls.
fn refused_in_call(pool: &Pool<Device>, bytes: u64, timeout: Duration, at_gate: &Receiver<()>) -> Shortage {
    loop {
        let shortage = refused(pool, bytes, timeout);
        if at_gate.try_recv().is_ok() {
            return shortage;
        }
    }
}

const TIMES: [Duration; 2] = [Duration::ZERO, Duration::from_millis(20)];

#[test]
fn an_allocation_that_blocks_delays_no_request_beyond_its_timeout() -> Answer {
    for timeout in TIMES {
        let device = device(1 << 20);
        let ((pass, at_gate, open), stream) = (gate(), device.create_stream()?);
        let pool = exact(&device).hook(gated(pass)).build()?;
        let shortage = refused_in_call(&pool, 512 * KIB, timeout, &at_gate);
        assert_eq!(shortage, Shortage::Deadline, "{timeout:?}");
        let failed = pool.stats().failed;
        assert_eq!((failed.by_timeout, pool.waiting_requests()), (failed.total(), 0), "{timeout:?}");
        drop(open);
        // Memory that arrives later serves later requests.
        until(|| pool.stats().idle_bytes == 512 * KIB);
        drop(pool.allocate_timeout(512 * KIB, &stream, timeout)?);
        assert_eq!((device.allocations(), pool.stats().served.by_bucket), (1, 1));
        drop(pool);
        until(|| device.taken() == 0);
    }
    Ok(())
}

#[test]
fn a_free_that_blocks_delays_no_request_beyond_its_timeout() -> Answer {
    for (source, timeout) in
        [Source::Direct, Source::Driver].into_iter().flat_map(|source| TIMES.map(|time| (source, time)))
    {
        let (device, (pass, at_gate, open)) = (device(1 << 20), gate());
        let stream = device.create_stream()?;
        let pool = exact(&device).source(source).limit(64 * KIB).build()?;
        // In this thread's magazine, and in the bucket.
        drop((pool.allocate(16 * KIB, &stream)?, pool.allocate(16 * KIB, &stream)?));
        device.before_drop(pass);
        refused_in_call(&pool, 64 * KIB, timeout, &at_gate);
        assert_eq!(pool.waiting_requests(), 0);
        let here = pool.allocate_timeout(48 * KIB, &stream, timeout);
        assert!(here.is_err_and(|error| error.is_out_of_memory()));
        drop(open);
        drop(pool.allocate_timeout(64 * KIB, &stream, SOON)?);
        device.forget_hook();
    }
    Ok(())
}

/// Another request, which the device refused, releases memory meanwhile.
#[test]
fn a_turn_at_the_device_that_does_not_come_delays_no_request_beyond_its_timeout() -> Answer {
    for timeout in TIMES {
        let (device, (pass, at_gate, open)) = (device(64 * KIB), gate());
        let stream = device.create_stream()?;
        let pool = exact(&device).magazine_bytes(0).build()?;
        drop(pool.allocate(48 * KIB, &stream)?);
        device.before_drop(pass);
        thread::scope(|scope| {
            let first = scope.spawn(|| pool.allocate(64 * KIB, &stream).map(drop));
            at_gate.recv().expect("it releases idle memory");
            refused(&pool, 60 * KIB, timeout);
            assert_eq!(pool.waiting_requests(), 0);
            drop(open);
            first.join().expect("no panic")
        })?;
        device.forget_hook();
    }
    Ok(())
}

#[test]
fn a_request_without_time_makes_the_calls_of_one_without_a_deadline() -> Answer {
    let device = device(1 << 20);
    let (pool, stream) = (exact(&device).build()?, device.create_stream()?);
    let _live = pool.allocate(768 * KIB, &stream)?;
    let calls = || device.inner().faults().calls(Call::Allocate);
    let before = calls();
    assert!(pool.allocate(512 * KIB, &stream).is_err());
    let of_allocate = calls() - before;
    let mut of_timeout = 0;
    // On a loaded machine the time may end before.
    while of_timeout < of_allocate {
        let before = calls();
        assert!(pool.allocate_timeout(512 * KIB, &stream, Duration::ZERO).is_err());
        of_timeout = calls() - before;
    }
    assert_eq!(of_timeout, of_allocate);
    Ok(())
}

/// A call that ends after the deadline is the last one for its request.
#[test]
fn no_rung_begins_after_the_deadline() -> Answer {
    for timeout in TIMES {
        let (device, (pass, at_gate, open)) = (device(1 << 20), gate());
        let stream = device.create_stream()?;
        let pool = exact(&device).hook(gated(pass)).build()?;
        // Nothing passes the gate unasked.
        open.send(()).expect("it is there");
        let _live = pool.allocate(768 * KIB, &stream)?;
        at_gate.recv().expect("it asked");
        let (calls, trims) = (device.inner().faults().calls(Call::Allocate), pool.stats().rungs.trim);
        assert_eq!(refused_in_call(&pool, 512 * KIB, timeout, &at_gate), Shortage::Deadline);
        drop(open);
        until(|| pool.stats().in_transit_bytes == 0);
        assert_eq!(device.inner().faults().calls(Call::Allocate), calls + 1, "{timeout:?}");
        assert_eq!((pool.stats().rungs.trim, pool.waiting_requests()), (trims, 0));
    }
    Ok(())
}

/// A driver that takes its time now and then.
fn take_time() {
    if fastrand::u8(..) == 0 {
        thread::sleep(Duration::from_millis(fastrand::u64(1..=8)));
    }
}

/// Requests in all, by `VRAMPOOL_TEST_REQUESTS`.
fn operations() -> u64 {
    let count = std::env::var("VRAMPOOL_TEST_REQUESTS").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(10_000)
}

/// Random requests of several threads on a driver that is slow at times: each counts once, and nothing is lost.
#[test]
fn requests_that_end_before_their_calls_lose_nothing() -> Answer {
    const THREADS: u64 = 4;
    let device = device(1 << 20);
    let pool = exact(&device).limit(768 * KIB).hook(gated(take_time)).build()?;
    device.before_drop(take_time);
    let count = operations() / THREADS;
    let (served, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let (latest, beyond) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for seed in 0..THREADS {
            let (pool, device, served, refused) = (&pool, &device, &served, &refused);
            let (latest, beyond) = (&latest, &beyond);
            scope.spawn(move || {
                let stream = device.create_stream().expect("a stream");
                let mut random = fastrand::Rng::with_seed(seed);
                let mut live = VecDeque::new();
                for _ in 0..count {
                    let (bytes, micros) = (random.u64(1..=256 * KIB), random.u64(..2000));
                    let timeout = Duration::from_micros(if random.bool() { micros } else { 0 });
                    let began = Instant::now();
                    let answer = pool.allocate_timeout(bytes, &stream, timeout);
                    let over = began.elapsed().saturating_sub(timeout).as_micros() as u64;
                    latest.fetch_max(over, Relaxed);
                    beyond.fetch_add(u64::from(over > 5000), Relaxed);
                    match answer {
                        Ok(buffer) => {
                            served.fetch_add(1, Relaxed);
                            live.push_back(buffer);
                        }
                        Err(error) => {
                            refused.fetch_add(1, Relaxed);
                            assert!(error.is_out_of_memory(), "{error}");
                        }
                    }
                    assert!(device.taken() <= 768 * KIB);
                    if live.len() > random.usize(..4) {
                        live.pop_front();
                    }
                }
            });
        }
    });
    println!("{served:?} served, {refused:?} refused; latest {latest:?} us, {beyond:?} beyond 5 ms");
    assert_eq!(pool.waiting_requests(), 0);
    until(|| (pool.stats().live_buffers, pool.stats().in_transit_bytes) == (0, 0));
    let stats = pool.stats();
    assert_eq!(stats.failed.total(), refused.into_inner());
    // A call that ended after its deadline counts as a miss as well.
    assert!(stats.served.total() >= served.into_inner(), "{stats:?}");
    pool.close();
    until(|| (pool.stats().held_bytes, device.taken()) == (0, 0));
    Ok(())
}

#[test]
fn memory_that_a_request_leaves_is_freed_without_another_call() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).build().expect("a pool");
    // In this thread's magazines, until its next call.
    drop([1024, 4096].map(|bytes| pool.allocate(bytes, &stream).expect("memory")));
    thread::scope(|scope| {
        // The end of that thread leaves an idle block in the depot, after the trim.
        scope.spawn(|| pool.trim().map(|_| drop(pool.allocate(4096, &stream)))).join().expect("no panic")
    })
    .expect("a trim");
    let served = pool.allocate_timeout(4096, &stream, Duration::from_secs(60)).expect("memory");
    let began = Instant::now();
    while pool.stats().in_transit_bytes > 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing frees it: {}", pool.stats());
        thread::yield_now();
    }
    assert_eq!((pool.stats().held_bytes, served.capacity()), (4096, 4096));
}
