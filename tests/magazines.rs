//! What threads keep to themselves: a hit costs no call of the driver and no heap, and what is kept comes
//! back.

use fastrand::Rng;
use proptest::prelude::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Instant;
use vrampool::fitted::FittedClasses;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, Buffer, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_test_support::{AuditDevice, has_virtual_memory};

type Device = AuditDevice<HostDevice>;

const KIB: u64 = 1024;

/// Counts each thread's calls of the heap.
struct Counting;

thread_local! {
    static HEAP_CALLS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending counts no more.
    let _ = HEAP_CALLS.try_with(|calls| calls.set(calls.get() + 1));
}

// SAFETY: it is the system's allocator, and counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static HEAP: Counting = Counting;

fn device() -> Device {
    AuditDevice::new(HostDevice::builder().memory_limit(1 << 40).build())
}

fn pool(device: &Device, settings: impl FnOnce(PoolBuilder<Device>) -> PoolBuilder<Device>) -> Pool<Device> {
    settings(Pool::builder(device)).build().expect("good settings")
}

/// Both sides of a hit, for each of the given sizes in turn.
fn pairs(pool: &Pool<Device>, stream: &<Device as Backend>::Stream, sizes: &[u64], rounds: usize) {
    for _ in 0..rounds {
        for &bytes in sizes {
            drop(pool.allocate(bytes, stream).expect("memory"));
        }
    }
}

#[test]
fn a_hit_calls_neither_the_driver_nor_the_heap_and_still_counts() {
    let fitted = SizeClasses::Fitted(FittedClasses::new([1024, 64 * KIB]).expect("sizes"));
    for classes in
        [SizeClasses::Fixed, SizeClasses::PowerOfTwo, SizeClasses::GEOMETRIC, SizeClasses::EXACT, fitted]
    {
        let (device, sizes) = (device(), [1000, 4 * KIB, 60_000, 64 * KIB, 1024 * KIB]);
        let pool = pool(&device, |builder| builder.size_classes(classes.clone()));
        let stream = device.create_stream().expect("a stream");
        #[cfg(feature = "metrics")]
        let publisher = {
            let publisher = vrampool::telemetry::Publisher::start(std::time::Duration::from_millis(1));
            let publisher = publisher.expect("an interval");
            publisher.add(&pool).expect("a name of its own");
            publisher
        };
        pairs(&pool, &stream, &sizes, 3);
        let calls = |call| device.inner().faults().calls(call);
        let every = || [Call::Allocate, Call::Record, Call::Wait].map(calls);
        let before = (pool.stats(), every(), device.frees());
        let heap = HEAP_CALLS.get();
        pairs(&pool, &stream, &sizes, 1000);
        assert_eq!(HEAP_CALLS.get(), heap, "{classes}");
        let after = pool.stats();
        assert_eq!((every(), device.frees()), (before.1, before.2), "{classes}");
        let hits = after.hits - before.0.hits;
        assert_eq!((hits, after.misses), (1000 * sizes.len() as u64, before.0.misses), "{classes}");
        #[cfg(feature = "metrics")]
        drop(publisher);
    }
}

