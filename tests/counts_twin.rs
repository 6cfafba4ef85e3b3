//! Counts of pools against those of a naive twin: several pools over every source, on several threads, with
//! magazines, faults and resets of peaks.

use proptest::prelude::*;
use std::collections::{BTreeMap, HashSet};
use std::sync::Mutex;
use std::time::Duration;
use vrampool::errors::Cause;
use vrampool::figures::{FigureKind, FigureValue, Group};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, Buffer, Error, Pool, PoolStats, Shortage, SizeClasses, SizeTable, Source};
use vrampool_test_support::{AuditDevice, has_virtual_memory, until};

type Device = AuditDevice<HostDevice>;

const KIB: u64 = 1024;
const LIMIT: u64 = 2048 * KIB;
const MAX_CACHED: u64 = 300 * KIB;

#[derive(Debug, Clone)]
enum Step {
    Allocate { pool: usize, bytes: u64, stream: usize },
    // Out and back at once.
    Pair { pool: usize, bytes: u64 },
    // On a stream of another device.
    Foreign { pool: usize },
    Use { which: usize, stream: usize },
    Drop(usize),
    HandOver(usize),
    TakeOver,
    Trim { pool: usize, to: u64 },
    ResetPeaks { pool: usize },
    Look { pool: usize },
    // For all threads: requests fail from now on.
    Close { pool: usize },
}

fn step() -> impl Strategy<Value = Step> {
    let bytes = || prop_oneof![3 => 0..5 * KIB, 3 => 0..70 * KIB, 1 => 0..3 * LIMIT / 2, 1 => Just(u64::MAX)];
    prop_oneof![
        8 => (0..2usize, bytes(), 0..3usize).prop_map(|(pool, bytes, stream)| Step::Allocate { pool, bytes, stream }),
        8 => (0..2usize, bytes()).prop_map(|(pool, bytes)| Step::Pair { pool, bytes }),
        1 => (0..2usize).prop_map(|pool| Step::Foreign { pool }),
        1 => (any::<usize>(), 0..3usize).prop_map(|(which, stream)| Step::Use { which, stream }),
        6 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::HandOver),
        1 => Just(Step::TakeOver),
        1 => (0..2usize, prop_oneof![Just(0), 0..MAX_CACHED]).prop_map(|(pool, to)| Step::Trim { pool, to }),
        1 => (0..2usize).prop_map(|pool| Step::ResetPeaks { pool }),
        8 => (0..2usize).prop_map(|pool| Step::Look { pool }),
        1 => (0..60usize).prop_map(|at| if at < 2 { Step::Close { pool: at } } else { Step::TakeOver }),
    ]
}

/// The caps of each pool, and the memory of their device.
#[derive(Debug, Clone, Copy)]
struct Caps {
    limit: u64,
    max_cached: u64,
    per_bucket: u64,
    budget: u64,
    capacity: u64,
}

fn caps() -> impl Strategy<Value = Caps> {
    let bytes = || prop_oneof![Just(0), 0..8 * KIB, 0..300 * KIB, 0..8000 * KIB, Just(u64::MAX)];
    let count = prop_oneof![Just(0), 1..7u64, Just(u64::MAX)];
    let capacity = prop_oneof![3 => Just(1u64 << 26), 1 => 64 * KIB..4000 * KIB];
    (bytes(), bytes(), count, bytes(), capacity).prop_map(
        |(limit, max_cached, per_bucket, budget, capacity)| Caps {
            limit: limit.max(4 * KIB),
            max_cached,
            per_bucket,
            budget,
            capacity,
        },
    )
}

/// The results that the callers of one pool saw: requests that were served, and failures by their names in the figures.
type Seen = BTreeMap<&'static str, u64>;

