//! Blocks of threads and pools that end are neither lost nor freed in the wrong place.

use super::{Device, KIB, Turns, device, keep, pool};
use std::cell::Cell;
use std::sync::{Arc, Mutex};
use std::thread;
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Source};
use vrampool_test_support::{has_virtual_memory, until};

/// A closed pool has handles still, and no thread calls it or another pool.
#[test]
fn memory_that_a_thread_of_a_closed_pool_left_is_freed_without_a_call() {
    let device = device();
    let (pool, other) = (pool(&device, |builder| builder), Turns::new());
    keep(&other, &pool, 4 * KIB);
    pool.close();
    assert_eq!(device.taken(), 4 * KIB, "the thread has it");
    other.end();
    until(|| device.taken() == 0);
}

/// In every state of the pool: destructors of memory may need thread-local variables, which are destroyed at a
/// thread's end.
#[test]
fn a_thread_that_ends_frees_nothing_itself() {
    for (trims, closes) in [(false, false), (true, false), (false, true), (true, true)] {
        let device = device();
        let freed_by = Arc::new(Mutex::new(Vec::new()));
        device.on_drop({
            let freed_by = Arc::clone(&freed_by);
            move || freed_by.lock().expect("no panic").push(thread::current().id())
        });
        let (mut first, other) = (Some(pool(&device, |builder| builder)), Turns::new());
        if let Some(pool) = &first {
            keep(&other, pool, 4 * KIB);
            keep(&other, pool, 64 * KIB);
            if trims {
                pool.trim().expect("a trim");
            }
        }
        if closes {
            first = None;
        }
        assert_eq!(device.taken(), 68 * KIB, "the thread has it");
        let id = other.thread.as_ref().expect("it runs").thread().id();
        other.end();
        if let Some(pool) = first {
            let stats = pool.stats();
            assert_eq!((stats.idle_bytes, stats.held_bytes), (68 * KIB, 68 * KIB), "it is idle in the depot");
            assert_eq!(pool.trim().expect("a trim"), 68 * KIB);
        }
        until(|| device.taken() == 0);
        // The hook is called last.
        until(|| freed_by.lock().expect("no panic").len() >= 2);
        device.forget_hook();
        let freed_by = freed_by.lock().expect("no panic");
        assert!(freed_by.len() == 2 && !freed_by.contains(&id), "trims {trims}, closes {closes}");
    }
}

/// Buffers dropped when a thread's own thread-local variables go, in whatever order, come back too.
#[test]
fn buffers_in_thread_local_variables_come_back() {
    thread_local! {
        static KEPT: Cell<Option<Buffer<Device>>> = const { Cell::new(None) };
    }
    let device = device();
    let pool = pool(&device, |builder| builder);
    for before in [true, false] {
        let (pool, stream) = (pool.clone(), device.create_stream().expect("a stream"));
        let end = thread::spawn(move || {
            if before {
                KEPT.set(None);
            }
            let buffer = pool.allocate(4 * KIB, &stream).expect("memory");
            drop(pool.allocate(4 * KIB, &stream).expect("memory"));
            KEPT.set(Some(buffer));
        });
        end.join().expect("no panic");
    }
    let stats = pool.stats();
    assert_eq!((stats.live_buffers, stats.held_bytes), (0, stats.idle_bytes), "{stats:?}");
    pool.trim().expect("a trim");
    assert_eq!(device.taken(), 0);
}

/// A thread that makes no call keeps blocks of a dropped pool, and nothing of the memory that they were part of.
#[test]
fn a_parked_thread_keeps_its_blocks_alone() {
    let is_there = |source: Source| match source {
        Source::Virtual => has_virtual_memory(&HostDevice::new()),
        // Elsewhere the host device releases memory with its last handle.
        Source::Arena => cfg!(target_os = "linux"),
        _ => true,
    };
    for source in Source::ALL.iter().copied().filter(|&source| is_there(source)) {
        for [drops_first, closes] in [[true, false], [false, false], [false, true]] {
            let device = device();
            let pool = pool(&device, |builder| builder.source(source).limit(256 << 20));
            let stream = device.create_stream().expect("a stream");
            let mut large = Some(pool.allocate(64 << 20, &stream).expect("memory"));
            let other = Turns::new();
            keep(&other, &pool, KIB);
            if drops_first {
                large = None;
            }
            if closes {
                pool.close();
            }
            drop(pool);
            drop(large);
            until(|| device.taken() <= KIB);
            other.end();
            until(|| device.taken() == 0);
        }
    }
}

/// Blocks that a program has of its pool's arena are no idle memory of the pool.
#[test]
fn a_block_of_the_arena_outlives_the_pool() {
    if !has_virtual_memory(&HostDevice::new()) {
        return;
    }
    let device = device();
    let pool = pool(&device, |builder| builder.source(Source::Virtual).limit(256 << 20));
    let (stream, other) = (device.create_stream().expect("a stream"), Turns::new());
    keep(&other, &pool, KIB);
    let arena = pool.arena().expect("it has one").clone();
    let mut block = arena.allocate(100, &stream).expect("memory");
    drop(pool);
    block.write(&[7; 100], &stream).expect("it is still a block");
    drop(block);
    other.end();
    drop(arena);
    until(|| device.taken() == 0);
}