/// Two threads that do what they are told, one after the other.
struct Turns {
    tell: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    done: mpsc::Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Turns {
    fn new() -> Self {
        let (tell, told) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (finish, done) = mpsc::channel();
        let thread = thread::spawn(move || {
            for task in told {
                task();
                finish.send(()).expect("somebody waits");
            }
        });
        Self { tell, done, thread: Some(thread) }
    }

    fn run(&self, task: impl FnOnce() + Send + 'static) {
        self.tell.send(Box::new(task)).expect("it listens");
        self.done.recv().expect("no panic");
    }

    /// Ends the thread, its thread-local variables too.
    fn end(self) {
        let Self { tell, done, thread } = self;
        drop((tell, done));
        thread.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

/// Has a thread drop a buffer, which it keeps.
fn keep(other: &Turns, pool: &Pool<Device>, bytes: u64) {
    let (pool, stream) = (pool.clone(), pool.device().create_stream().expect("a stream"));
    other.run(move || drop(pool.allocate(bytes, &stream).expect("memory")));
}

#[test]
fn what_another_thread_has_out_is_live_and_what_it_keeps_is_idle() {
    let device = device();
    let pool = pool(&device, |builder| builder);
    let other = Turns::new();
    let (give, take) = mpsc::channel();
    let (worker, stream) = (pool.clone(), device.create_stream().expect("a stream"));
    other.run(move || {
        let allocate = |bytes| worker.allocate(bytes, &stream).expect("memory");
        // Out and back over and over; then two stay out, one of them from below another.
        for _ in 0..3 {
            drop((allocate(3000), allocate(60_000), allocate(3500)));
            drop(allocate(3000));
        }
        give.send((allocate(50_000), allocate(3100))).expect("somebody takes it");
    });
    let stats = pool.stats();
    assert_eq!((stats.live_buffers, stats.live_bytes), (2, 68 * KIB), "{stats:?}");
    assert_eq!((stats.requested_bytes, stats.idle_bytes), (53_100, 4 * KIB), "{stats:?}");
    assert_eq!((stats.misses, stats.hits), (3, 11));
    drop(take.recv().expect("they were given"));
    let stats = pool.stats();
    assert_eq!((stats.live_buffers, stats.requested_bytes, stats.idle_bytes), (0, 0, 72 * KIB), "{stats:?}");
    other.end();
}

#[test]
fn a_peak_within_the_magazines_is_seen_afterwards() {
    let device = device();
    let pool = pool(&device, |builder| builder);
    let stream = device.create_stream().expect("a stream");
    let allocate = |bytes| pool.allocate(bytes, &stream).expect("memory");
    for _ in 0..3 {
        drop(allocate(4 * KIB));
        drop(allocate(64 * KIB));
    }
    let first = allocate(64 * KIB);
    drop(allocate(64 * KIB));
    // From here on nothing goes by the shared buckets. What came back last goes out again, and another on top
    // of it.
    let both = (allocate(64 * KIB), allocate(4 * KIB));
    drop((both, first));
    let stats = pool.stats();
    assert_eq!((stats.misses, stats.hits), (3, 7));
    assert_eq!((stats.peak.live_bytes, stats.peak.requested_bytes), (132 * KIB, 132 * KIB), "{stats:?}");
}

/// What was no new peak by itself is one beside another.
#[test]
fn a_peak_of_two_that_were_out_by_themselves_is_seen_too() {
    let device = device();
    let pool = pool(&device, |builder| builder);
    let stream = device.create_stream().expect("a stream");
    let allocate = |bytes| pool.allocate(bytes, &stream).expect("memory");
    drop((allocate(4 * KIB), allocate(64 * KIB)));
    pool.reset_peaks();
    for _ in 0..3 {
        drop(allocate(64 * KIB));
    }
    let other = allocate(4 * KIB);
    drop(allocate(64 * KIB));
    drop(other);
    assert_eq!(pool.stats().peak.live_bytes, 68 * KIB);
}

#[test]
fn what_a_thread_keeps_others_do_not_get_until_it_ends() {
    let device = device();
    let pool = pool(&device, |builder| builder);
    let stream = device.create_stream().expect("a stream");
    let other = Turns::new();
    keep(&other, &pool, 4 * KIB);
    assert_eq!((pool.stats().idle_bytes, pool.stats().live_bytes), (4 * KIB, 0), "it is idle");
    let mine = pool.allocate(4 * KIB, &stream).expect("memory");
    assert_eq!(pool.stats().misses, 2, "and not to be had");
    other.end();
    let another = pool.allocate(4 * KIB, &stream).expect("memory");
    assert_eq!((pool.stats().misses, pool.stats().hits), (2, 1));
    drop((mine, another));
}

#[test]
fn without_magazines_everything_is_everybodys() {
    for off in [
        |builder: PoolBuilder<Device>| builder.magazine_bytes(0),
        |builder: PoolBuilder<Device>| builder.magazine_class(0),
    ] {
        let device = device();
        let pool = pool(&device, off);
        let other = Turns::new();
        keep(&other, &pool, 4 * KIB);
        drop(pool.allocate(4 * KIB, &device.create_stream().expect("a stream")).expect("memory"));
        assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
        other.end();
    }
}

#[test]
fn a_trim_reaches_a_thread_at_its_next_call() {
    let device = device();
    let pool = pool(&device, |builder| builder);
    let other = Turns::new();
    keep(&other, &pool, 4 * KIB);
    keep(&other, &pool, 64 * KIB);
    assert_eq!(pool.trim().expect("a trim"), 0, "there is nothing but what the thread keeps");
    assert_eq!(device.taken(), 68 * KIB);
    keep(&other, &pool, KIB);
    assert_eq!((device.taken(), pool.stats().idle_bytes), (KIB, KIB), "its next call was after the trim");
    pool.trim_to(KIB).expect("a trim");
    keep(&other, &pool, KIB);
    assert_eq!(pool.stats().hits, 1, "there was nothing to trim");
    other.end();
    assert_eq!(pool.trim().expect("a trim"), KIB);
    assert_eq!(device.taken(), 0);
}

#[test]
fn a_closed_pools_memory_comes_back_when_the_thread_visits_another() {
    let device = device();
    let (first, second) = (pool(&device, |builder| builder), pool(&device, |builder| builder));
    let other = Turns::new();
    keep(&other, &first, 4 * KIB);
    drop(first);
    assert_eq!(device.taken(), 4 * KIB, "at most what a thread may keep is still there");
    keep(&other, &second, KIB);
    assert_eq!(device.taken(), KIB);
    drop(second);
    assert_eq!(device.taken(), KIB);
    other.end();
    wait_until_free(&device);
}

/// Memory of closed pools that threads left is freed by somebody else.
fn wait_until_free(device: &Device) {
    while device.taken() > 0 {
        thread::yield_now();
    }
}

/// Whatever became of the pool meanwhile: destructors of memory may need thread-local variables that are gone
/// at a thread's end.
#[test]
fn a_thread_that_ends_frees_nothing_itself() {
    for (trims, closes) in [(false, false), (true, false), (false, true), (true, true)] {
        let device = device();
        let freed_by = Arc::new(Mutex::new(Vec::new()));
        device.on_drop({
            let freed_by = Arc::clone(&freed_by);
            move || freed_by.lock().expect("no panic").push(thread::current().id())
        });
        let (mut first, other) = (Some(pool(&device, |builder| builder)), Turns::new());
        if let Some(pool) = &first {
            keep(&other, pool, 4 * KIB);
            keep(&other, pool, 64 * KIB);
            if trims {
                pool.trim().expect("a trim");
            }
        }
        if closes {
            first = None;
        }
        assert_eq!(device.taken(), 68 * KIB, "the thread has it");
        let id = other.thread.as_ref().expect("it runs").thread().id();
        other.end();
        if let Some(pool) = first {
            let stats = pool.stats();
            assert_eq!((stats.idle_bytes, stats.held_bytes), (68 * KIB, 68 * KIB), "it is idle in the depot");
            assert_eq!(pool.trim().expect("a trim"), 68 * KIB);
        }
        wait_until_free(&device);
        // The hook is called last.
        while freed_by.lock().expect("no panic").len() < 2 {
            thread::yield_now();
        }
        device.forget_hook();
        let freed_by = freed_by.lock().expect("no panic");
        assert!(freed_by.len() == 2 && !freed_by.contains(&id), "trims {trims}, closes {closes}");
    }
}

/// Pools that are closed again and again, with threads that end before, meanwhile and after.
#[test]
fn nothing_is_lost_between_pools_that_close_and_threads_that_end() {
    let device = device();
    for round in 0..200 {
        let pool = pool(&device, |builder| builder);
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let (pool, stream) = (pool.clone(), device.create_stream().expect("a stream"));
                thread::spawn(move || drop(pool.allocate(4 * KIB, &stream).expect("memory")))
            })
            .collect();
        if round % 2 == 0 {
            drop(pool);
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        } else {
            threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
            drop(pool);
        }
    }
    wait_until_free(&device);
}

#[test]
fn a_device_without_memory_calls_magazines_back() {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    let pool = pool(&device, |builder| builder.limit(1040 * KIB).magazine_bytes(64 * KIB));
    let other = Turns::new();
    keep(&other, &pool, 64 * KIB);
    let allocate = |_| pool.allocate(64 * KIB, &stream).expect("there is room");
    let live: Vec<_> = (0..15).map(allocate).collect();
    let error = pool.allocate(60 * KIB, &stream).expect_err("the other thread has idle what is missing");
    assert!(error.is_out_of_memory(), "{error}");
    assert!(error.to_string().contains("64.0 KiB idle"), "{error}");
    // It is asked for it: its next call gives it back.
    keep(&other, &pool, KIB);
    drop(pool.allocate(60 * KIB, &stream).expect("there is room"));
    drop(live);
    other.end();
}

#[test]
fn one_thread_gets_its_own_idle_memory_back_before_it_fails() {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    let pool = pool(&device, |builder| builder.limit(64 * KIB).magazine_bytes(64 * KIB));
    for bytes in [KIB, 4 * KIB, 16 * KIB, 64 * KIB, KIB, 64 * KIB] {
        drop(pool.allocate(bytes, &stream).expect("what is idle makes room"));
        assert!(device.peak() <= 64 * KIB);
    }
}

/// One thread allocates and another drops, over and over: memory goes round between them.
#[test]
fn hand_overs_do_not_drift_memory_to_one_side() {
    const BATCH: usize = 24;
    let device = device();
    let pool = pool(&device, |builder| builder.max_buffers_per_bucket(128));
    let (give, take) = mpsc::sync_channel::<Vec<Buffer<Device>>>(1);
    let dropping = thread::spawn(move || take.into_iter().for_each(drop));
    let stream = device.create_stream().expect("a stream");
    for _ in 0..2000 {
        let batch = (0..BATCH).map(|_| pool.allocate(4 * KIB, &stream).expect("memory")).collect();
        give.send(batch).expect("it listens");
    }
    drop(give);
    dropping.join().expect("no panic");
    let stats = pool.stats();
    // Three batches are on their way at a time, and each side keeps some.
    assert!(stats.source.allocations <= 256, "{stats:?}");
    assert!(stats.hit_rate() > 0.99, "{stats:?}");
}

/// All of the limit is live at times. In an arena, which has holes between its blocks, less. A thread that
/// makes no call for a tenth of a second, because the machine runs others, is not waited for any longer.
#[test]
fn no_thread_is_refused_for_what_others_keep_idle() {
    const THREADS: u64 = 16;
    const WAITED_FOR: u64 = 100;
    for (source, most) in [(Source::Direct, 4 << 20), (Source::Virtual, 3 << 20)] {
        let device = device();
        if source == Source::Virtual && !has_virtual_memory(&device) {
            continue;
        }
        let limit = 64 << 20;
        let pool = pool(&device, |builder| {
            let exact = builder.size_classes(SizeClasses::PowerOfTwo).borrow_classes(0);
            exact.source(source).limit(limit).magazine_bytes(8 << 20)
        });
        let start = Barrier::new(THREADS as usize);
        // When each thread began its last call, in milliseconds.
        let (began, calls) = (Instant::now(), [const { AtomicU64::new(u64::MAX) }; THREADS as usize]);
        let now = || began.elapsed().as_millis() as u64;
        let somebody_is_silent =
            || calls.iter().any(|call| now().saturating_sub(call.load(Ordering::Relaxed)) >= WAITED_FOR);
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let (pool, device, start, call) = (&pool, &device, &start, &calls[seed as usize]);
                let (now, somebody_is_silent) = (&now, &somebody_is_silent);
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    let mut rng = Rng::with_seed(seed);
                    let (mut live, mut bytes) = (Vec::new(), 0);
                    start.wait();
                    for _ in 0..20_000 {
                        let size = 4096 << rng.u64(..9);
                        while bytes + size > most {
                            let gone: Buffer<Device> = live.swap_remove(rng.usize(..live.len()));
                            bytes -= gone.len();
                        }
                        let buffer = loop {
                            call.store(now(), Ordering::Relaxed);
                            match pool.allocate(size, &stream) {
                                Ok(buffer) => break buffer,
                                Err(error) => assert!(somebody_is_silent(), "{error}"),
                            }
                        };
                        live.push(buffer);
                        bytes += size;
                    }
                    call.store(u64::MAX, Ordering::Relaxed);
                });
            }
        });
        assert!(pool.stats().source.reserved_bytes <= limit);
    }
}

