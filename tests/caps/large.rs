//! Large blocks, which threads that free and request one class in turn keep in slots: the caps count them, and every
//! thread's requests reach them.

use super::operations::{caps, scene, scene_on};
use super::twin::{Caps, Twin};
use super::{KIB, check};
use proptest::prelude::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use vrampool::{Buffer, SizeClasses, Source};

/// The only class: with several, the order of eviction would depend on when a thread tells of its hits.
const CLASS: u64 = 64 * KIB;

/// A thread's turn.
#[derive(Debug, Clone)]
enum Turn {
    /// So many requests of so many bytes each, each buffer dropped at once.
    Pairs(u32, u64),
    Allocate(u64),
    Drop(usize),
    Look,
    Trim(u64),
}

fn turn() -> impl Strategy<Value = Turn> {
    let bytes = || 17 * KIB..=CLASS;
    prop_oneof![
        6 => (1..5u32, bytes()).prop_map(|(times, bytes)| Turn::Pairs(times, bytes)),
        3 => bytes().prop_map(Turn::Allocate),
        3 => any::<usize>().prop_map(Turn::Drop),
        1 => Just(Turn::Look),
        1 => (0..4 * CLASS).prop_map(Turn::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Several threads take turns and rarely look. What is served, refused, kept and dropped is what the twin says.
    #[test]
    fn large_blocks_of_several_threads_and_the_twin_agree(
        caps in caps(),
        turns in prop::collection::vec((0..3usize, turn()), 0..120),
    ) {
        let scene = scene(SizeClasses::Fixed, caps);
        let twin = Mutex::new(Twin::new(SizeClasses::Fixed, caps));
        thread::scope(|scope| {
            let (scene, twin) = (&scene, &twin);
            let workers: Vec<_> = (0..3).map(|_| {
                let (tell, told) = std::sync::mpsc::channel::<Turn>();
                let (done, is_done) = std::sync::mpsc::channel();
                scope.spawn(move || {
                    let (stream, mut mine) = (&scene.streams[0], Vec::<Buffer<_>>::new());
                    let allocate = |twin: &mut Twin, bytes| {
                        let buffer = scene.pool.allocate(bytes, stream);
                        assert_eq!(buffer.as_ref().ok().map(Buffer::capacity), twin.allocate(bytes), "{buffer:?}");
                        buffer.ok()
                    };
                    let release = |twin: &mut Twin, buffer: Buffer<_>| {
                        twin.release(buffer.capacity(), buffer.len());
                        drop(buffer);
                    };
                    for turn in told {
                        let twin = &mut *twin.lock().expect("no panic");
                        match turn {
                            Turn::Pairs(times, bytes) => (0..times).for_each(|_| {
                                let buffer = allocate(twin, bytes);
                                buffer.into_iter().for_each(|buffer| release(twin, buffer));
                            }),
                            Turn::Allocate(bytes) => mine.extend(allocate(twin, bytes)),
                            Turn::Drop(which) if !mine.is_empty() => {
                                release(twin, mine.swap_remove(which % mine.len()));
                            }
                            Turn::Drop(_) => {}
                            Turn::Look => twin.compare_now(&scene.pool.stats()),
                            Turn::Trim(bytes) => {
                                twin.trim_to(bytes);
                                scene.pool.trim_to(bytes).expect("a trim");
                            }
                        }
                        done.send(()).expect("somebody waits");
                    }
                    let mut twin = twin.lock().expect("no panic");
                    mine.into_iter().for_each(|buffer| release(&mut twin, buffer));
                });
                (tell, is_done)
            }).collect();
            for (worker, turn) in turns {
                let (tell, is_done) = &workers[worker];
                tell.send(turn).expect("it listens");
                if is_done.recv().is_err() {
                    // Its thread failed, which the scope reports.
                    return;
                }
            }
        });
        twin.lock().expect("no panic").compare_now(&scene.pool.stats());
        prop_assert!(scene.device.peak() <= caps.limit);
    }
}

/// One thread at a time has a buffer, and the limit has room for that one alone: each request needs the block that the
/// thread before it left in its slot.
#[test]
fn a_request_reaches_what_other_threads_have_in_slots() {
    const LIVE: u64 = 3;
    const ROUNDS: u64 = 300;
    for source in [Source::Direct, Source::Arena] {
        let limit = (LIVE + 1) * CLASS;
        let scene = scene_on(source, SizeClasses::Fixed, Caps { limit, ..Caps::default() }, 0);
        let stream = &scene.streams[0];
        let allocate = || scene.pool.allocate(CLASS, stream).expect("one block is idle");
        let live: Vec<_> = (0..LIVE).map(|_| allocate()).collect();
        drop(allocate());
        let (calls, turn) = (scene.pool.stats().source.allocations, Mutex::new(()));
        thread::scope(|scope| {
            for worker in 0..4 {
                let (turn, allocate) = (&turn, &allocate);
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let _mine = turn.lock().expect("no panic");
                        // From two pairs on a thread has a slot.
                        (0..=(round + worker) % 6).for_each(|_| drop(allocate()));
                    }
                });
            }
        });
        let stats = scene.pool.stats();
        assert_eq!(stats.source.allocations, calls, "the source is not asked again: {stats:?}");
        assert_eq!((stats.idle_bytes, stats.live_buffers), (CLASS, LIVE), "{stats:?}");
        drop(live);
    }
}

