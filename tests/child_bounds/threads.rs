//! Threads in a tree of pools, over every source and with every rule of classes. Limits, shares and caps change,
//! requests wait, driver calls fail, a pool sleeps, pools are closed and dropped, streams are captured, and the process
//! forks. After each round all sums are exact.

use crate::{Device, KIB};
use fastrand::Rng;
use std::mem;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use vrampool::arena::ArenaError;
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, BackendError, Buffer, Error, Pool, PoolStats, SizeClasses, SizeTable, Source};
use vrampool_test_support::{AuditDevice, has_virtual_memory, until};

/// The least and the most of the root's limit.
const LIMITS: [u64; 2] = [1200 * KIB, 1500 * KIB];
/// The most of a tenant's thread, in classes.
const MOST: u64 = 128 * KIB;
const TENANTS: usize = 3;
/// A request may get a block of a larger class.
const SHARE: u64 = TENANTS as u64 * (MOST + 32 * KIB);
const OF_WITHIN: [u64; 2] = [300 * KIB, 400 * KIB];
/// The share of a pool below another one, and the most of its limit.
const OTHER: [u64; 2] = [64 * KIB, 160 * KIB];
const PAGE: u64 = 4 * KIB;
/// Operations of a thread in a round.
const STEPS: u64 = 250;
const CALLS: [Call; 8] = [
    Call::Allocate,
    Call::Record,
    Call::Wait,
    Call::CreatePhysical,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
    Call::MemoryInfo,
];

const ROOT: usize = 0;
const WITHIN: usize = 1;
const TENANT: usize = 2;
const BELOW: usize = 3;
const GRAPH: usize = 4;
const SLEEPER: usize = 5;
const POOLS: usize = 6;

/// Operations in a tree.
const SCENE: u64 = 10_000;

/// Operations in all; `VRAMPOOL_TEST_REQUESTS` in a long run.
fn operations() -> u64 {
    let count = std::env::var("VRAMPOOL_TEST_REQUESTS").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(300_000)
}

struct Scene {
    device: Device,
    pools: Vec<Pool<Device>>,
    /// Passed from one thread to another.
    handed_over: Mutex<Vec<Mine>>,
    magazine_bytes: u64,
    /// Whether there are captures, and of which threads' streams.
    has_capture: bool,
    captured: [bool; 8],
    /// Addresses that graphs may use: of blocks that captured streams freed. With their threads.
    of_graphs: Mutex<Vec<(usize, Range<u64>)>>,
    /// The most requests that faults may refuse in a round, and those that were refused to tenants.
    faults: u64,
    refused: AtomicU64,
    is_ending: bool,
    max_cached: AtomicU64,
}

/// A buffer with the index of its pool, if it is one of the scene, and of the thread whose stream it is for.
struct Mine {
    pool: usize,
    thread: usize,
    address: Option<u64>,
    buffer: Buffer<Device>,
}

impl Mine {
    fn new(pool: usize, thread: usize, buffer: Buffer<Device>) -> Self {
        Self { pool, thread, address: buffer.address(), buffer }
    }

    fn range(&self) -> Range<u64> {
        let start = self.buffer.address().expect("the host has addresses");
        start..start + self.buffer.capacity()
    }
}

struct Worker {
    at: usize,
    random: Rng,
    stream: HostStream,
    mine: Vec<Mine>,
    /// Pools that the thread creates, closes and drops.
    own: Vec<Pool<Device>>,
}

