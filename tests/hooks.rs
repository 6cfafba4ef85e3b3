//! Hooks are called for everything, in order and in pairs, and change nothing, whatever they do.

use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use vrampool::backend::spi::Occasion::{self, Allocation, Free, Request};
use vrampool::hooks::{Hook, HookCalls, HookEvent, Outcome};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, Buffer, Error, Placement, Pool, SizeClasses, Source};
use vrampool_test_support::Tap;

const KIB: u64 = 1024;

/// A call of a hook.
#[derive(Debug, Clone, Copy)]
struct Noted {
    thread: ThreadId,
    occasion: Occasion,
    outcome: Outcome,
    id: u64,
    requested: u64,
    rounded: u64,
    address: Option<u64>,
    site: &'static Location<'static>,
}

/// A hook and what it was called with.
struct Recorder {
    hook: Arc<dyn Hook>,
    noted: Arc<Mutex<Vec<Noted>>>,
}

impl Recorder {
    fn new(name: &'static str) -> Self {
        Self::acting(name, |_, _| {})
    }

    /// Does something at each call.
    fn acting(name: &'static str, act: impl Fn(Occasion, Outcome) + Send + Sync + 'static) -> Self {
        let noted: Arc<Mutex<Vec<Noted>>> = Arc::default();
        let notes = Arc::clone(&noted);
        let hook = Tap::new(name, HookCalls::all(), move |call, event| {
            let nth = call.bits().trailing_zeros() as usize;
            let &HookEvent {
                outcome,
                id,
                requested_bytes: requested,
                rounded_bytes: rounded,
                address,
                site,
                ..
            } = event;
            assert_eq!(nth.is_multiple_of(2), outcome == Outcome::Pending);
            let (thread, occasion) = (thread::current().id(), [Request, Allocation, Free][nth / 2]);
            let noted = Noted { thread, occasion, outcome, id, requested, rounded, address, site };
            notes.lock().expect("no panic").push(noted);
            act(occasion, outcome);
        });
        Self { hook: Arc::new(hook), noted }
    }

    fn hook(&self) -> Arc<dyn Hook> {
        Arc::clone(&self.hook)
    }

    fn noted(&self) -> Vec<Noted> {
        self.noted.lock().expect("no panic").clone()
    }

    fn occasions(&self) -> Vec<(Occasion, Outcome)> {
        self.noted().iter().map(|noted| (noted.occasion, noted.outcome)).collect()
    }
}

/// All calls of a request that misses, and of its free.
const ONE_MISS: [(Occasion, Outcome); 6] = [
    (Request, Outcome::Pending),
    (Allocation, Outcome::Pending),
    (Allocation, Outcome::Done),
    (Request, Outcome::Done),
    (Free, Outcome::Pending),
    (Free, Outcome::Done),
];