/// What a thread's slot has for one stream is handed over to another one, as any idle block.
#[test]
fn a_block_in_a_slot_is_handed_over_to_another_stream() {
    for source in [Source::Direct, Source::Arena] {
        let limit = CLASS;
        let scene = scene_on(source, SizeClasses::Fixed, Caps { limit, ..Caps::default() }, 0);
        for stream in [&scene.streams[0], &scene.streams[1]] {
            for _ in 0..4 {
                let buffer = scene.pool.allocate(CLASS, stream).expect("the limit has room for it");
                assert_eq!(buffer.stream_id(), vrampool::Stream::id(stream));
            }
        }
        let stats = scene.pool.stats();
        assert_eq!((stats.hits, stats.misses), (7, 1), "{stats:?}");
    }
}

/// Threads that each have one buffer at a time need one block each, whatever their order, and no request is refused.
#[test]
fn pairs_of_large_blocks_take_as_many_blocks_as_threads() {
    const THREADS: u64 = 4;
    const PAIRS: u64 = 20_000;
    for source in [Source::Direct, Source::Arena] {
        let caps = Caps { limit: THREADS * CLASS, max_cached: THREADS * CLASS, ..Caps::default() };
        let scene = scene_on(source, SizeClasses::Fixed, caps, 0);
        let done = AtomicBool::new(false);
        let stream = &scene.streams[0];
        let allocate = || scene.pool.allocate(CLASS, stream).expect("the limit has room for it");
        thread::scope(|scope| {
            let observer = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    check(&scene.pool.stats(), &caps, true);
                    thread::yield_now();
                }
            });
            let workers: Vec<_> =
                (0..THREADS).map(|_| scope.spawn(|| (0..PAIRS).for_each(|_| drop(allocate())))).collect();
            let outcomes: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
            done.store(true, Ordering::Release);
            observer.join().expect("every look was right");
            outcomes.into_iter().for_each(|outcome| outcome.expect("no request was refused"));
        });
        let stats = scene.pool.stats();
        assert_eq!(stats.hits + stats.misses, THREADS * PAIRS, "{stats:?}");
        assert!(stats.source.allocations <= THREADS, "{stats:?}");
        assert_eq!((stats.live_bytes, stats.requested_bytes, stats.live_buffers), (0, 0, 0), "{stats:?}");
        assert_eq!(stats.idle_bytes, stats.held_bytes, "{stats:?}");
    }
}