impl Scene {
    fn new(source: Source, classes: SizeClasses, magazine_bytes: u64) -> Self {
        let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
        let builder = Pool::builder(&device).source(source).size_classes(classes).limit(LIMITS[1]);
        let root = builder.magazine_bytes(magazine_bytes).build().expect("a pool");
        let within = root.child("within").limit(OF_WITHIN[1]).build().expect("a pool");
        let tenant = root.child("tenant").limit(SHARE).share(SHARE).build().expect("nothing is live");
        let below = within.child("below").limit(OTHER[1]).share(OTHER[0]).build().expect("nothing is live");
        let graph = root.child("graph").private(true).limit(96 * KIB).build().expect("a pool");
        let sleeper = within.child("sleeper").build().expect("a pool");
        Self {
            device,
            pools: vec![root, within, tenant, below, graph, sleeper],
            handed_over: Mutex::default(),
            magazine_bytes,
            has_capture: false,
            captured: [false; 8],
            of_graphs: Mutex::default(),
            faults: 0,
            refused: AtomicU64::new(0),
            is_ending: false,
            max_cached: AtomicU64::new(u64::MAX),
        }
    }

    fn source(&self) -> Source {
        self.pools[ROOT].source()
    }

    fn has_arena(&self) -> bool {
        [Source::Arena, Source::Virtual].contains(&self.source())
    }

    /// Another stream's graph uses no byte of it.
    fn served(&self, mine: Mine) -> Mine {
        let (range, mut of_graphs) = (mine.range(), self.of_graphs.lock().expect("no panic"));
        of_graphs.retain(|(thread, of)| {
            let is_beside = of.end <= range.start || range.end <= of.start;
            assert!(is_beside || *thread == mine.thread, "{}: {range:?}, {of:?}", self.source());
            is_beside
        });
        mine
    }

    fn free(&self, mine: Mine) {
        assert!(mine.pool != GRAPH || mine.address == mine.buffer.address(), "no graph's memory is moved");
        // The device has other memory in between, and so it has that of a pool that is dropped.
        let is_kept = mine.pool == GRAPH || self.has_arena() && mine.pool != POOLS;
        // What a compaction moved before is no part of the graph, unless it is used after that.
        if self.captured[mine.thread] && is_kept && mine.buffer.used_on(mine.buffer.stream()).is_ok() {
            self.of_graphs.lock().expect("no panic").push((mine.thread, mine.range()));
        }
    }

    /// Whether a refusal of a thread has one of the reasons that the round has.
    fn check(&self, error: &Error, at: usize, thread: usize) {
        let is_known = match error {
            Error::Closed => self.is_ending || at == POOLS,
            // At a limit the rest of an arena may be the graphs'.
            Error::Capture { .. } => self.captured[thread] || self.has_capture && self.has_arena(),
            Error::Asleep { .. } => self.source() == Source::Virtual && [SLEEPER, POOLS].contains(&at),
            error => self.faults > 0 || error.is_out_of_memory(),
        };
        assert!(is_known, "{error}");
    }

    /// No limit refuses a tenant its share, whatever others do.
    fn step_of_tenant(&self, worker: &mut Worker) {
        let (tenant, random) = (&self.pools[TENANT], &mut worker.random);
        let bytes = random.u64(1..=16) * PAGE;
        let class = tenant.class_of(bytes).expect("a class");
        while worker.mine.iter().map(|mine| mine.buffer.capacity()).sum::<u64>() + class > MOST {
            self.free(worker.mine.swap_remove(random.usize(..worker.mine.len())));
        }
        match tenant.allocate(bytes, &worker.stream) {
            Ok(buffer) => worker.mine.push(self.served(Mine::new(TENANT, worker.at, buffer))),
            Err(error) => {
                let is_excused = match &error {
                    Error::Closed => self.is_ending,
                    // Captured streams have the rest of the arena.
                    Error::Capture { .. } => self.source() == Source::Arena && self.has_capture,
                    // No space in one piece.
                    error => matches!(error.arena(), Some(ArenaError::NoSpace { .. })),
                };
                assert!(
                    is_excused || self.refused.fetch_add(1, SeqCst) < self.faults,
                    "within its share, {} {}, magazines {}: {error}\n{:?}\n{:?}",
                    self.source(),
                    tenant.size_classes(),
                    self.magazine_bytes,
                    error.out_of_memory(),
                    tenant.own_stats()
                );
            }
        }
    }