/// What a thread keeps idle reaches others at its next call, and a request waits for that.
#[test]
fn a_request_waits_for_what_a_running_thread_keeps_idle() {
    for limited in [true, false] {
        let device = AuditDevice::new(HostDevice::builder().memory_limit(1024 * KIB).build());
        let pool = pool(&device, |builder| {
            let limit = if limited { 1024 * KIB } else { u64::MAX };
            builder.size_classes(SizeClasses::Multiple(KIB)).borrow_classes(0).limit(limit)
        });
        let stream = device.create_stream().expect("a stream");
        let (keeps, has_kept) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (pool, device) = (&pool, &device);
            scope.spawn(move || {
                let stream = device.create_stream().expect("a stream");
                pairs(pool, &stream, &[60 * KIB, 40 * KIB, 20 * KIB], 10);
                keeps.send(()).expect("somebody waits");
                while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    pairs(pool, &stream, &[KIB], 1);
                }
            });
            has_kept.recv().expect("it works");
            assert!(pool.stats().idle_bytes >= 100 * KIB);
            let sizes = [100 * KIB; 10].into_iter().chain([22 * KIB]);
            let allocate = |bytes| pool.allocate(bytes, &stream).expect("the other thread gives it back");
            let live: Vec<_> = sizes.map(allocate).collect();
            drop((end, live));
        });
    }
}

