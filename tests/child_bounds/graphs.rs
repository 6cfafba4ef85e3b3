//! A limit releases no memory that a graph may use.

use crate::{KIB, device_and_stream};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool::errors::{Cause, Owner};
use vrampool::{Error, Pool, Source};

#[test]
fn idle_memory_of_a_captured_step_outlives_later_requests() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).max_cached_bytes(0).build().expect("a pool");
    let graph = pool.child("graph").private(true).build().expect("a pool");
    graph.set_limit(80 * KIB).expect("no share");
    let step = || {
        let buffers = [64 * KIB, 16 * KIB].map(|bytes| graph.allocate(bytes, &stream).expect("memory"));
        buffers.map(|buffer| buffer.address().expect("the host has addresses"))
    };
    let places = step();
    assert_eq!((graph.stats().idle_bytes, device.taken()), (80 * KIB, 80 * KIB));
    device.set_capturing(true);
    let before = (device.allocations(), device.frees());
    assert_eq!(step(), places, "its own idle memory serves a capture");
    // Also where it would have to release something first.
    let error = graph.allocate(4 * KIB, &stream).expect_err("none is idle");
    assert!(matches!(error, Error::Capture { requested_bytes: 4096, .. }), "{error}");
    assert_eq!((device.allocations(), device.frees()), before);
    device.set_capturing(false);
    let error = graph.allocate(4 * KIB, &stream).expect_err("graphs may use all of it");
    let figures = error.out_of_memory().expect("a lack of memory");
    assert_eq!((figures.owner, figures.cause(), figures.idle_bytes), (Owner::Child, Cause::Idle, 80 * KIB));
    assert!(error.to_string().contains("graphs may use"), "{error}");
    graph.set_limit(16 * KIB).expect("no share");
    assert_eq!((graph.stats().idle_bytes, step()), (80 * KIB, places), "nor does a lower limit release it");
}

/// Also where the limit that refuses is one above.
#[test]
fn private_idle_memory_is_named_as_such() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).limit(144 * KIB).build().expect("a pool");
    let graph = pool.child("graph").private(true).build().expect("a pool");
    drop(graph.allocate(64 * KIB, &stream).expect("memory"));
    let error = graph.allocate(128 * KIB, &stream).expect_err("none of that size is idle");
    let figures = error.out_of_memory().expect("a lack of memory");
    assert_eq!((figures.owner, figures.cause()), (Owner::Pool, Cause::Idle));
    assert!(error.to_string().contains("graphs may use its idle memory"), "{error}");
}

/// Nothing knows of a graph then, so there may be one.
#[test]
fn memory_that_was_idle_before_there_was_a_limit_is_kept() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).build().expect("a pool");
    let child = pool.child("graph").private(true).build().expect("a pool");
    (0..2).for_each(|_| drop(child.allocate(64 * KIB, &stream).expect("memory")));
    child.set_limit(64 * KIB).expect("no share");
    assert!(child.allocate(4 * KIB, &stream).is_err());
    assert_eq!(child.stats().idle_bytes, 64 * KIB);
    // So is that of a graph that is launched.
    let child = pool.child("graph").private(true).build().expect("a pool");
    child.set_limit(64 * KIB).expect("no share");
    drop(child.allocate(64 * KIB, &stream).expect("memory"));
    child.used_on(&stream).expect("no wait");
    assert!(child.allocate(4 * KIB, &stream).is_err());
    assert_eq!(child.stats().idle_bytes, 64 * KIB);
}

/// A compaction closes the holes of an arena of fixed size around what keeps its addresses, live and idle.
#[test]
fn memory_of_children_that_keep_addresses_is_not_moved() {
    for (is_private, stays) in [(true, false), (false, true), (false, false)] {
        let (device, stream) = device_and_stream();
        let pool = Pool::builder(&device).source(Source::Arena).limit(512 * KIB).magazine_bytes(0);
        let pool = pool.max_cached_bytes(0).build().expect("a pool");
        let child = pool.child("child").private(is_private).addresses_stay(stays).build().expect("a pool");
        let allocate = |pool: &Pool<_>| pool.allocate(64 * KIB, &stream).expect("memory");
        let hole = allocate(&pool);
        let (kept, graphs, other_hole) = (allocate(&child), allocate(&child), allocate(&pool));
        let (moved, before) = (allocate(&pool), [&kept, &graphs].map(|buffer| buffer.address()));
        let place = moved.address();
        drop((hole, graphs, other_hole));
        assert!(pool.compact(None, &stream, |_| {}).expect("no fault").moved_blocks > 0);
        assert_eq!(kept.address() == before[0], is_private || stays);
        assert_ne!(moved.address(), place, "others are moved");
        let again = is_private.then(|| allocate(&child).address());
        assert!(again.is_none_or(|again| again == before[1]));
    }
}

#[test]
fn a_child_moves_nothing_of_a_pool_that_keeps_addresses() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).source(Source::Arena).limit(512 * KIB).addresses_stay(true);
    let pool = pool.max_cached_bytes(0).build().expect("a pool");
    let child = pool.child("child").addresses_stay(false).build().expect("a pool");
    let [hole, kept] = [(); 2].map(|()| pool.allocate(64 * KIB, &stream).expect("memory"));
    let place = kept.address();
    drop(hole);
    let compaction = child.compact(None, &stream, |_| {}).expect("no fault");
    assert_eq!((compaction.moved_blocks, kept.address()), (0, place));
}

/// Another stream is captured, and the device reports all of them: memory may not be released then.
#[test]
fn nothing_is_released_while_the_stream_is_captured() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).build().expect("a pool");
    let child = pool.child("tenant").build().expect("a pool");
    child.set_limit(64 * KIB).expect("no share");
    drop(child.allocate(64 * KIB, &stream).expect("memory"));
    // The capture begins between the check of the request and the release.
    let (capturing, queries) = (device.clone(), AtomicU64::new(0));
    device.before_capture_query(move || {
        capturing.set_capturing(queries.fetch_add(1, Relaxed) >= 1);
    });
    let frees = device.frees();
    let error = child.allocate(4 * KIB, &stream).expect_err("it is captured");
    assert!(matches!(error, Error::Capture { .. }), "{error}");
    assert_eq!((device.frees(), child.stats().idle_bytes), (frees, 64 * KIB));
    device.forget_hook();
    device.set_capturing(false);
    drop(child.allocate(4 * KIB, &stream).expect("memory"));
    assert_eq!(child.stats().idle_bytes, 4 * KIB);
}
