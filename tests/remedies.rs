//! The remedy that an error of a lack of memory names follows its cause.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::errors::Cause;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Error, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_test_support::until;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn scene(bytes: u64) -> (HostDevice, HostStream) {
    let device = HostDevice::builder().memory_limit(bytes).build();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

fn pool(builder: PoolBuilder<HostDevice>) -> Pool<HostDevice> {
    builder.build().expect("a pool")
}

/// Expects a lack of memory of this cause, whose text names `remedy` and none of the others'.
fn expect<T: std::fmt::Debug>(refused: Result<T, Error>, cause: Cause, remedy: &str) {
    /// Words that only one remedy has.
    const MARKS: [&str; 7] = [
        "request less at a time",
        "round up less",
        "drop live buffers",
        "make no call",
        "earlier requests",
        "keep blocks in place",
        "of this process, pool",
    ];
    let error = refused.expect_err("too much");
    let text = error.to_string();
    assert_eq!(error.out_of_memory().map(|error| error.cause()), Some(cause), "{text}");
    assert!(text.contains(remedy), "{text}");
    let others = MARKS.iter().filter(|mark| text.contains(*mark) && !remedy.contains(*mark));
    assert_eq!(others.collect::<Vec<_>>(), Vec::<&&str>::new(), "{text}");
    assert!(!text.contains("compact"), "{text}");
}

#[test]
fn a_request_larger_than_all() {
    let (device, stream) = scene(64 * MIB);
    for source in [Source::Direct, Source::Arena, Source::Virtual] {
        let pool = pool(Pool::builder(&device).source(source).limit(16 * MIB));
        expect(
            pool.allocate(20 * MIB, &stream),
            Cause::Request,
            "limit is 16.0 MiB; raise `limit`, or request less at a time",
        );
    }
}

/// A higher limit adds no memory to it, so that is not all that its text advises.
#[test]
fn an_arena_of_fixed_size() {
    let (device, stream) = scene(64 * MIB);
    let pool = pool(Pool::builder(&device).source(Source::Arena).limit(16 * MIB));
    pool.set_limit(32 * MIB).expect("it is above");
    let remedy = "request less at a time; an arena of fixed size takes a new limit only when it is built";
    expect(pool.allocate(20 * MIB, &stream), Cause::Request, remedy);
    let live = pool.allocate(10 * MIB, &stream).expect("there is room");
    let remedy = "drop live buffers, raise `limit`, or give the pool a larger arena; one of fixed size takes a new limit only";
    expect(pool.allocate(10 * MIB, &stream), Cause::Live, remedy);
    drop(live);
}

#[test]
fn rounding() {
    let (device, stream) = scene(700 * MIB);
    let limited = pool(Pool::builder(&device).size_classes(SizeClasses::Fixed).limit(560 * MIB));
    let live = limited.allocate(64 * MIB, &stream).expect("there is room");
    // Beside 64 MiB its class does not fit, and it does.
    expect(
        limited.allocate(300 * MIB, &stream),
        Cause::Rounding,
        "choose size classes that round up less, or raise `limit`",
    );
    drop(live);
    let unlimited = pool(Pool::builder(&device).size_classes(SizeClasses::Fixed));
    let live = unlimited.allocate(256 * MIB, &stream).expect("there is room");
    expect(unlimited.allocate(300 * MIB, &stream), Cause::Rounding, "choose size classes that round up less");
    drop(live);
}

#[test]
fn live_memory() {
    let (device, stream) = scene(64 * MIB);
    for source in [Source::Direct, Source::Virtual] {
        for (limit, remedy) in [
            (32 * MIB, "its limit is 32.0 MiB; drop live buffers, or raise `limit`"),
            (
                128 * MIB,
                "the device is out of memory, 0 B are free; drop live buffers, use smaller batches, or set a `limit` that leaves \
                 room for others",
            ),
        ] {
            let pool = pool(Pool::builder(&device).source(source).limit(limit));
            let _live: Vec<_> = std::iter::from_fn(|| pool.allocate(4 * MIB, &stream).ok()).collect();
            expect(pool.allocate(4 * MIB, &stream), Cause::Live, remedy);
        }
    }
}