    fn step(&self, worker: &mut Worker) {
        if worker.at < TENANTS {
            return self.step_of_tenant(worker);
        }
        let (random, thread) = (&mut worker.random, worker.at);
        let at = [ROOT, WITHIN, BELOW, GRAPH, SLEEPER][random.usize(..5)];
        let at = if self.captured[thread] && random.bool() { GRAPH } else { at };
        let (pool, bytes) = (&self.pools[at], random.u64(0..=64 * KIB));
        let is_short = random.u8(..4) == 0 && !worker.own.is_empty();
        let which = random.usize(..);
        match random.u8(..64) {
            0..29 => {
                let (index, pool) =
                    if is_short { (POOLS, &worker.own[which % worker.own.len()]) } else { (at, pool) };
                let got = match random.u8(..8) {
                    0 => {
                        pool.allocate_timeout(bytes, &worker.stream, Duration::from_micros(random.u64(..300)))
                    }
                    _ => pool.allocate(bytes, &worker.stream),
                };
                match got {
                    Ok(mut buffer) => {
                        // What the next user of the memory waits for.
                        if random.bool() && self.faults == 0 && !self.captured[thread] {
                            let filled = buffer.fill(1, &worker.stream);
                            filled.unwrap_or_else(|error| self.check(&error, index, thread));
                        }
                        worker.mine.push(self.served(Mine::new(index, thread, buffer)));
                    }
                    Err(error) => self.check(&error, index, thread),
                }
            }
            29..48 if !worker.mine.is_empty() => {
                self.free(worker.mine.swap_remove(which % worker.mine.len()))
            }
            48 if !worker.mine.is_empty() => {
                let buffer = worker.mine.swap_remove(which % worker.mine.len());
                self.handed_over.lock().expect("no panic").push(buffer);
            }
            49 => worker.mine.extend(self.handed_over.lock().expect("no panic").pop()),
            50 => {
                let above = if is_short { &worker.own[which % worker.own.len()] } else { pool };
                let child =
                    above.child("short").limit(random.bool().then_some(bytes)).private(random.u8(..8) == 0);
                match child.share(if random.bool() { bytes / 4 } else { 0 }).build() {
                    Ok(child) => worker.own.push(child),
                    Err(error) => assert!(
                        error.is_out_of_memory() || matches!(error, Error::Closed | Error::Configuration(_)),
                        "{error}"
                    ),
                }
            }
            51 | 52 if !worker.own.is_empty() => {
                let pool = worker.own.swap_remove(which % worker.own.len());
                if random.bool() {
                    pool.close();
                    worker.own.push(pool);
                }
            }
            53 => drop(pool.trim_to(bytes)),
            54 => {
                let max_cached = [0, bytes * 8, u64::MAX][which % 3];
                let _one = self.handed_over.lock().expect("no panic");
                self.pools[WITHIN].set_max_cached_bytes(max_cached);
                self.max_cached.store(max_cached, SeqCst);
            }
            55 => pool.set_max_buffers_per_bucket(random.u64(..20)),
            56 => drop(self.pools[ROOT].set_limit(LIMITS[which % 2])),
            57 => drop(self.pools[BELOW].set_limit(OTHER[0] + bytes)),
            58 => drop(self.pools[[WITHIN, SLEEPER][which % 2]].set_share(bytes)),
            59 => drop(self.pools[WITHIN].set_limit(OF_WITHIN[which % 2])),
            60 => self.check_limit(&self.pools[BELOW].own_stats(), OTHER[1]),
            61 if self.source() == Source::Virtual => self.sleep(random.bool()),
            #[cfg(target_os = "linux")]
            62 if random.u8(..64) == 0 => self.fork(worker),
            63 if self.is_ending => pool.close(),
            _ => {}
        }
    }

