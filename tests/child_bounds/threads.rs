//! Bounds of children under threads, as the device sees them.

use crate::{Device, KIB, device, device_and_stream};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;
use vrampool::host::{Call, HostStream};
use vrampool::{Backend, BackendError, Buffer, Pool};

/// Bytes, which buffer to drop, and the kind of a request.
type Requests = Vec<(u64, usize, u8)>;

fn lists() -> impl Strategy<Value = Vec<Requests>> {
    let request = (0..=64 * KIB, any::<usize>(), 0..10u8);
    prop::collection::vec(prop::collection::vec(request, 20..80), 2..5)
}

/// Requests buffers of a child, of which this thread has at most `most` bytes, rounded to classes. Returns the number
/// of refused requests.
fn work(child: &Pool<Device>, pool: &Pool<Device>, stream: &HostStream, list: &Requests, most: u64) -> usize {
    let mut mine: Vec<Buffer<Device>> = Vec::new();
    let mut refused = 0;
    for &(bytes, which, _) in list {
        let class = pool.class_of(bytes).expect("a class");
        while mine.iter().map(Buffer::capacity).sum::<u64>() + class > most {
            drop(mine.swap_remove(which % mine.len()));
        }
        match child.allocate(bytes, stream) {
            Ok(buffer) => mine.push(buffer),
            Err(_) => refused += 1,
        }
    }
    refused
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// All memory of the device is the child's. No request is refused while another one releases what is idle.
    #[test]
    fn the_device_sees_no_more_than_the_limit(lists in lists(), fails in any::<bool>()) {
        let device = device();
        let pool = Pool::builder(&device).max_cached_bytes(0).build().expect("a pool");
        let child = pool.child("tenant").build().expect("a pool");
        let limit = lists.len() as u64 * 80 * KIB;
        child.set_limit(limit).expect("no share");
        if fails {
            device.inner().faults().fail_nth(Call::Allocate, 5);
        }
        let refused: usize = thread::scope(|scope| {
            let workers = lists.iter().map(|list| {
                let (device, child, pool) = (&device, &child, &pool);
                scope.spawn(move || {
                    work(child, pool, &device.create_stream().expect("a stream"), list, 80 * KIB)
                })
            });
            let workers: Vec<_> = workers.collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).sum()
        });
        device.inner().faults().clear();
        prop_assert!(device.peak() <= limit, "{} of {limit}", device.peak());
        prop_assert!(refused <= usize::from(fails), "{refused} were refused");
        prop_assert_eq!((child.stats().live_bytes, child.stats().idle_bytes), (0, device.taken()));
        drop(child);
        prop_assert_eq!((device.taken(), pool.stats().held_bytes), (0, 0));
    }

    /// Threads of other children and pools take what they get, also by waiting for it, and pools come, close and go.
    #[test]
    fn the_limit_refuses_no_request_within_a_share(
        lists in lists(),
        magazine_bytes in prop::sample::select(&[0, 70 * KIB][..]),
        max_cached in prop::sample::select(&[0, 100 * KIB, u64::MAX][..]),
    ) {
        let device = device();
        let (most, limit) = (80 * KIB, 600 * KIB);
        let builder = || Pool::builder(&device).magazine_bytes(magazine_bytes);
        let pool = builder().limit(limit).max_cached_bytes(max_cached).build().expect("a pool");
        let within = pool.child("within").build().expect("a pool");
        let tenant = pool.child("tenant").build().expect("a pool");
        let other = within.child("other").build().expect("a pool");
        let share = lists.len() as u64 * most;
        tenant.set_share(share).expect("nothing is live");
        tenant.set_limit(share).expect("not below the share");
        other.set_share(64 * KIB).expect("nothing is live");
        let is_done = AtomicBool::new(false);
        let refused: usize = thread::scope(|scope| {
            let workers = lists.iter().map(|list| {
                let (device, tenant, pool) = (&device, &tenant, &pool);
                scope.spawn(move || {
                    work(tenant, pool, &device.create_stream().expect("a stream"), list, most)
                })
            });
            let workers: Vec<_> = workers.collect();
            let others = lists.iter().enumerate().map(|(number, list)| {
                let (device, pool, within, other, is_done) = (&device, &pool, &within, &other, &is_done);
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    let mut mine = Vec::new();
                    while !is_done.load(SeqCst) {
                        for &(bytes, which, kind) in list {
                            let soon = Duration::from_micros(10);
                            let got = match (kind, number % 2) {
                                (0..4, 0) => pool.allocate(bytes, &stream),
                                (0..4, _) => within.allocate(bytes, &stream),
                                (4, _) => pool.allocate_timeout(bytes, &stream, soon),
                                (5, _) => other.allocate(bytes, &stream),
                                (6, _) => {
                                    let child = within.child("short").build().expect("a pool");
                                    let got = child.allocate(bytes, &stream);
                                    child.close();
                                    got
                                }
                                _ if mine.is_empty() => continue,
                                _ => {
                                    drop(mine.swap_remove(which % mine.len()));
                                    continue;
                                }
                            };
                            mine.extend(got);
                        }
                    }
                })
            });
            let others: Vec<_> = others.collect();
            let outcomes: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_done.store(true, SeqCst);
            // Their magazines end with them.
            others.into_iter().for_each(|other| other.join().expect("no panic"));
            outcomes.into_iter().map(|refused| refused.expect("no panic")).sum()
        });
        prop_assert_eq!(refused, 0, "within its share");
        prop_assert!(device.peak() <= limit, "{} of {limit}", device.peak());
        drop((tenant, other, within, pool));
        // A driver call for a request whose time is over ends later.
        while device.taken() > 0 {
            thread::yield_now();
        }
    }

    /// Five children under one cap: each has its limit, and all of them that of the pool.
    #[test]
    fn five_children_keep_to_one_cap_at_any_instant(lists in lists(), fails in any::<bool>()) {
        let device = device();
        let (limit, max_cached) = (300 * KIB, 50 * KIB);
        let pool = Pool::builder(&device).limit(limit).max_cached_bytes(max_cached).build().expect("a pool");
        let children: Vec<_> = (0..5).map(|_| pool.child("tenant").build().expect("a pool")).collect();
        for child in &children {
            child.set_limit(90 * KIB).expect("no share");
            child.set_share(40 * KIB).expect("nothing is live");
        }
        if fails {
            device.inner().faults().fail_all(Call::Allocate, BackendError::out_of_memory(1, None));
        }
        let (begun, is_done) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let observer = scope.spawn(|| {
                while !is_done.load(SeqCst) {
                    assert!(device.taken() <= limit);
                    // A buffer that is freed between both calls counts twice.
                    let most = |child: &Pool<Device>| child.stats().live_bytes.max(child.stats().idle_bytes);
                    assert!(children.iter().all(|child| most(child) <= 90 * KIB));
                    if begun.load(SeqCst) == 40 {
                        device.inner().faults().clear();
                    }
                }
            });
            let workers = lists.iter().map(|list| {
                let (device, children, begun) = (&device, &children, &begun);
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    let mut mine = Vec::new();
                    for &(bytes, which, kind) in list {
                        begun.fetch_add(1, SeqCst);
                        mine.extend(children[usize::from(kind) % 5].allocate(bytes, &stream));
                        if mine.len() > 3 {
                            drop(mine.swap_remove(which % mine.len()));
                        }
                    }
                })
            });
            let workers: Vec<_> = workers.collect();
            let outcomes: Vec<_> = workers.into_iter().map(thread::ScopedJoinHandle::join).collect();
            is_done.store(true, SeqCst);
            observer.join().expect("every look was right");
            outcomes.into_iter().for_each(|outcome| outcome.expect("no thread failed"));
        });
        device.inner().faults().clear();
        prop_assert!(device.peak() <= limit);
        // Reserved bytes are free again: each pool has its whole share, and all have the rest.
        let stream = device.create_stream().expect("a stream");
        for child in &children {
            child.set_limit(40 * KIB).expect("not below the share");
            let whole: Vec<_> = (0..10).map(|_| child.allocate(4 * KIB, &stream)).collect();
            prop_assert!(whole.iter().all(Result::is_ok) && child.allocate(1, &stream).is_err(), "{whole:?}");
        }
        drop(children);
        pool.trim().expect("a trim");
        prop_assert_eq!(device.taken(), 0);
        prop_assert!(pool.allocate(256 * KIB, &stream).is_ok(), "no share is left");
    }
}

#[test]
fn a_request_waits_for_memory_of_the_child_that_is_being_released() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).build().expect("a pool");
    let child = pool.child("tenant").build().expect("a pool");
    child.set_limit(64 * KIB).expect("no share");
    drop(child.allocate(64 * KIB, &stream).expect("memory"));
    let (is_releasing, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (releasing, over) = (Arc::clone(&is_releasing), Arc::clone(&is_over));
    device.before_drop(move || {
        releasing.store(true, SeqCst);
        // Long enough for a request that does not wait.
        for _ in 0..10_000 {
            if over.load(SeqCst) {
                break;
            }
            thread::yield_now();
        }
    });
    let buffers = thread::scope(|scope| {
        let first = scope.spawn(|| child.allocate(16 * KIB, &stream));
        while !is_releasing.load(SeqCst) {
            thread::yield_now();
        }
        let second = child.allocate(16 * KIB, &stream);
        is_over.store(true, SeqCst);
        [first.join().expect("no panic"), second]
    });
    device.forget_hook();
    assert!(buffers.iter().all(Result::is_ok), "{buffers:?}");
    assert!(device.peak() <= 64 * KIB, "{}", device.peak());
}