/// A pool over an arena that grows, which the program uses, too.
#[test]
fn errors_of_a_virtual_pool_do_not_advise_compaction() {
    let (device, stream) = scene(64 * MIB);
    let arena = DeviceArena::builder(&device).growing().limit(16 * MIB).build().expect("an arena");
    let pool = pool(Pool::builder(&device).arena(&arena));
    let live = pool.allocate(10 * MIB, &stream).expect("there is room");
    expect(
        pool.allocate(10 * MIB, &stream),
        Cause::Live,
        "drop live buffers, raise `limit`, or give the pool a larger arena",
    );
    let error = arena.allocate(10 * MIB, &stream).expect_err("too much").to_string();
    assert!(error.contains("drop live buffers, or raise `limit`") && !error.contains("compact"), "{error}");
    drop(live);
}

#[test]
fn blocks_that_are_kept_in_place() {
    let (device, stream) = scene(64 * MIB);
    let pool = pool(
        Pool::builder(&device)
            .source(Source::Arena)
            .limit(16 * MIB)
            .size_classes(SizeClasses::Tight)
            .cached_class(0),
    );
    let mut blocks: Vec<_> =
        (0..8).map(|_| pool.allocate(2 * MIB, &stream).expect("there is room")).collect();
    let regions: Vec<_> =
        blocks.iter().skip(1).step_by(2).map(|block| block.on(&stream).expect("a region")).collect();
    drop(regions);
    blocks = blocks.into_iter().skip(1).step_by(2).collect();
    let regions: Vec<_> = blocks.iter().map(|block| block.on(&stream).expect("a region")).collect();
    expect(
        pool.allocate(4 * MIB, &stream),
        Cause::Fragmentation,
        "drop regions that keep blocks in place, or choose the virtual source",
    );
    drop(regions);
    pool.allocate(4 * MIB, &stream).expect("the remedy helps");
}

#[test]
fn errors_of_an_arena_with_holes_advise_compaction() {
    let (device, stream) = scene(64 * MIB);
    let arena = DeviceArena::builder(&device).limit(16 * MIB).build().expect("an arena");
    let blocks: Vec<_> = (0..8).map(|_| arena.allocate(2 * MIB, &stream).expect("there is room")).collect();
    let _live: Vec<_> = blocks.into_iter().skip(1).step_by(2).collect();
    let error = arena.allocate(4 * MIB, &stream).expect_err("no hole");
    assert_eq!(error.out_of_memory().map(|error| error.cause()), Some(Cause::Fragmentation));
    assert!(error.to_string().contains("; compact the arena, or make it a growing one"), "{error}");
    arena.compact(None, &stream, |_| {}).expect("no fault");
    arena.allocate(4 * MIB, &stream).expect("the remedy helps");
}

/// A thread that keeps idle memory in its magazines and makes no call.
#[test]
fn idle_memory_of_a_thread_that_is_parked() {
    let (device, stream) = scene(64 * MIB);
    let pool =
        pool(Pool::builder(&device).limit(MIB).magazine_bytes(MIB).size_classes(SizeClasses::PowerOfTwo));
    let (ready, is_ready) = mpsc::channel();
    let (end, ends) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let (pool, stream) = (&pool, &stream);
        let parked = scope.spawn(move || {
            for _ in 0..3 {
                drop([(); 4].map(|()| pool.allocate(16 * KIB, stream).expect("there is room")));
            }
            ready.send(()).expect("it waits");
            let _ = ends.recv();
        });
        is_ready.recv().expect("it is ready");
        assert!(pool.stats().idle_bytes > 0);
        expect(
            pool.allocate(MIB, stream),
            Cause::Idle,
            "threads that make no call keep idle memory in their magazines",
        );
        drop(end);
        // Its variables are destroyed before that, and not before the end of the scope.
        parked.join().expect("no panic");
    });
    pool.allocate(MIB, &stream).expect("the remedy helps");
}

