//! An arena that a pool and its children have in common.

use crate::{KIB, device};
use std::sync::mpsc::channel;
use std::thread;
use vrampool::{Backend, Pool, Source};
use vrampool_test_support::{close_gate, streams};

#[test]
fn a_reset_keeps_the_blocks_of_children() {
    let device = device();
    let [stream] = streams(&device);
    let pool = Pool::builder(&device).source(Source::Arena).limit(2048 * KIB).build().expect("a pool");
    let child = pool.child("tenant").build().expect("a pool");
    let arena = pool.arena().expect("its own").clone();
    let mut buffer = child.allocate(100 * KIB, &stream).expect("memory");
    drop(pool);
    for closed in [false, true] {
        if closed {
            child.close();
        }
        assert!(arena.reset().is_err() && arena.resize(4096 * KIB).is_err());
        buffer.on_mut(&stream).expect("its memory");
    }
    drop((buffer, child));
    arena.reset().expect("no pool uses it");
}

/// Whichever pool ends last: a thread that makes no further call keeps no arena.
#[test]
fn blocks_of_a_child_in_a_parked_thread_keep_no_arena() {
    for is_child_last in [false, true] {
        let device = device();
        let [stream] = streams(&device);
        let pool = Pool::builder(&device).source(Source::Arena).limit(2048 * KIB).build().expect("a pool");
        let child = pool.child("tenant").build().expect("a pool");
        let ((parks, is_parked), (go, going)) = (channel(), channel::<()>());
        let (of_thread, tenant) = (stream.clone(), child.clone());
        let thread = thread::spawn(move || {
            drop(tenant.allocate(1000, &of_thread).expect("memory"));
            drop(tenant);
            parks.send(()).expect("it listens");
            let _ = going.recv();
        });
        is_parked.recv().expect("it has a magazine");
        let (first, last) = if is_child_last { (pool, child) } else { (child, pool) };
        drop(first);
        drop(last);
        assert_eq!(device.taken(), 0, "{is_child_last}");
        drop(go);
        thread.join().expect("no panic");
    }
}

/// A child's clock runs ahead of its arena's. A marker of one says nothing of the work that the other counts.
#[test]
fn markers_of_a_child_end_no_waits_in_its_arena() {
    let device = device();
    let [one, other] = streams(&device);
    let builder = Pool::builder(&device).source(Source::Arena).limit(4096 * KIB).magazine_bytes(0);
    let pool = builder.max_cached_bytes(8192 * KIB).build().expect("a pool");
    let child = pool.child("tenant").build().expect("a pool");
    for _ in 0..64 {
        for stream in [&one, &other] {
            drop(child.allocate(512 * KIB, stream).expect("memory"));
            device.synchronize(stream).expect("no fault");
        }
    }
    child.trim().expect("no fault");
    for (from, to) in [(&one, &other), (&other, &one)] {
        let mut first = pool.allocate(2048 * KIB, from).expect("memory");
        let gate = close_gate(from);
        device.fill(from, first.on_mut(from).expect("its memory"), 1).expect("queued");
        drop(first);
        pool.trim().expect("no fault");
        let waits = pool.stats().reuse_waits;
        let all: Vec<_> = (0..4).map(|_| pool.allocate(1024 * KIB, to).expect("memory")).collect();
        assert!(pool.stats().reuse_waits > waits, "work on it is under way");
        drop((all, gate));
        device.synchronize(from).expect("no fault");
    }
    assert_eq!(device.inner().races(), 0);
}