/// Threads that find no slot left get some from those that have them.
#[test]
fn slots_go_to_threads_that_need_them() {
    let device = device();
    let pool = pool(&device, |builder| builder.max_buffers_per_bucket(4).max_cached_bytes(None));
    let others: Vec<Turns> = (0..8).map(|_| Turns::new()).collect();
    for _ in 0..300 {
        others.iter().for_each(|other| keep(other, &pool, 4 * KIB));
    }
    let stats = pool.stats();
    assert!(stats.peak.idle_bytes <= 4 * 4 * KIB, "{stats:?}");
    // Eight threads share four slots; half of what they drop can be kept at best.
    assert!(stats.hit_rate() > 0.3, "{stats:?}");
    others.into_iter().for_each(Turns::end);
}

/// Buffers dropped when a thread's own thread-local variables go, in whatever order, come back too.
#[test]
fn buffers_in_thread_local_variables_come_back() {
    thread_local! {
        static KEPT: Cell<Option<Buffer<Device>>> = const { Cell::new(None) };
    }
    let device = device();
    let pool = pool(&device, |builder| builder);
    for before in [true, false] {
        let (pool, stream) = (pool.clone(), device.create_stream().expect("a stream"));
        let end = thread::spawn(move || {
            if before {
                KEPT.set(None);
            }
            let buffer = pool.allocate(4 * KIB, &stream).expect("memory");
            drop(pool.allocate(4 * KIB, &stream).expect("memory"));
            KEPT.set(Some(buffer));
        });
        end.join().expect("no panic");
    }
    let stats = pool.stats();
    assert_eq!((stats.live_buffers, stats.held_bytes), (0, stats.idle_bytes), "{stats:?}");
    pool.trim().expect("a trim");
    assert_eq!(device.taken(), 0);
}

