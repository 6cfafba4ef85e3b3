//! A child is a pool: with every call and figure of one, over every source.

use crate::KIB;
use std::thread;
use std::time::Duration;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Error, Pool, SizeClasses, Source};
use vrampool_test_support::{close_gate, streams, until};

const MIB: u64 = 1 << 20;

/// A pool over each source of a device of 1 GiB, with two streams.
fn over_every_source(check: impl Fn(Pool<HostDevice>, [HostStream; 2])) {
    for &source in Source::ALL {
        let device = HostDevice::builder().memory_limit(1 << 30).build();
        if let Ok(pool) = Pool::builder(&device).source(source).limit(300 * MIB).build() {
            check(pool, streams(&device));
        }
    }
}

#[test]
fn streams_that_share_a_child_run_side_by_side() {
    over_every_source(|pool, [one, two]| {
        let child = pool.child("tenant").build().expect("a pool");
        for bytes in [4 * KIB, MIB, 16 * MIB] {
            drop(child.allocate(bytes, &one).expect("memory"));
            let open = close_gate(&one);
            drop(child.allocate(bytes, &two).expect("memory"));
            assert_eq!(child.stats().reuse_waits, 0, "{:?}, {bytes}", pool.source());
            drop(open);
        }
    });
}

#[test]
fn requests_of_a_child_count_and_outlive_it_in_the_figures_of_its_pool() {
    over_every_source(|pool, [stream, _]| {
        let child = pool.child("tenant").build().expect("a pool");
        (0..99).for_each(|_| drop(child.allocate(40_000, &stream).expect("memory")));
        let live = child.allocate(40_000, &stream).expect("memory");
        for stats in [child.stats(), pool.stats()] {
            assert_eq!((stats.served.by_bucket, stats.served.total()), (99, 100), "{:?}", pool.source());
            assert_eq!((stats.requested_bytes, stats.live_buffers), (40_000, 1));
        }
        assert_eq!(pool.own_stats().served.total(), 0);
        drop((live, child));
        assert_eq!((pool.stats().served.total(), pool.stats().live_bytes), (100, 0));
    });
}

#[test]
fn a_child_has_every_call_of_a_pool() {
    over_every_source(|pool, [stream, _]| {
        let child = pool.child("tenant").limit(96 * MIB).build().expect("a pool");
        let zeroed = child.allocate_zeroed(1000, &stream).expect("memory");
        let mut bytes = [1; 1000];
        zeroed.read(&mut bytes, &stream).expect("no fault");
        assert_eq!(bytes, [0; 1000]);
        let all = child.allocate(48 * MIB, &stream).expect("memory");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| child.allocate_timeout(64 * MIB, &stream, Duration::MAX));
            until(|| child.waiting_requests() > 0);
            drop(all);
            waiting.join().expect("no panic").expect("memory");
        });
        drop(zeroed);
        assert!(child.stats().held_bytes > 0 || child.source() == Source::Virtual);
        child.trim().expect("a trim");
        assert_eq!((child.stats().idle_bytes, child.stats().live_bytes), (0, 0));
        pool.close();
        assert!(matches!(child.allocate(1, &stream), Err(Error::Closed)));
        let after = pool.child("after").build().expect("a pool");
        assert!(matches!(after.allocate(1, &stream), Err(Error::Closed)), "its pool is closed");
    });
}

/// Each child has a separate arena: pages that are free in one serve the others.
#[test]
fn free_pages_of_one_child_serve_all() {
    over_every_source(|pool, [stream, _]| {
        let [one, two] = ["one", "two"].map(|name| pool.child(name).build().expect("a pool"));
        for of in [&pool, &one, &two, &one, &pool] {
            drop(of.allocate(256 * MIB, &stream).expect("all else is free"));
        }
    });
}

/// Over virtual memory a limit counts pages. Whatever others do, a share is there.
#[test]
fn a_share_of_virtual_memory_is_there_whenever_it_is_asked_for() {
    let mut random = fastrand::Rng::with_seed(7);
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    let [stream] = streams(&device);
    for program in 0..100 {
        let builder = Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::EXACT);
        let Ok(pool) = builder.limit(64 * MIB).build() else { return };
        let other = pool.child("other").build().expect("a pool");
        let tenant = pool.child("tenant").share(8 * MIB).build().expect("nothing is live");
        let mut live: Vec<_> = Vec::new();
        for _ in 0..random.usize(20..80) {
            let from = if random.bool() { &pool } else { &other };
            live.extend(from.allocate(random.u64(1..12 * MIB), &stream));
            if random.u8(0..3) == 0 && !live.is_empty() {
                drop(live.swap_remove(random.usize(..live.len())));
            }
        }
        let own: Result<Vec<_>, _> = (0..4).map(|_| tenant.allocate(2 * MIB, &stream)).collect();
        assert!(own.is_ok(), "{program}: {own:?}");
        assert!(pool.stats().reserved_bytes <= 64 * MIB);
    }
}