fn device_and_stream() -> (HostDevice, HostStream) {
    let device = HostDevice::builder().memory_limit(64 << 20).build();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

/// Each before has its after, on its thread, an allocation's within its request's; each id that was served is
/// freed once, with the values of its request. Returns the numbers of requests, allocations and served requests.
fn check_pairs(noted: &[Noted]) -> [usize; 3] {
    let mut open: HashMap<ThreadId, Vec<Noted>> = HashMap::new();
    let mut served: HashMap<u64, Noted> = HashMap::new();
    let mut seen = HashSet::new();
    let [mut allocations, mut freed] = [0; 2];
    for one in noted {
        let open = open.entry(one.thread).or_default();
        if one.outcome == Outcome::Pending {
            match (one.occasion, open.last()) {
                (Request, None) => assert!(seen.insert(one.id), "no id comes twice"),
                (Allocation, Some(request)) => assert_eq!(request.id, one.id),
                (Free, None) => {}
                (occasion, within) => panic!("{occasion:?} within {within:?}"),
            }
            open.push(*one);
            continue;
        }
        let before = open.pop().expect("it was announced");
        let same = |one: &Noted| (one.occasion, one.id, one.requested, one.site);
        assert_eq!(same(&before), same(one));
        match (one.occasion, one.outcome) {
            (Request, Outcome::Done) => drop(served.insert(one.id, *one)),
            (Allocation, _) => allocations += 1,
            (Free, Outcome::Done) => {
                let was = served.get(&one.id).expect("it was served");
                assert_eq!((was.requested, was.rounded), (one.requested, one.rounded));
                assert!(was.address.is_some() && one.address.is_some() && was.site == one.site);
                freed += 1;
            }
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "{open:?}");
    assert_eq!(freed, served.len());
    let ids: HashSet<_> = noted.iter().filter(|one| one.occasion == Free).map(|one| one.id).collect();
    assert_eq!(ids.len(), served.len(), "each is freed once");
    [seen.len(), allocations, served.len()]
}

#[test]
fn each_before_has_its_after_and_each_request_that_was_served_one_free() {
    for &source in Source::ALL {
        for classes in [SizeClasses::Fixed, SizeClasses::GEOMETRIC, SizeClasses::Exact(512)] {
            let (device, _) = device_and_stream();
            let recorder = Recorder::new("recorder");
            let builder = Pool::builder(&device).source(source).size_classes(classes.clone()).limit(3 << 20);
            let pool = builder.max_buffers_per_bucket(3).hook(recorder.hook()).build().expect("a pool");
            let asked = device.faults().calls(Call::Allocate);
            (0..200).for_each(|n| device.faults().fail_nth(Call::Allocate, 1 + 3 * n));
            (0..100).for_each(|n| device.faults().fail_nth(Call::Record, 1 + 4 * n));
            let handed_over = Mutex::new(Vec::new());
            let requests: usize = thread::scope(|scope| {
                let worker = |seed| {
                    let (pool, device, handed_over) = (&pool, &device, &handed_over);
                    move || {
                        let mut random = fastrand::Rng::with_seed(seed);
                        let streams = [(); 2].map(|()| device.create_stream().expect("a stream"));
                        let (mut mine, mut requests) = (Vec::new(), 0);
                        for _ in 0..300 {
                            match random.u32(..8) {
                                0..4 => {
                                    let most = KIB << random.u32(..10);
                                    let bytes = random.u64(..most);
                                    let stream = &streams[random.usize(..2)];
                                    requests += 1;
                                    mine.extend(pool.allocate(bytes, stream));
                                }
                                4 if !mine.is_empty() => {
                                    let one: Buffer<_> = mine.swap_remove(random.usize(..mine.len()));
                                    handed_over.lock().expect("no panic").push(one);
                                }
                                5 => drop(handed_over.lock().expect("no panic").pop()),
                                6 if random.u32(..8) == 0 => drop(pool.trim()),
                                _ if !mine.is_empty() => drop(mine.swap_remove(random.usize(..mine.len()))),
                                _ => {}
                            }
                        }
                        requests
                    }
                };
                let workers: Vec<_> = (0..3).map(|seed| scope.spawn(worker(seed))).collect();
                workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
            });
            handed_over.lock().expect("no panic").clear();
            let [seen, allocations, served] = check_pairs(&recorder.noted());
            assert!(seen == requests && served > requests / 2, "{source}, {classes}: {served} of {requests}");
            let stats = pool.stats();
            assert_eq!(stats.served.total() + stats.failed.total(), requests as u64);
            assert_eq!((stats.live_bytes, stats.held_bytes), (0, stats.idle_bytes), "{source}, {classes}");
            match source {
                Source::Arena => assert_eq!(allocations, 0),
                _ => assert_eq!(allocations as u64, device.faults().calls(Call::Allocate) - asked),
            }
        }
    }
}

#[test]
fn hooks_get_the_caller_of_every_kind_of_request() {
    let (device, stream) = device_and_stream();
    let recorder = Recorder::new("recorder");
    let pool = Pool::builder(&device).hook(recorder.hook()).build().expect("a pool");
    let graph = pool.child("graph").private(true).build().expect("a pool");
    let first = line!() + 1;
    drop(pool.allocate(100, &stream).expect("memory"));
    drop(pool.allocate(100, &stream).expect("a hit"));
    drop(pool.allocate(4 << 20, &stream).expect("memory that no magazine takes"));
    drop(pool.allocate_kind(100, Placement::Managed, &stream));
    drop(pool.allocate_zeroed(100, &stream).expect("memory"));
    drop(graph.allocate(5000, &stream).expect("memory"));
    drop(pool.allocate(u64::MAX, &stream).expect_err("too large"));
    let noted = recorder.noted();
    let sites: Vec<_> = noted
        .iter()
        .filter(|noted| noted.occasion == Request && noted.outcome == Outcome::Pending)
        .map(|noted| (noted.site.file(), noted.site.line()))
        .collect();
    assert_eq!(sites, (first..first + 7).map(|line| (file!(), line)).collect::<Vec<_>>());
    let last = noted.last().expect("a call");
    assert_eq!((last.outcome, last.requested, last.rounded), (Outcome::Failed, u64::MAX, u64::MAX));
}

#[test]
fn hooks_are_called_in_the_order_given_and_have_names_of_their_own() {
    let (device, stream) = device_and_stream();
    let order = Arc::new(Mutex::new(Vec::new()));
    let hook = |name: &'static str| {
        let order = Arc::clone(&order);
        Recorder::acting(name, move |_, _| order.lock().expect("no panic").push(name)).hook
    };
    let builder = Pool::builder(&device).hook(hook("c")).hook(hook("a")).hook(hook("b"));
    let pool = builder.clone().build().expect("a pool");
    drop(pool.allocate(1, &stream).expect("memory"));
    assert_eq!(*order.lock().expect("no panic"), ["c", "a", "b"].repeat(6));
    let error = builder.hook(hook("a")).build().expect_err("there is one");
    assert!(
        matches!(&error, Error::Configuration(setting) if setting.field == "hook" && setting.value == "a"),
        "{error}"
    );
}

#[test]
fn a_hook_that_panics_changes_nothing_and_others_are_called() {
    let (device, stream) = device_and_stream();
    for at in ONE_MISS {
        let panicking = Recorder::acting("panicking", move |occasion, outcome| {
            assert_ne!((occasion, outcome), at, "as it is meant to");
        });
        let other = Recorder::new("other");
        let builder = Pool::builder(&device).hook(panicking.hook()).hook(other.hook());
        let pool = builder.max_cached_bytes(0).build().expect("a pool");
        drop(pool.allocate(100, &stream).expect("memory"));
        assert_eq!((panicking.occasions(), other.occasions()), (ONE_MISS.to_vec(), ONE_MISS.to_vec()));
        // Also while the thread unwinds.
        let unwound = thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = pool.allocate(100, &stream).expect("memory");
                panic!("as it is meant to");
            });
            holder.join().expect_err("it panics")
        });
        assert_eq!(unwound.downcast_ref(), Some(&"as it is meant to"));
        assert_eq!(check_pairs(&other.noted()), [2, 2, 2]);
        assert_eq!((pool.stats().live_bytes, pool.stats().held_bytes), (0, 0));
    }
}