/// What a thread does with several pools in turn.
#[derive(Debug, Clone)]
enum Turn {
    Allocate {
        pool: usize,
        bytes: u64,
    },
    /// Out and back at once.
    Pair {
        pool: usize,
        bytes: u64,
    },
    Drop(usize),
    Trim(usize),
    /// No handle is left; another pool in its place.
    Replace(usize),
    /// Another thread drops it, and ends.
    DropElsewhere(usize),
    /// The statistics are as the table says.
    Look(usize),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let sizes = prop::sample::select(vec![1, 1000, 4 * KIB, 4 * KIB + 1, 64 * KIB, 2 * KIB * KIB]);
    let turn = prop_oneof![
        6 => (0..3usize, sizes.clone()).prop_map(|(pool, bytes)| Turn::Allocate { pool, bytes }),
        12 => (0..3usize, sizes).prop_map(|(pool, bytes)| Turn::Pair { pool, bytes }),
        6 => any::<usize>().prop_map(Turn::Drop),
        1 => (0..3usize).prop_map(Turn::Trim),
        1 => (0..3usize).prop_map(Turn::Replace),
        1 => any::<usize>().prop_map(Turn::DropElsewhere),
        3 => (0..3usize).prop_map(Turn::Look),
    ];
    prop::collection::vec(turn, 1..200)
}

