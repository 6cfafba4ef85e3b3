//! The caps hold, whatever call of the driver fails, and bytes are conserved: `tests/counts_twin.rs` has the same with
//! threads.

mod operations;
mod together;
mod twin;

use operations::{Operation, Scene, caps, check, classes, magazine_bytes, operation, scene};
use proptest::prelude::*;
use std::sync::Mutex;
use twin::{Caps, Twin};
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, Buffer, Error, Pool, SizeClasses, Source};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;
type Stream = <HostDevice as Backend>::Stream;

const KIB: u64 = 1024;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Several threads take turns, so that the twin sees the pools' own order of operations.
    #[test]
    fn pools_and_twin_agree_in_every_figure(
        (classes, count) in prop_oneof![(classes(), Just(1)), (Just(SizeClasses::Fixed), 2..5usize)],
        caps in caps(),
        lists in prop::collection::vec(prop::collection::vec((any::<usize>(), operation()), 0..80), 1..4),
    ) {
        let scene = scene(classes.clone(), caps, 0, count);
        let turn = Mutex::new(Twin::new(classes, caps, count));
        std::thread::scope(|scope| {
            for list in &lists {
                let (scene, turn) = (&scene, &turn);
                scope.spawn(move || {
                    // One stream: which block of a bucket is taken does not matter to the twin, and no wait
                    // is needed.
                    let (pools, stream) = (&scene.pools, &scene.streams[0]);
                    let mut mine = Vec::new();
                    for (at, operation) in list {
                        let (mut twin, at) = (turn.lock().expect("no panic"), at % count);
                        match *operation {
                            Operation::Allocate { bytes } => {
                                let expected = twin.allocate(at, bytes);
                                let got = pools[at].allocate(bytes, stream);
                                assert_eq!(got.as_ref().ok().map(Buffer::capacity), expected, "{got:?}");
                                mine.extend(got.map(|buffer| (at, buffer)));
                            }
                            Operation::Drop { which } if !mine.is_empty() => {
                                let (at, buffer) = mine.swap_remove(which % mine.len());
                                twin.release(at, buffer.capacity(), buffer.len());
                                drop(buffer);
                            }
                            Operation::Trim { to } => {
                                twin.trim_to(at, to);
                                pools[at].trim_to(to).expect("a trim");
                            }
                            _ => {}
                        }
                        let stats = pools[0].stats();
                        twin.compare(&stats, false);
                        twin.compare_each(pools);
                        assert_eq!(scene.device.taken(), stats.held_bytes);
                    }
                    let mut twin = turn.lock().expect("no panic");
                    for (at, buffer) in mine {
                        twin.release(at, buffer.capacity(), buffer.len());
                        drop(buffer);
                    }
                    twin.compare(&pools[0].stats(), false);
                });
            }
        });
        prop_assert!(scene.device.peak() <= caps.limit);
    }

    /// Idle blocks of a thread change no figure while no cap is reached, except the peak of cached bytes, which
    /// includes leased slots.
    #[test]
    fn one_threads_magazines_and_the_twin_agree(
        classes in classes(),
        magazine_bytes in magazine_bytes(),
        operations in prop::collection::vec(operation(), 0..300),
    ) {
        let caps = Caps::default();
        let scene = scene(classes.clone(), caps, magazine_bytes, 1);
        let (mut twin, mut mine) = (Twin::new(classes, caps, 1), Vec::new());
        for (step, operation) in operations.into_iter().enumerate() {
            match operation {
                Operation::Allocate { bytes } => {
                    let expected = twin.allocate(0, bytes);
                    let got = scene.pools[0].allocate(bytes, &scene.streams[0]).expect("no cap");
                    prop_assert_eq!(Some(got.capacity()), expected);
                    mine.push(got);
                }
                Operation::Drop { which } if !mine.is_empty() => {
                    let buffer = mine.swap_remove(which % mine.len());
                    twin.release(0, buffer.capacity(), buffer.len());
                    drop(buffer);
                }
                Operation::Trim { .. } => {
                    twin.trim_to(0, 0);
                    scene.pools[0].trim().expect("a trim");
                }
                _ => {}
            }
            // Not at each step: a look makes the thread publish what it did.
            if step % 8 == 0 {
                let stats = scene.pools[0].stats();
                twin.compare(&stats, true);
                prop_assert_eq!(scene.device.taken(), stats.held_bytes);
            }
        }
        twin.compare(&scene.pools[0].stats(), true);
    }

    /// Buffers of few sizes that come back in the reverse order, as most do, and nothing looks before the end:
    /// so all that the thread publishes then, peaks too, is from its magazines.
    #[test]
    fn nested_buffers_and_the_twin_agree(
        sizes in prop::collection::vec((prop::sample::select(&[1000u64, 3000, 4000, 60_000][..]), 0..6u32), 0..200),
        magazine_bytes in prop::sample::select(&[5 * KIB, 9 * KIB, 70 * KIB, 1 << 30][..]),
    ) {
        let caps = Caps::default();
        let scene = scene(SizeClasses::Fixed, caps, magazine_bytes, 1);
        let (mut twin, mut mine) = (Twin::new(SizeClasses::Fixed, caps, 1), Vec::new());
        for (bytes, drops) in sizes {
            let got = scene.pools[0].allocate(bytes, &scene.streams[0]).expect("no cap");
            prop_assert_eq!(Some(got.capacity()), twin.allocate(0, bytes));
            mine.push(got);
            for buffer in mine.drain(mine.len().saturating_sub(drops as usize)..).rev() {
                twin.release(0, buffer.capacity(), buffer.len());
            }
        }
        twin.compare(&scene.pools[0].stats(), true);
    }
}