#[test]
fn no_hook_is_called_for_requests_of_a_hook() {
    let (device, stream) = device_and_stream();
    let pools: Arc<Mutex<Vec<Pool<HostDevice>>>> = Arc::default();
    let kept: Arc<Mutex<Vec<Buffer<HostDevice>>>> = Arc::default();
    let (used, keep) = (Arc::clone(&pools), Arc::clone(&kept));
    let hook = Recorder::acting("allocates", move |_, _| {
        // Within itself it would panic, and be called again.
        for pool in used.try_lock().expect("it is not called within itself").iter() {
            drop(pool.allocate(100, &stream).expect("memory"));
            keep.lock().expect("no panic").push(pool.allocate(100, &stream).expect("memory"));
            pool.trim().expect("a trim");
        }
    });
    let stream = device.create_stream().expect("a stream");
    let both = [(); 2].map(|()| Pool::builder(&device).hook(hook.hook()).build().expect("a pool"));
    pools.lock().expect("no panic").extend(both.clone());
    drop(both[0].allocate(5000, &stream).expect("memory"));
    assert_eq!(hook.occasions(), ONE_MISS);
    // Allocated in the hook, and dropped outside.
    let kept = std::mem::take(&mut *kept.lock().expect("no panic"));
    assert_eq!(kept.len(), 12);
    drop(kept);
    assert_eq!(hook.occasions(), ONE_MISS);
    pools.lock().expect("no panic").clear();
    assert!(both.iter().all(|pool| pool.stats().live_bytes == 0));
}

/// A thread's idle buffers are not available to other threads, with and without hooks.
#[test]
fn threads_keep_buffers_with_hooks_too() {
    let (device, stream) = device_and_stream();
    for classes in [SizeClasses::Fixed, SizeClasses::Exact(512)] {
        let plain = Pool::builder(&device).size_classes(classes.clone());
        let misses =
            [plain.clone(), plain.clone().hook(Recorder::new("recorder").hook), plain.magazine_bytes(0)].map(
                |builder| {
                    let pool = builder.build().expect("a pool");
                    let step = || (0..10).for_each(|_| drop(pool.allocate(4096, &stream).expect("memory")));
                    step();
                    thread::scope(|scope| scope.spawn(step).join().expect("no panic"));
                    let stats = pool.stats();
                    assert_eq!((stats.served.total(), stats.live_bytes), (20, 0));
                    stats.source.allocations
                },
            );
        assert_eq!(misses, [2, 2, 1], "{classes}");
    }
}