    /// A pool falls asleep or wakes, unless its memory is in use, or there is none.
    fn sleep(&self, wakes: bool) {
        let arena = self.pools[SLEEPER].arena().expect("it is virtual");
        if wakes {
            if let Ok(Some(attaching)) = arena.attach() {
                attaching.commit();
            }
        } else if let Ok(Some(detaching)) = arena.detach(Duration::ZERO)
            && let Ok(unmapped) = detaching.unmap()
        {
            unmapped.commit(|_| {});
        }
    }

    /// While other threads are in the pools.
    #[cfg(target_os = "linux")]
    fn fork(&self, worker: &mut Worker) {
        let own = worker.own.clone();
        let pools: Vec<_> = self.pools.iter().chain(&own).collect();
        crate::fork(&pools, &worker.stream, || {
            worker.own.clear();
            mem::take(&mut worker.mine).into_iter().map(|mine| mine.buffer).collect()
        });
    }

    /// A pool has no more than its limit ever was.
    fn check_limit(&self, stats: &PoolStats, limit: u64) {
        // Blocks that are asleep have no memory.
        let bytes = match self.source() {
            Source::Virtual => stats.reserved_bytes,
            _ => stats.live_bytes + stats.idle_bytes,
        };
        assert!(bytes <= limit, "{stats:?}");
    }

    /// No thread is in the pools.
    fn check_sums(&self, workers: &[Worker]) {
        // A driver call for a request whose time is over ends later, and so does the release of a thread's magazines.
        until(|| {
            let idle = |at: usize| self.pools[at].own_stats().idle_bytes;
            let kept = (0..POOLS).filter(|&at| at != GRAPH).map(idle).sum::<u64>();
            kept <= self.max_cached.load(SeqCst) && self.pools[ROOT].stats().in_transit_bytes == 0
        });
        self.check_limit(&self.pools[WITHIN].stats(), OF_WITHIN[1]);
        let mut live = [0; POOLS + 1];
        let handed_over = self.handed_over.lock().expect("no panic");
        for mine in workers.iter().flat_map(|worker| &worker.mine).chain(&*handed_over) {
            live[mine.pool] += mine.buffer.capacity();
        }
        let own: Vec<_> = self.pools.iter().map(Pool::own_stats).collect();
        assert_eq!(own.iter().map(|own| own.live_bytes).collect::<Vec<_>>(), live[..POOLS]);
        assert!(self.pools.iter().all(|pool| pool.waiting_requests() == 0));
        let all = self.pools[ROOT].stats();
        assert_eq!(all.live_bytes, live.iter().sum::<u64>());
        match self.source() {
            Source::Virtual => assert_eq!(self.device.taken(), all.reserved_bytes),
            // It has taken all of it, and rounds blocks up.
            Source::Arena => {
                assert!(self.pools[ROOT].arena().is_some_and(|arena| arena.used() >= all.held_bytes))
            }
            _ => assert_eq!(self.device.taken(), all.held_bytes),
        }
        assert!(self.device.peak() <= LIMITS[1], "{}", self.device.peak());
        assert_eq!((self.device.forbidden(), self.device.inner().races()), (0, 0));
    }
}

impl Scene {
    /// With no block live, the pools with shares get exactly them, and the root what its limit leaves beside them and
    /// private memory.
    fn check_rest(&self, workers: &mut [Worker]) {
        for worker in &mut *workers {
            (worker.mine, worker.own) = Default::default();
            self.device.synchronize(&worker.stream).expect("no fault");
        }
        self.handed_over.lock().expect("no panic").clear();
        self.check_sums(workers);
        let [root, within, sleeper] = [ROOT, WITHIN, SLEEPER].map(|at| &self.pools[at]);
        [within, sleeper].into_iter().for_each(|pool| pool.set_share(0).expect("less"));
        // This thread has magazines, too.
        root.trim().expect("a trim");
        if self.source() == Source::Arena {
            return;
        }
        let private = self.pools[GRAPH].own_stats().reserved_bytes;
        until(|| {
            root.trim().expect("a trim");
            self.device.taken() == private
        });
        root.set_limit(LIMITS[0]).expect("it has the shares");
        let (class, stream) = (root.class_of(4 * PAGE).expect("a class"), &workers[0].stream);
        let (tenant, below) = (&self.pools[TENANT], &self.pools[BELOW]);
        below.set_limit(OTHER[0]).expect("it is the share");
        let rest = LIMITS[0] - SHARE - OTHER[0] - private;
        let mut all = Vec::new();
        for (pool, bytes) in [(tenant, SHARE), (below, OTHER[0]), (root, rest)] {
            let whole = (0..bytes / class).map(|_| pool.allocate(4 * PAGE, stream).expect("it has room"));
            all.extend(whole);
            assert!(pool.allocate(4 * PAGE, stream).is_err(), "{bytes}");
        }
        drop(all);
        root.trim().expect("a trim");
    }
}

