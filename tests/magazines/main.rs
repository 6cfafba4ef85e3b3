//! Magazines: a hit makes no driver call and no heap call, and kept blocks return.

mod accounts;
mod ends;
mod sharing;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, Pool, PoolBuilder, SizeClasses, SizeTable};
use vrampool_test_support::{AuditDevice, until};

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
    let table = SizeClasses::Table(SizeTable::new([1024, 64 * KIB]));
    for classes in
        [SizeClasses::Fixed, SizeClasses::PowerOfTwo, SizeClasses::GEOMETRIC, SizeClasses::EXACT, table]
    {
        let (device, sizes) = (device(), [1000, 4 * KIB, 60_000, 64 * KIB, 1024 * KIB]);
        let pool = pool(&device, |builder| builder.size_classes(classes.clone()));
        let stream = device.create_stream().expect("a stream");
        #[cfg(feature = "metrics")]
        let publisher = {
            let publisher = vrampool::telemetry::Publisher::start(Duration::from_millis(1));
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
        let hits = after.served.by_bucket - before.0.served.by_bucket;
        assert_eq!(
            (hits, after.source.allocations),
            (1000 * sizes.len() as u64, before.0.source.allocations),
            "{classes}"
        );
        #[cfg(feature = "metrics")]
        drop(publisher);
    }
}

/// Two threads that do what they are asked, one after the other.
struct Turns {
    tasks: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    done: mpsc::Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Turns {
    fn new() -> Self {
        let (tasks, queue) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (finish, done) = mpsc::channel();
        let thread = thread::spawn(move || {
            for task in queue {
                task();
                finish.send(()).expect("the receiver waits");
            }
        });
        Self { tasks, done, thread: Some(thread) }
    }

    fn run(&self, task: impl FnOnce() + Send + 'static) {
        self.tasks.send(Box::new(task)).expect("it listens");
        self.done.recv().expect("no panic");
    }

    /// Ends the thread, its thread-local variables too.
    fn end(self) {
        let Self { tasks, done, thread } = self;
        drop((tasks, done));
        thread.into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

/// Has a thread drop a buffer, which it keeps.
fn keep(other: &Turns, pool: &Pool<Device>, bytes: u64) {
    let (pool, stream) = (pool.clone(), pool.device().create_stream().expect("a stream"));
    other.run(move || drop(pool.allocate(bytes, &stream).expect("memory")));
}

#[test]
fn buffers_of_another_thread_are_live_and_its_magazines_idle() {
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
        give.send((allocate(50_000), allocate(3100))).expect("the receiver takes it");
    });
    let stats = pool.stats();
    assert_eq!((stats.live_buffers, stats.live_bytes), (2, 68 * KIB), "{stats:?}");
    assert_eq!((stats.requested_bytes, stats.idle_bytes), (53_100, 4 * KIB), "{stats:?}");
    assert_eq!((stats.source.allocations, stats.served.by_bucket), (3, 11));
    drop(take.recv().expect("they were given"));
    let stats = pool.stats();
    assert_eq!((stats.live_buffers, stats.requested_bytes, stats.idle_bytes), (0, 0, 72 * KIB), "{stats:?}");
    other.end();
}

#[test]
fn a_threads_magazines_serve_no_other_until_it_ends() {
    let device = device();
    let pool = pool(&device, |builder| builder);
    let stream = device.create_stream().expect("a stream");
    let other = Turns::new();
    keep(&other, &pool, 4 * KIB);
    assert_eq!((pool.stats().idle_bytes, pool.stats().live_bytes), (4 * KIB, 0), "it is idle");
    let mine = pool.allocate(4 * KIB, &stream).expect("memory");
    assert_eq!(pool.stats().source.allocations, 2, "and not to be had");
    other.end();
    let another = pool.allocate(4 * KIB, &stream).expect("memory");
    assert_eq!((pool.stats().source.allocations, pool.stats().served.by_bucket), (2, 1));
    drop((mine, another));
}

#[test]
fn a_thread_that_ends_leaves_no_more_than_the_caps_of_today_allow() {
    let lower: [fn(&Pool<Device>); 3] = [
        |pool| pool.set_max_cached_bytes(4 * KIB),
        |pool| pool.set_max_cached_bytes(0),
        |pool| pool.set_max_buffers_per_bucket(0),
    ];
    for (lower, most) in lower.into_iter().zip([4 * KIB, 0, 0]) {
        let device = device();
        let pool = pool(&device, |builder| builder);
        let other = Turns::new();
        [4 * KIB, 16 * KIB].into_iter().for_each(|bytes| keep(&other, &pool, bytes));
        lower(&pool);
        other.end();
        assert!(pool.stats().idle_bytes <= most, "{:?}", pool.stats());
        // A thread of the library releases it, without another call of the pool.
        until(|| device.taken() <= most);
    }
}

#[test]
fn without_magazines_all_threads_share_idle_blocks() {
    for off in [
        |builder: PoolBuilder<Device>| builder.magazine_bytes(0),
        |builder: PoolBuilder<Device>| builder.magazine_class(0),
    ] {
        let device = device();
        let pool = pool(&device, off);
        let other = Turns::new();
        keep(&other, &pool, 4 * KIB);
        drop(pool.allocate(4 * KIB, &device.create_stream().expect("a stream")).expect("memory"));
        assert_eq!((pool.stats().served.by_bucket, pool.stats().source.allocations), (1, 1));
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
    assert_eq!(pool.stats().served.by_bucket, 1, "there was nothing to trim");
    other.end();
    assert_eq!(pool.trim().expect("a trim"), KIB);
    assert_eq!(device.taken(), 0);
}