fn note<T>(seen: &mut Seen, outcome: &Result<T, Error>) {
    let name = match outcome {
        Ok(_) => "served",
        Err(Error::OutOfMemory(error)) => match (error.cause(), &error.shortage) {
            (Cause::Request, _) => "request",
            (Cause::Fragmentation, _) => "fragmentation",
            (_, Shortage::Limit(_)) => "limit",
            (_, Shortage::Arena(_)) => "arena",
            _ => "device",
        },
        Err(Error::Backend(_)) => "backend",
        Err(Error::Closed) => "closed",
        Err(Error::WrongDevice(_) | Error::TooLarge { .. }) => "invalid",
        Err(other) => panic!("unexpected: {other:?}"),
    };
    *seen.entry(name).or_default() += 1;
}

/// Checks invariants that hold at every moment.
fn check(stats: &PoolStats, scene: &Scene) {
    let Caps { limit, max_cached, per_bucket, capacity, .. } = scene.caps;
    let bound = limit.min(capacity);
    assert!(stats.live_bytes + stats.idle_bytes == stats.held_bytes, "{stats:?}");
    assert!(stats.held_bytes + stats.in_transit_bytes <= limit, "{stats:?}");
    assert!(stats.idle_bytes <= max_cached && stats.peak.idle_bytes <= max_cached, "{stats:?}");
    // A row is one bucket.
    if scene.are_rows_buckets {
        assert!(stats.buckets.iter().all(|bucket| bucket.idle_buffers <= per_bucket), "{stats:?}");
    }
    match stats.source.kind {
        Source::Arena => assert!(bound - stats.reserved_bytes < 4 * KIB, "{stats:?}"),
        Source::Virtual => {}
        _ => assert_eq!(stats.reserved_bytes, stats.held_bytes, "{stats:?}"),
    }
    assert!(stats.requested_bytes <= stats.live_bytes, "{stats:?}");
    let (peak, source) = (&stats.peak, &stats.source);
    let peaks =
        [peak.requested_bytes, peak.live_bytes, peak.idle_bytes, peak.held_bytes, peak.reserved_bytes];
    assert!(peaks.iter().all(|&peak| peak <= bound), "{stats:?}");
    let now =
        [stats.requested_bytes, stats.live_bytes, stats.idle_bytes, stats.held_bytes, stats.reserved_bytes];
    assert!(now.iter().zip(peaks).all(|(&now, peak)| now <= peak), "{stats:?}");
    assert!(peak.limit_bytes <= peak.reserved_bytes, "{stats:?}");
    assert_eq!(stats.needed_bytes, stats.live_bytes + stats.in_flight_bytes, "{stats:?}");
    assert!(peak.needed_bytes >= stats.needed_bytes.max(peak.live_bytes), "{stats:?}");
    assert!(stats.reuse_waits <= stats.stream_waits, "{stats:?}");
    assert_eq!(source.allocations, stats.served.by_arena + stats.served.by_driver, "{stats:?}");
    let sum = |of: fn(&vrampool::stats::BucketStats) -> u64| stats.buckets.iter().map(of).sum::<u64>();
    assert_eq!(
        (sum(|bucket| bucket.hits), sum(|bucket| bucket.misses)),
        (stats.served.by_bucket, stats.source.allocations)
    );
    assert_eq!(sum(|bucket| bucket.idle_bytes), stats.idle_bytes, "{stats:?}");
    assert!(stats.buckets.is_sorted_by(|one, next| one.class < next.class), "{stats:?}");
}

/// Counts that never fall.
fn counts(stats: &PoolStats) -> Vec<FigureValue> {
    let figures = stats.figures().into_iter();
    let counts = figures.filter(|(figure, _)| matches!(figure.kind, FigureKind::Counter | FigureKind::Time));
    counts.map(|(_, value)| value).chain([FigureValue::Number(stats.driver_calls())]).collect()
}