fn run(scene: &mut Scene, mut random: Rng) {
    let threads = random.usize(4..=8);
    let worker = |at| Worker {
        at,
        random: random.fork(),
        stream: scene.device.create_stream().expect("a stream"),
        mine: Vec::new(),
        own: Vec::new(),
    };
    let mut workers: Vec<_> = (0..threads).map(worker).collect();
    let rounds = SCENE / (STEPS * threads as u64);
    for round in 1..=rounds {
        scene.is_ending = round == rounds;
        if scene.is_ending {
            scene.check_rest(&mut workers);
        }
        let call = CALLS[random.usize(..CALLS.len())];
        scene.faults = [0, 0, 0, 0, 0, 0, 1, u64::MAX][random.usize(..8)];
        *scene.refused.get_mut() = 0;
        match scene.faults {
            0 => {}
            1 => scene.device.inner().faults().fail_nth(call, random.u64(..20)),
            _ => scene.device.inner().faults().fail_all(call, BackendError::out_of_memory(1, None)),
        }
        scene.has_capture = random.u8(..3) == 0;
        for worker in workers[TENANTS..].iter().filter(|_| scene.has_capture) {
            scene.captured[worker.at] = random.bool();
            if scene.captured[worker.at] {
                scene.device.capture_separately(&worker.stream);
            }
        }
        let shared = &*scene;
        thread::scope(|scope| {
            for worker in &mut workers {
                scope.spawn(move || (0..STEPS).for_each(|_| shared.step(worker)));
            }
        });
        scene.device.inner().faults().clear();
        scene.device.capture(&[]);
        scene.captured = [false; 8];
        scene.of_graphs.lock().expect("no panic").clear();
        scene.check_sums(&workers);
    }
    drop((workers, mem::take(&mut *scene.handed_over.lock().expect("no panic"))));
}

#[test]
fn threads_in_a_tree_keep_to_every_bound() {
    let classes = || {
        [
            SizeClasses::Fixed,
            SizeClasses::PowerOfTwo,
            SizeClasses::Geometric { per_doubling: 4, from: PAGE },
            SizeClasses::Multiple(2 * PAGE),
            SizeClasses::EXACT,
            SizeClasses::Tight,
            SizeClasses::Table(SizeTable::new([PAGE, 3 * PAGE, 16 * PAGE])),
        ]
    };
    let has_virtual_memory = has_virtual_memory(&HostDevice::new());
    let sources = Source::ALL.iter().filter(|&&source| has_virtual_memory || source != Source::Virtual);
    let all: Vec<_> = sources.flat_map(|&source| classes().map(|classes| (source, classes))).collect();
    let count = operations().div_ceil(SCENE);
    for (seed, &(source, ref classes)) in (0..count).zip(all.iter().cycle()) {
        let mut random = Rng::with_seed(seed);
        let mut scene = Scene::new(source, classes.clone(), [0, 70 * KIB][random.usize(..2)]);
        run(&mut scene, random);
        let device = scene.device.clone();
        drop(scene);
        until(|| device.taken() == 0);
    }
}
