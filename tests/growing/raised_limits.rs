//! Limits that are raised and lowered at run time: the range has two parts, and the first one ends where it ended under
//! the first limit.

use super::streams::{place, stall};
use super::{PAGE, pattern, scene};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::Duration;
use vrampool::arena::{DeviceArena, Zone};
use vrampool::hooks::{HookCalls, HookEvent};
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Error, Pool, Source};
use vrampool_test_support::Tap;

/// Addresses behind the first part belong to the second one.
#[test]
fn small_requests_leave_a_full_first_part_for_the_second() {
    let scene = scene(|builder| builder.limit(16 * PAGE));
    let large = scene.live(4 * PAGE, 0, 1).expect("memory");
    scene.arena.resize(256 * PAGE).expect("the device has it");
    // Each is of the first part as long as that has room.
    let small: Vec<_> =
        (2..130).map(|seed| scene.live(PAGE / 4, 0, seed).expect("the limit has room")).collect();
    assert_eq!(scene.arena.capacity_of(Zone::Stable), 16 * PAGE, "the first part is full");
    for live in small.iter().chain([&large]) {
        scene.check(live, 0);
    }
    scene.check_books(small.iter().chain([&large]));
    drop((small, large));
    scene.check_end();
}

/// A full first part has nothing that serves a small request without a wait, so the second part grows for it.
#[test]
fn small_requests_wait_for_no_stream_where_the_first_part_is_full() {
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build();
    let [own, other] = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(16 * PAGE).growing().build().expect("an arena");
    let _large = arena.allocate(4 * PAGE, &other).expect("memory");
    arena.resize(256 * PAGE).expect("the device has it");
    let mut small: Vec<_> =
        (0..64).map(|_| arena.allocate(PAGE / 4, &own).expect("the limit has room")).collect();
    assert_eq!(arena.capacity_of(Zone::Stable), 16 * PAGE, "the first part is full");
    let (go_on, _) = stall(&own);
    small.truncate(60);
    let (done, served) = mpsc::channel();
    let asking = arena.clone();
    std::thread::spawn(move || {
        let block = asking.allocate(PAGE / 4, &other).expect("the limit has room");
        done.send((place(&block), asking.stream_waits())).expect("it listens");
    });
    let (place, waits) = served.recv_timeout(Duration::from_secs(60)).expect("the request ends");
    assert_eq!((place, waits), (20 * PAGE, 0), "new memory behind the large block");
    go_on.send(()).expect("it listens");
}

/// Calls the pool in the middle of the pool's calls.
#[derive(Debug, Default)]
struct Intruder {
    pool: OnceLock<Weak<Pool<HostDevice>>>,
    calls: AtomicU64,
}

/// Bytes of a request: mostly of the first part, at times more than a piece.
fn bytes() -> u64 {
    match fastrand::u64(..8) {
        0 => 1 + fastrand::u64(..12 * PAGE),
        1 => 1 + fastrand::u64(..4 * PAGE),
        _ => 1 + fastrand::u64(..PAGE / 4),
    }
}

fn check(error: &Error) {
    assert!(error.is_out_of_memory(), "{error}");
}

impl Intruder {
    fn intrude(&self, event: &HookEvent<'_>) {
        let Some(pool) = self.pool.get().and_then(Weak::upgrade).filter(|_| fastrand::u64(..8) == 0) else {
            return;
        };
        self.calls.fetch_add(1, Ordering::Relaxed);
        match fastrand::u64(..3) {
            0 => drop(pool.trim()),
            1 => assert!(pool.stats().reserved_bytes < u64::MAX),
            _ => {
                let stream = pool.device().create_stream().expect("a stream");
                if let Err(error) = pool.allocate(event.requested_bytes, &stream) {
                    check(&error);
                }
            }
        }
    }
}

const LIMIT: u64 = 64 * PAGE;

/// The work of one thread: requests, frees, and changes of the limit, which is unset at times.
fn work(pool: &Pool<HostDevice>, seed: u64) {
    fastrand::seed(seed);
    let stream = pool.device().create_stream().expect("a stream");
    let mut live: Vec<(Buffer<HostDevice>, u64)> = Vec::new();
    for step in 0..300 {
        if fastrand::u64(..40) == 0 {
            let limit =
                if fastrand::u64(..2) == 0 { None } else { Some(LIMIT + fastrand::u64(..16 * LIMIT)) };
            // Refused while more is in use.
            if let Err(error) = pool.set_limit(limit) {
                assert!(error.arena().is_some(), "{error}");
            }
        }
        let bytes = bytes();
        match pool.allocate(bytes, &stream) {
            Ok(mut buffer) => {
                buffer.write(&pattern(step, bytes), &stream).expect("no fault");
                live.push((buffer, step));
            }
            Err(error) => check(&error),
        }
        while live.len() > 64 || !live.is_empty() && fastrand::u64(..8) < 2 {
            let (buffer, written) = live.swap_remove(fastrand::usize(..live.len()));
            let mut bytes = vec![0; buffer.len() as usize];
            buffer.read(&mut bytes, &stream).expect("no fault");
            assert!(bytes == pattern(written, buffer.len()), "what was written was spoilt");
        }
    }
}

#[test]
fn a_random_schedule_of_limits_fails_for_lack_of_memory_alone() {
    for seed in 0..12 {
        let device = HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build();
        let intruder = Arc::new(Intruder::default());
        let builder = Pool::builder(&device).source(Source::Virtual).limit(LIMIT);
        let of_hook = Arc::clone(&intruder);
        let calls = HookCalls::AFTER_REQUEST | HookCalls::BEFORE_FREE;
        let hook = Tap::new("intruder", calls, move |_, event| of_hook.intrude(event));
        let pool = Arc::new(builder.hook(hook).build().expect("a pool"));
        intruder.pool.set(Arc::downgrade(&pool)).expect("it is set once");
        std::thread::scope(|scope| {
            let pool = &pool;
            let threads = 2 + seed % 6;
            let works: Vec<_> =
                (0..threads).map(|nth| scope.spawn(move || work(pool, seed << 8 | nth))).collect();
            // Threads that are joined have returned the idle blocks of their magazines.
            works.into_iter().for_each(|work| work.join().expect("no fault"));
        });
        assert!(intruder.calls.load(Ordering::Relaxed) > 0, "no hook called the pool");
        pool.trim().expect("no fault");
        drop(pool);
        let info = device.memory_info().expect("no fault");
        assert_eq!((info.total_bytes - info.free_bytes, device.races()), (0, 0), "seed {seed}");
    }
}