/// Checks invariants that hold while no thread works.
fn check_quiet(stats: &PoolStats, scene: &Scene, is_closed: bool, seen: &Seen, live: &[&Buffer<Device>]) {
    check(stats, scene);
    let places: HashSet<_> = live.iter().map(|buffer| buffer.address()).collect();
    assert_eq!(places.len(), live.len(), "two live buffers share memory");
    let failed = &stats.failed;
    let mut of_pool = Seen::from([("served", stats.served.total())]);
    for (figure, count) in failed.figures() {
        let FigureValue::Number(count) = count else { panic!("{}", figure.name) };
        of_pool.insert(figure.short, count);
    }
    of_pool.retain(|_, count| *count > 0);
    assert_eq!(of_pool, *seen, "{stats:?}");
    assert!(is_closed || failed.closed == 0, "{stats:?}");
    // Each reason that has a count has a time, and no other.
    let pairs = failed.figures().into_iter().zip(stats.last_failure.figures());
    for ((figure, count), (_, last)) in pairs {
        assert_eq!(
            count == FigureValue::Number(0),
            last == FigureValue::Number(0),
            "{}: {stats:?}",
            figure.name
        );
    }
    assert_eq!(stats.driver.count(), stats.served.by_driver, "{stats:?}");
    let sum = |of: fn(&Buffer<Device>) -> u64| live.iter().map(|buffer| of(buffer)).sum::<u64>();
    assert_eq!(stats.live_buffers, live.len() as u64, "{stats:?}");
    assert_eq!(
        (stats.live_bytes, stats.requested_bytes),
        (sum(Buffer::capacity), sum(Buffer::len)),
        "{stats:?}"
    );
    let idle: u64 = stats.buckets.iter().map(|bucket| bucket.idle_buffers).sum();
    assert_eq!(stats.source.allocations - stats.source.frees, live.len() as u64 + idle, "{stats:?}");
    assert_eq!(stats.in_transit_bytes, 0);
    assert!(stats.source.frees >= stats.released.total(), "{stats:?}");
    // A closed pool keeps nothing, for no reason that is counted; neither are classes kept that an arena serves.
    if !is_closed && stats.source.kind != Source::Virtual {
        assert_eq!(stats.source.frees, stats.released.total(), "{stats:?}");
    }
    check_text(stats);
}

/// No key is written twice, and what is read is what was written.
#[cfg(feature = "serde")]
fn check_text(stats: &PoolStats) {
    let text = serde_json::to_string(stats).expect("JSON");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let (mut depth, mut keys) = (0, 0);
    let bytes = text.as_bytes();
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b':' if depth == 1 && bytes[at - 1] == b'"' => keys += 1,
            _ => {}
        }
    }
    assert_eq!(value.as_object().map(serde_json::Map::len), Some(keys), "{text}");
    for (figure, expected) in stats.figures() {
        let found = &value[figure.name];
        let expected = match expected {
            FigureValue::Number(number) => number.into(),
            FigureValue::Cap(cap) => cap.into(),
            FigureValue::Text(text) => text.into(),
            _ => serde_json::Value::Null,
        };
        assert_eq!(*found, expected, "{}", figure.name);
    }
    assert_eq!(value["source_kind"], stats.source.kind.name());
}

#[cfg(not(feature = "serde"))]
fn check_text(_: &PoolStats) {}

struct Scene {
    caps: Caps,
    are_rows_buckets: bool,
    host: HostDevice,
    foreign: HostStream,
    streams: Vec<HostStream>,
    /// Each measures what it takes from the host device.
    pools: [Pool<Device>; 2],
}