/// A live buffer, and the number of its pool if that has a handle.
type Live = (Option<usize>, Buffer<Device>);

/// Bytes of what is live of a pool.
fn bytes(live: &[Live], of: usize, size: impl Fn(&Buffer<Device>) -> u64) -> u64 {
    live.iter().filter(|(pool, _)| *pool == Some(of)).map(|(_, buffer)| size(buffer)).sum()
}

fn look(
    pool: &Pool<Device>,
    live: &[Live],
    number: usize,
    requests: u64,
    most: u64,
) -> Result<(), TestCaseError> {
    let stats = pool.stats();
    let classes = bytes(live, number, Buffer::capacity);
    prop_assert_eq!(stats.live_buffers, bytes(live, number, |_| 1));
    prop_assert_eq!((stats.live_bytes, stats.peak.live_bytes), (classes, most));
    prop_assert_eq!(stats.requested_bytes, bytes(live, number, Buffer::len));
    prop_assert_eq!(stats.held_bytes, classes + stats.idle_bytes);
    prop_assert_eq!(stats.hits + stats.misses, requests);
    Ok(())
}

proptest! {
    /// Against a table of what is live: whichever of its pools a thread used last, each one's account is its
    /// own, and nothing stays with the device when they are gone.
    #[test]
    fn several_pools_of_a_thread_keep_their_accounts_apart(turns in turns()) {
        let device = device();
        let stream = device.create_stream().expect("a stream");
        let fresh = || pool(&device, |builder| builder.max_buffers_per_bucket(4).magazine_bytes(64 * KIB));
        let mut pools = [fresh(), fresh(), fresh()];
        let mut live: Vec<Live> = Vec::new();
        let (mut requests, mut most) = ([0; 3], [0; 3]);
        for turn in turns {
            match turn {
                Turn::Allocate { pool, bytes } => {
                    live.push((Some(pool), pools[pool].allocate(bytes, &stream).expect("memory")));
                    requests[pool] += 1;
                }
                Turn::Pair { pool, bytes } => {
                    let pair = pools[pool].allocate(bytes, &stream).expect("memory");
                    requests[pool] += 1;
                    most[pool] = most[pool].max(pair.capacity() + self::bytes(&live, pool, Buffer::capacity));
                }
                Turn::Drop(which) if !live.is_empty() => drop(live.swap_remove(which % live.len())),
                Turn::DropElsewhere(which) if !live.is_empty() => {
                    // Of what others do, a peak knows what they told.
                    pools.iter().for_each(|pool| drop(pool.stats()));
                    let gone = live.swap_remove(which % live.len());
                    thread::spawn(move || drop(gone)).join().expect("no panic");
                }
                Turn::Drop(_) | Turn::DropElsewhere(_) => {}
                Turn::Trim(pool) => {
                    pools[pool].trim().expect("a trim");
                    prop_assert_eq!(pools[pool].stats().idle_bytes, 0);
                }
                Turn::Look(which) => look(&pools[which], &live, which, requests[which], most[which])?,
                Turn::Replace(which) => {
                    pools[which] = fresh();
                    (requests[which], most[which]) = (0, 0);
                    live.iter_mut().filter(|(of, _)| *of == Some(which)).for_each(|(of, _)| *of = None);
                }
            }
            for (number, most) in most.iter_mut().enumerate() {
                *most = (*most).max(bytes(&live, number, Buffer::capacity));
            }
        }
        for number in 0..3 {
            look(&pools[number], &live, number, requests[number], most[number])?;
        }
        drop((live, pools));
        // What a closed pool left with this thread comes back when the thread has to do with another.
        drop(fresh().allocate(4 * KIB, &stream));
        prop_assert_eq!(device.taken(), 0);
    }
}
