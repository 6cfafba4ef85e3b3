//! A request that can be served is served: whatever its thread keeps, whatever else asks the device, and whatever
//! hooks do meanwhile.

use crate::{KIB, LONG, pool_of, until_waiting};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use vrampool::backend::{HookEvent, Outcome};
use vrampool::hooks::Hook;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Error, Pool, SizeClasses};

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
        until_waiting(pool, 1);
        go.send(()).expect("it listens");
        until_waiting(pool, 2);
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
        while pool.waiting_requests() == 0 || pool.stats().rungs.trim == 0 {
            thread::yield_now();
        }
        go.send(()).expect("it listens");
        let answer = waiting.join().expect("no panic");
        drop(end);
        answer
    })
}

/// Holds up requests of some bytes as they end.
#[derive(Debug)]
struct Gate {
    bytes: u64,
    reached: Mutex<Sender<()>>,
    open: Mutex<Receiver<()>>,
}

impl Hook for Gate {
    fn name(&self) -> &str {
        "gate"
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        if event.requested_bytes == self.bytes && event.outcome != Outcome::Failed {
            let _ = self.reached.lock().expect("no panic").send(());
            let _ = self.open.lock().expect("no panic").recv();
        }
    }
}

type Gated = (Pool<HostDevice>, HostStream, Receiver<()>, Sender<()>);

/// A pool of 256 KiB whose requests of 128 KiB are held up as they end.
fn gated() -> Result<Gated, Error> {
    let device = HostDevice::new();
    let ((reached, at_gate), (open, gate)) = (mpsc::channel(), mpsc::channel());
    let gate = Gate { bytes: 128 * KIB, reached: Mutex::new(reached), open: Mutex::new(gate) };
    let builder = Pool::builder(&device).limit(256 * KIB).size_classes(SizeClasses::EXACT);
    Ok((builder.hook(gate).build()?, device.create_stream()?, at_gate, open))
}

fn until_one_waits(pool: &Pool<HostDevice>, requests: u64) {
    while pool.waiting_requests() < requests {
        thread::yield_now();
    }
}

/// Served from idle memory, its bytes are live and no longer awaited, while its hooks run.
#[test]
fn a_served_request_no_longer_reserves_bytes() -> Answer {
    let (pool, stream, at_gate, open) = gated()?;
    // Of the waiting request's class, and of other requested bytes.
    let (first, second) = (pool.allocate(128 * KIB - 1, &stream)?, pool.allocate(128 * KIB - 1, &stream)?);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.allocate_timeout(128 * KIB, &stream, LONG).map(drop));
        until_one_waits(&pool, 1);
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
        until_one_waits(&pool, 1);
        let ((done, is_done), (pool, stream)) = (mpsc::channel(), (&pool, &stream));
        scope.spawn(move || done.send(pool.allocate_timeout(200 * KIB, stream, LONG).map(drop)));
        until_one_waits(pool, 2);
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

/// Allocates in each of its calls, and counts the answers.
#[derive(Debug)]
struct Nested {
    pool: OnceLock<Pool<HostDevice>>,
    stream: HostStream,
    at_device: bool,
    answers: AtomicU64,
}

impl Nested {
    fn allocate(&self) {
        thread_local! {
            static IS_NESTED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
        }
        if let Some(pool) = self.pool.get().filter(|_| !IS_NESTED.replace(true)) {
            let _ = pool.allocate(192 * KIB, &self.stream);
            self.answers.fetch_add(1, Relaxed);
            IS_NESTED.set(false);
        }
    }
}

impl Hook for Nested {
    fn name(&self) -> &str {
        "nested"
    }

    fn before_allocation(&self, _: &HookEvent<'_>) {
        if self.at_device {
            self.allocate();
        }
    }

    fn after_request(&self, _: &HookEvent<'_>) {
        if !self.at_device {
            self.allocate();
        }
    }
}

/// A hook may use the pool, also while its request asks a device that refused it.
#[test]
fn a_hook_that_allocates_does_not_wait_for_its_own_request() -> Answer {
    for at_device in [true, false] {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let stream = device.create_stream()?;
        let (pool, answers) = (OnceLock::new(), AtomicU64::new(0));
        let hook = Arc::new(Nested { pool, stream: stream.clone(), at_device, answers });
        let builder = Pool::builder(&device).size_classes(SizeClasses::EXACT).hook(Arc::clone(&hook));
        let pool = builder.build()?;
        let live = pool.allocate(640 * KIB, &stream)?;
        hook.pool.set(pool.clone()).expect("once");
        let (done, is_done) = mpsc::channel();
        thread::spawn(move || done.send(pool.allocate(512 * KIB, &stream).map(drop)));
        let refused = is_done.recv_timeout(SOON).expect("it does not wait for itself");
        assert!(refused.is_err_and(|error| error.is_out_of_memory()));
        assert!(hook.answers.load(Relaxed) > 0);
        drop(live);
    }
    Ok(())
}

/// Memory that becomes idle serves a request that waits for other memory to be released.
#[test]
fn idle_memory_ends_a_wait_for_a_release() -> Answer {
    let device = vrampool_test_support::AuditDevice::new(HostDevice::new());
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
        while pool.stats().rungs.wait == 0 {
            thread::yield_now();
        }
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
        until_one_waits(&pool, 1);
        pool.set_limit(6 << 20)?;
        drop(live);
        waiting.join().expect("no panic")
    })
}