#[test]
fn earlier_requests_that_wait() {
    let (device, stream) = scene(64 * MIB);
    let pool = pool(Pool::builder(&device).limit(8 * MIB).size_classes(SizeClasses::PowerOfTwo));
    let live = pool.allocate(4 * MIB, &stream).expect("there is room");
    thread::scope(|scope| {
        let (pool, stream) = (&pool, &stream);
        let waiting =
            scope.spawn(move || pool.allocate_timeout(8 * MIB, stream, Duration::from_secs(60)).map(drop));
        until(|| pool.waiting_requests() > 0);
        expect(
            pool.allocate(MIB, stream),
            Cause::Waiting,
            "earlier requests wait for 8.0 MiB; wait as well, with `allocate_timeout`",
        );
        drop(live);
        waiting.join().expect("no panic").expect("it was first");
    });
}

/// Idle memory of other pools serves before a refusal, and live memory of theirs is named.
#[test]
fn other_pools_of_the_process() {
    let (device, stream) = scene(64 * MIB);
    for (source, other) in [
        (Source::Direct, Source::Direct),
        (Source::Virtual, Source::Direct),
        (Source::Direct, Source::Virtual),
        (Source::Virtual, Source::Virtual),
    ] {
        let pool = pool(Pool::builder(&device).source(source).size_classes(SizeClasses::Tight));
        let hoarder = Pool::builder(&device).source(other).size_classes(SizeClasses::Tight).name("hoarder");
        let hoarder = hoarder.max_cached_bytes(None).cached_class(None).build().expect("a pool");
        drop(hoarder.allocate(48 * MIB, &stream).expect("there is room"));
        assert_eq!(hoarder.stats().idle_bytes, 48 * MIB, "{other}");
        drop(
            pool.allocate(32 * MIB, &stream)
                .unwrap_or_else(|error| panic!("{source} beside {other}: {error}")),
        );
        pool.trim().expect("a trim");
        let live = hoarder.allocate(48 * MIB, &stream).expect("there is room");
        expect(
            pool.allocate(32 * MIB, &stream),
            Cause::OtherPools,
            "16.0 MiB are free; of this process, pool `hoarder` holds 48.0 MiB (0 B idle); drop buffers of theirs, or give each pool a \
             `limit`",
        );
        // A pool of another device is not listed.
        let (elsewhere, its) = scene(MIB);
        let own = Pool::builder(&elsewhere).build().expect("a pool");
        let error = own.allocate(2 * MIB, &its).expect_err("too much");
        assert!(error.out_of_memory().is_some_and(|error| error.other_pools.is_empty()), "{error}");
        drop(live);
    }
}

/// A failed request of a pool that its own limit refuses touches no other pool.
#[test]
fn a_limit_of_ones_own_takes_nothing_from_others() {
    let (device, stream) = scene(64 * MIB);
    let hoarder = pool(Pool::builder(&device).name("hoarder"));
    drop(hoarder.allocate(16 * MIB, &stream).expect("there is room"));
    for source in [Source::Direct, Source::Arena] {
        let pool = pool(Pool::builder(&device).source(source).limit(8 * MIB));
        let _live = pool.allocate(8 * MIB, &stream).expect("there is room");
        expect(pool.allocate(8 * MIB, &stream), Cause::Live, "drop live buffers, or raise `limit`");
    }
    assert_eq!(hoarder.stats().idle_bytes, 16 * MIB);
}

/// Memory of the device in other use.
#[test]
fn memory_that_is_not_of_a_pool() {
    let (device, stream) = scene(64 * MIB);
    let request = vrampool::backend::AllocationRequest::new(60 * MIB, vrampool::Placement::Device);
    let _other = device.allocate(&request).expect("there is room");
    let pool = pool(Pool::builder(&device));
    expect(
        pool.allocate(16 * MIB, &stream),
        Cause::Device,
        "4.0 MiB are free; release other memory of the device, in this process or another one, or request less at a time",
    );
}
