//! Millions of operations by up to sixteen threads that come and go: the caps hold at every look, and in the end all
//! memory is released.

use fastrand::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Pool, PoolStats};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;
type Stream = <Device as Backend>::Stream;

/// Operations in all: 100,000,000 in `.ci/run`, by `VRAMPOOL_TEST_OPERATIONS`.
fn operations() -> u64 {
    let count = std::env::var("VRAMPOOL_TEST_OPERATIONS").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(10_000_000)
}

/// Threads at a time; each number does its part.
const THREADS: [u64; 5] = [1, 2, 4, 8, 16];

/// Operations in the life of one thread.
const LIFE: u64 = 100_000;

/// Buffers that one thread has, and that are on their way between threads.
const HANDS: usize = 24;

const KIB: u64 = 1024;

const MAX_CACHED: u64 = 16 << 20;
const MAX_BUFFERS: u64 = 48;
const LIMIT: u64 = 256 << 20;

struct Scene {
    device: Device,
    pool: Pool<Device>,
    streams: Vec<Stream>,
    /// On their way from one thread to another.
    handed_over: Mutex<Vec<Buffer<Device>>>,
}

impl Scene {
    fn new() -> Self {
        let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 40).build());
        let pool = Pool::builder(&device)
            .max_cached_bytes(MAX_CACHED)
            .max_buffers_per_bucket(MAX_BUFFERS)
            .limit(LIMIT)
            .magazine_bytes(1 << 20)
            .build();
        let streams = (0..2).map(|_| device.create_stream().expect("a stream")).collect();
        Self { pool: pool.expect("good settings"), device, streams, handed_over: Mutex::default() }
    }

    /// One life of a thread.
    fn live(&self, mut random: Rng, operations: u64) {
        let mut mine: Vec<Buffer<Device>> = Vec::with_capacity(HANDS);
        for _ in 0..operations {
            match random.u32(..10_000) {
                0 => {
                    self.pool.trim_to(random.u64(..MAX_CACHED)).expect("a trim");
                }
                1..40 if !mine.is_empty() => {
                    let mut handed_over = self.handed_over.lock().expect("no panic");
                    if handed_over.len() < HANDS {
                        handed_over.push(mine.swap_remove(random.usize(..mine.len())));
                    }
                }
                40..80 => drop(self.handed_over.lock().expect("no panic").pop()),
                choice if mine.len() < HANDS && (mine.is_empty() || choice.is_multiple_of(2)) => {
                    // Mostly small classes, sometimes one that no magazine takes; mostly one stream.
                    let shift = if random.u32(..256) == 0 { 12 } else { 2 * random.u32(..5) };
                    let bytes = KIB << shift;
                    let stream = &self.streams[usize::from(random.u32(..64) == 0)];
                    let buffer = self.pool.allocate(bytes - random.u64(..KIB), stream);
                    mine.push(buffer.expect("all together have less than the limit"));
                }
                _ if !mine.is_empty() => drop(mine.swap_remove(random.usize(..mine.len()))),
                _ => {}
            }
        }
    }

    fn check(&self, stats: &PoolStats) {
        assert!(stats.idle_bytes <= MAX_CACHED && stats.peak.idle_bytes <= MAX_CACHED, "{stats:?}");
        assert!(stats.buckets.iter().all(|bucket| bucket.idle_buffers <= MAX_BUFFERS), "{stats:?}");
        assert!(stats.live_bytes + stats.idle_bytes <= stats.held_bytes, "{stats:?}");
        assert!(stats.held_bytes <= LIMIT && self.device.peak() <= LIMIT, "{stats:?}");
        assert!(stats.requested_bytes <= stats.live_bytes, "{stats:?}");
    }
}

#[test]
fn caps_hold_through_millions_of_operations_and_nothing_is_lost() {
    let scene = Arc::new(Scene::new());
    let seeds = AtomicU64::new(1);
    for threads in THREADS {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let observer = scope.spawn(|| {
                let mut looks = 0u64;
                while !done.load(Ordering::Acquire) || looks == 0 {
                    scene.check(&scene.pool.stats());
                    looks += 1;
                    thread::yield_now();
                }
            });
            let (scene, seeds) = (&scene, &seeds);
            let part = operations() / THREADS.len() as u64 / threads;
            let lines: Vec<_> = (0..threads)
                .map(|_| {
                    scope.spawn(move || {
                        for begun in (0..part).step_by(LIFE as usize) {
                            let random = Rng::with_seed(seeds.fetch_add(1, Ordering::Relaxed));
                            let (scene, operations) = (Arc::clone(scene), LIFE.min(part - begun));
                            // A thread of its own for each life, so that its end is waited for.
                            let life = thread::spawn(move || scene.live(random, operations));
                            life.join().expect("no thread fails");
                        }
                    })
                })
                .collect();
            let outcomes: Vec<_> = lines.into_iter().map(|line| line.join()).collect();
            done.store(true, Ordering::Release);
            observer.join().expect("every look was right");
            outcomes.into_iter().for_each(|outcome| outcome.expect("no thread failed"));
        });
        scene.handed_over.lock().expect("no panic").clear();
        let stats = scene.pool.stats();
        scene.check(&stats);
        assert_eq!((stats.live_buffers, stats.live_bytes, stats.requested_bytes), (0, 0, 0), "{stats:?}");
        assert_eq!((stats.held_bytes, scene.device.taken()), (stats.idle_bytes, stats.idle_bytes));
        println!("{threads} threads: hit rate {:.4}", stats.hit_rate());
    }
    scene.pool.trim().expect("a trim");
    assert_eq!(scene.device.taken(), 0, "all memory is released");
}