/// Every call of the driver that one fixed history makes, failed once: each in turn.
#[test]
fn every_single_call_of_the_driver_may_fail() {
    fn history(fault: Option<(Call, u64)>) -> (Scene, [u64; 3]) {
        let caps = Caps { max_cached: 12 * KIB, max_per_bucket: 2, limit: 40 * KIB, ..Caps::default() };
        let scene = scene(SizeClasses::Fixed, caps, 0, 1);
        let faults = scene.device.inner().faults();
        if let Some((call, n)) = fault {
            faults.fail_nth(call, n);
        }
        let mut live = Vec::new();
        for step in 0..60u64 {
            let stream = &scene.streams[(step % 3) as usize];
            live.extend(scene.pools[0].allocate(step * 577 % 9000, stream));
            if step % 4 == 1 {
                // It may be the call that fails.
                let _ = live.last().map(|buffer| buffer.used_on(&scene.streams[3]));
            }
            if step % 3 != 0 && !live.is_empty() {
                live.swap_remove((step * 7) as usize % live.len());
            }
            let stats = scene.pools[0].stats();
            check(&stats, &scene.caps);
            assert_eq!(stats.in_transit_bytes, 0);
            assert_eq!((scene.device.taken(), stats.live_buffers), (stats.held_bytes, live.len() as u64));
        }
        drop(live);
        let calls = [Call::Allocate, Call::Record, Call::Wait].map(|call| faults.calls(call));
        (scene, calls)
    }
    let (_, calls) = history(None);
    assert!(calls.iter().all(|&calls| calls > 5), "the history makes every kind of call: {calls:?}");
    for (call, count) in [Call::Allocate, Call::Record, Call::Wait].into_iter().zip(calls) {
        for n in 1..=count {
            let (scene, _) = history(Some((call, n)));
            let stats = scene.pools[0].stats();
            let failures = stats.failed.by_backend;
            // A failed use of a live buffer is an error of that call, not of a request.
            assert!(failures <= 1, "{call:?} {n}: {stats:?}");
            assert_eq!((stats.live_bytes, stats.held_bytes), (0, stats.idle_bytes), "{call:?} {n}");
            let Scene { device, pools, .. } = scene;
            drop(pools);
            assert_eq!(device.taken(), 0, "{call:?} {n}");
        }
    }
}

#[test]
fn a_limit_below_the_pools_own_arena_of_fixed_size_is_refused() {
    let device = HostDevice::new();
    let pool = Pool::builder(&device).source(Source::Arena).limit(64 * KIB).build().expect("a pool");
    let refused = pool.set_limit(63 * KIB).expect_err("the arena has more");
    assert!(matches!(refused, Error::Arena(_)), "{refused}");
    let (limit, reserved) = (pool.limit().expect("one is set"), pool.stats().reserved_bytes);
    assert!(limit == 64 * KIB && reserved <= limit, "{reserved} bytes are reserved under a limit of {limit}");
    pool.set_limit(128 * KIB).expect("it is above");
    pool.set_limit(64 * KIB).expect("it is the arena's size");
}