/// Two pools of a source. Allocations may take a while, so that requests overlap.
fn scene(
    source: Source,
    classes: &SizeClasses,
    magazine_bytes: u64,
    caps: Caps,
    is_slow: bool,
) -> Option<Scene> {
    let latency = Duration::from_micros(if is_slow { 20 } else { 0 });
    let host = HostDevice::builder().memory_limit(caps.capacity).granularity(4 * KIB);
    let host = host.allocation_latency(latency).build();
    if source == Source::Virtual && !has_virtual_memory(&host) {
        return None;
    }
    // Arenas of fixed size take all of it at once.
    let most = if source == Source::Arena { caps.capacity / 2 } else { u64::MAX };
    let caps = Caps { limit: caps.limit.min(most), ..caps };
    let pool = || {
        let builder = Pool::builder(&AuditDevice::new(host.clone())).limit(caps.limit).budget(caps.budget);
        let builder = builder.max_cached_bytes(caps.max_cached).max_buffers_per_bucket(caps.per_bucket);
        let builder = builder.size_classes(classes.clone()).magazine_bytes(magazine_bytes).source(source);
        builder.build().expect("a pool")
    };
    let pools = [pool(), pool()];
    let streams = (0..3).map(|_| host.create_stream().expect("a stream")).collect();
    let foreign = HostDevice::new().create_stream().expect("a stream");
    let are_rows_buckets =
        !matches!(classes, SizeClasses::Multiple(_) | SizeClasses::Exact(_) | SizeClasses::Tight);
    Some(Scene { caps, are_rows_buckets, host, foreign, streams, pools })
}

type Live = (usize, Buffer<Device>);

fn work(scene: &Scene, steps: &[Step], handed_over: &Mutex<Vec<Live>>) -> ([Seen; 2], Vec<Live>) {
    let (mut seen, mut live) = (<[Seen; 2]>::default(), Vec::<Live>::new());
    let mut before = scene.pools.each_ref().map(|pool| counts(&pool.stats()));
    for step in steps {
        match *step {
            Step::Allocate { pool, bytes, stream } => {
                let outcome = scene.pools[pool].allocate(bytes, &scene.streams[stream]);
                note(&mut seen[pool], &outcome);
                live.extend(outcome.map(|buffer| (pool, buffer)));
            }
            Step::Pair { pool, bytes } => {
                note(&mut seen[pool], &scene.pools[pool].allocate(bytes, &scene.streams[0]));
            }
            Step::Foreign { pool } => note(&mut seen[pool], &scene.pools[pool].allocate(10, &scene.foreign)),
            // It may be the call that fails.
            Step::Use { which, stream } if !live.is_empty() => {
                _ = live[which % live.len()].1.used_on(&scene.streams[stream]);
            }
            Step::Drop(which) if !live.is_empty() => drop(live.swap_remove(which % live.len())),
            Step::HandOver(which) if !live.is_empty() => {
                let index = which % live.len();
                handed_over.lock().expect("no panic").push(live.swap_remove(index));
            }
            Step::TakeOver => {
                let taken = handed_over.lock().expect("no panic").pop();
                drop(taken);
            }
            Step::Use { .. } | Step::Drop(_) | Step::HandOver(_) => {}
            Step::Trim { pool, to } => _ = scene.pools[pool].trim_to(to),
            Step::Close { pool } => scene.pools[pool].close(),
            Step::ResetPeaks { pool } => scene.pools[pool].reset_peaks(),
            Step::Look { pool } => {
                let stats = scene.pools[pool].stats();
                check(&stats, scene);
                let now = counts(&stats);
                assert!(
                    now.iter().zip(&before[pool]).all(|(now, before)| now >= before),
                    "{now:?} {before:?}"
                );
                before[pool] = now;
            }
        }
    }
    (seen, live)
}

fn sources() -> impl Strategy<Value = Source> {
    prop::sample::select(Source::ALL.to_vec())
}

fn classes() -> impl Strategy<Value = SizeClasses> {
    prop_oneof![
        Just(SizeClasses::Fixed),
        Just(SizeClasses::PowerOfTwo),
        Just(SizeClasses::Geometric { per_doubling: 4, from: 2 * KIB }),
        Just(SizeClasses::Multiple(8 * KIB)),
        Just(SizeClasses::Exact(1)),
        Just(SizeClasses::Tight),
        Just(SizeClasses::Table(SizeTable::new([700, 3000, 9000, 40_000]))),
    ]
}

fn run(scene: Scene, lists: &[Vec<Step>]) {
    let handed_over = Mutex::default();
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> =
            lists.iter().map(|list| scope.spawn(|| work(&scene, list, &handed_over))).collect();
        workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
    });
    let (mut seen, mut live) = (<[Seen; 2]>::default(), handed_over.into_inner().expect("no panic"));
    for (of_thread, left) in outcomes {
        for (seen, more) in seen.iter_mut().zip(of_thread) {
            more.into_iter().for_each(|(name, count)| *seen.entry(name).or_default() += count);
        }
        live.extend(left);
    }
    let of = |live: &[Live], pool: usize, stats: &PoolStats| {
        let live: Vec<_> = live.iter().filter(|(of, _)| *of == pool).map(|(_, buffer)| buffer).collect();
        check_quiet(stats, &scene, scene.pools[pool].is_closed(), &seen[pool], &live);
    };
    for (number, pool) in scene.pools.iter().enumerate() {
        // Another thread returns the memory of a closed pool to the device.
        until(|| pool.stats().in_transit_bytes == 0);
        let before = pool.stats();
        of(&live, number, &before);
        pool.reset_peaks();
        let stats = pool.stats();
        of(&live, number, &stats);
        let peak = &stats.peak;
        let peaks = [peak.requested_bytes, peak.live_bytes, peak.held_bytes, peak.reserved_bytes];
        let now = [stats.requested_bytes, stats.live_bytes, stats.held_bytes, stats.reserved_bytes];
        assert_eq!(peaks, now, "{stats:?}");
        // Work may complete in between.
        let needed = stats.needed_bytes..=before.needed_bytes;
        assert!(needed.contains(&peak.needed_bytes), "{needed:?}: {stats:?}");
        let device = pool.device();
        assert!(device.peak() <= scene.caps.limit, "{} bytes were taken: {stats:?}", device.peak());
        if pool.source() != Source::Arena {
            assert_eq!(device.taken(), stats.reserved_bytes, "{stats:?}");
        }
        if pool.arena().is_none() {
            assert_eq!(device.frees(), stats.source.frees);
        }
    }
    live.clear();
    scene.host.faults().clear();
    for (number, pool) in scene.pools.iter().enumerate() {
        pool.trim().expect("a trim");
        let stats = pool.stats();
        of(&live, number, &stats);
        assert_eq!((stats.held_bytes, stats.source.allocations), (0, stats.source.frees), "{stats:?}");
    }
    let devices = scene.pools.each_ref().map(|pool| pool.device().clone());
    drop(scene);
    assert_eq!(devices.map(|device| device.taken()), [0; 2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_count_is_what_the_callers_saw(
        source in sources(),
        classes in classes(),
        magazine_bytes in prop::sample::select(vec![0, 8 * KIB, 100 * KIB, 1 << 30]),
        caps in caps(),
        is_slow in any::<bool>(),
        lists in prop::collection::vec(prop::collection::vec(step(), 0..150), 1..5),
    ) {
        let Some(scene) = scene(source, &classes, magazine_bytes, caps, is_slow) else { return Ok(()) };
        run(scene, &lists);
    }

    #[test]
    fn every_count_is_what_the_callers_saw_when_the_driver_fails(
        source in sources(),
        magazine_bytes in prop::sample::select(vec![0, 100 * KIB]),
        caps in caps(),
        faults in prop::collection::vec((0..7usize, 1..60u64, any::<bool>()), 1..30),
        lists in prop::collection::vec(prop::collection::vec(step(), 0..150), 1..3),
    ) {
        let Some(scene) = scene(source, &SizeClasses::Fixed, magazine_bytes, caps, false) else { return Ok(()) };
        let mapping = [Call::CreatePhysical, Call::Map, Call::SetAccess, Call::Unmap];
        let calls = [[Call::Allocate, Call::Record, Call::Wait].as_slice(), &mapping].concat();
        for (call, n, out_of_memory) in faults {
            let call = calls[call];
            if out_of_memory && matches!(call, Call::Allocate | Call::CreatePhysical) {
                let error = vrampool::BackendError::out_of_memory(1, Some(0));
                scene.host.faults().fail_nth_with(call, n, error);
            } else {
                scene.host.faults().fail_nth(call, n);
            }
        }
        run(scene, &lists);
    }
}
