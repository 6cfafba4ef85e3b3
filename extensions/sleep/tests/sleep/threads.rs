//! Threads use memory while it, or other memory, sleeps and wakes.

use crate::setup::{Block, Tags};
use crate::{MIB, Setup, discrete, is_pinned, pattern};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vrampool::Error;
use vrampool::host::{Backend, HostDevice};
use vrampool_sleep::{Offload, SleepArena, sleep_all, wake_all};

/// Threads allocate, use and drop blocks of one tag while another sleeps and wakes.
#[test]
fn a_tag_works_while_others_sleep_and_wake() {
    let tags = Tags::new(discrete(), &["weights", "kv_cache", "work"], Offload::Pageable);
    let weights = tags.filled("weights", 6 * MIB, 1);
    let (rounds, is_over) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (tags, rounds, is_over) = (&tags, &rounds, &is_over);
                scope.spawn(move || {
                    let stream = tags.device.create_stream().expect("a stream");
                    let work = &tags.of("work").pool;
                    let mut rng = fastrand::Rng::with_seed(worker);
                    while is_over.load(Relaxed) == 0 || rounds.load(Relaxed) < 30 {
                        let bytes = rng.u64(1..MIB);
                        let mut block = work.allocate(bytes, &stream).expect("awake");
                        let seed = rng.u64(..);
                        block.write(&pattern(seed, bytes), &stream).expect("awake");
                        let mut found = vec![0; bytes as usize];
                        block.read(&mut found, &stream).expect("awake");
                        assert!(found == pattern(seed, bytes));
                        rounds.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            let _ = tags.discard(&["kv_cache"]).expect("nothing");
            // Of one tag alone.
            let policy = |tag: &str| (tag == "weights").then_some(Offload::Pageable);
            let _ = tags.sleep_with(policy, Duration::ZERO, &|_| ()).expect("no fault");
            assert!(tags.of("weights").arena.backup_bytes() > 0);
            let _ = tags.wake(&["weights"]).expect("memory");
            assert!(tags.holds(&weights, 1));
        }
        is_over.store(1, Relaxed);
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
    assert_eq!(tags.device.races(), 0);
}

/// Threads use blocks of the very tag that sleeps and wakes: each gets its memory or a typed error, and what
/// it wrote.
#[test]
fn users_of_a_tag_that_sleeps_get_memory_or_a_typed_error() {
    let tags = Tags::new(discrete(), &["weights"], Offload::Pageable);
    let is_over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                let (tags, is_over) = (&tags, &is_over);
                scope.spawn(move || {
                    let stream = tags.device.create_stream().expect("a stream");
                    let mut rng = fastrand::Rng::with_seed(worker);
                    let mut blocks: Vec<(u64, Block)> = Vec::new();
                    let mut used = 0;
                    while is_over.load(Relaxed) == 0 || used < 20 {
                        let seed = rng.u64(..);
                        match tags.of("weights").pool.allocate(rng.u64(1..MIB), &stream) {
                            Ok(mut block) => match block.write(&pattern(seed, block.len()), &stream) {
                                Ok(()) => blocks.push((seed, block)),
                                Err(error) => assert!(matches!(error, Error::Asleep { .. }), "{error}"),
                            },
                            Err(error) => assert!(matches!(error, Error::Asleep { .. }), "{error}"),
                        }
                        if let Some((seed, block)) = blocks.last() {
                            let mut found = vec![0; block.len() as usize];
                            match block.read(&mut found, &stream) {
                                Ok(()) => {
                                    used += 1;
                                    assert!(found == pattern(*seed, block.len()));
                                }
                                Err(error) => assert!(matches!(error, Error::Asleep { .. }), "{error}"),
                            }
                        }
                        while blocks.len() > 6 {
                            drop(blocks.swap_remove(rng.usize(..blocks.len())));
                        }
                    }
                })
            })
            .collect();
        let mut slept = 0;
        while slept < 15 {
            match tags.sleep(&["weights"]) {
                Ok(_) => slept += 1,
                Err(error) => assert!(is_pinned(&error), "{error}"),
            }
            let _ = tags.wake_up().expect("memory");
        }
        is_over.store(1, Relaxed);
        workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
    });
    assert_eq!(tags.device.races(), 0);
}

/// Threads take a region again as soon as they have dropped one, so that there is always one: a sleep that only tries
/// again and again may never come to pass. New regions wait for one that waits.
#[test]
fn a_sleep_that_waits_comes_before_new_regions() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let tags = Tags::new(discrete(), &["weights"], Offload::Pageable);
    let blocks = [1, 2].map(|seed| tags.filled("weights", MIB, seed));
    let (is_over, both) = (AtomicU64::new(0), Barrier::new(3));
    std::thread::scope(|scope| {
        for block in &blocks {
            let (tags, is_over, both) = (&tags, &is_over, &both);
            scope.spawn(move || {
                both.wait();
                while is_over.load(Relaxed) == 0 {
                    // Asleep, or awake again.
                    match block.on(&tags.stream).map(drop) {
                        Ok(()) => {}
                        Err(error) => assert!(matches!(error, Error::Asleep { .. }), "{error}"),
                    }
                }
            });
        }
        both.wait();
        let mut are_kept = true;
        let slept = (0..10).try_for_each(|_| {
            let _ = tags.sleep_with(|_| Some(Offload::Pageable), PATIENCE, &|_| ())?;
            are_kept &= tags.of("weights").arena.backup_bytes() > 0;
            tags.wake_up().map(drop)
        });
        // Before a failure is reported: the threads would go on for ever.
        is_over.store(1, Relaxed);
        slept.expect("regions end");
        assert!(are_kept);
    });
    assert!(tags.holds(&blocks[0], 1) && tags.holds(&blocks[1], 2));
    assert_eq!(tags.device.races(), 0);
}

/// A region that does not end: the sleep fails at its time, and everything is awake.
#[test]
fn a_sleep_that_waited_in_vain_leaves_all_awake() {
    let tags = Tags::new(discrete(), &["a", "b"], Offload::Pageable);
    let (one, mut two) = (tags.filled("a", MIB, 1), tags.filled("b", MIB, 2));
    let sleep = |timeout| tags.sleep_with(|_| Some(Offload::Pageable), timeout, &|_| ());
    for timeout in [Duration::ZERO, Duration::from_millis(5)] {
        let region = one.on(&tags.stream).expect("awake");
        let written = two.on_mut(&tags.stream).expect("awake");
        let error = sleep(timeout).expect_err("regions exist");
        assert!(is_pinned(&error), "{error}");
        drop((region, written));
        assert!(tags.holds(&one, 1) && tags.holds(&two, 2));
    }
    let _ = sleep(Duration::MAX).expect("there is none");
    let _ = tags.wake_up().expect("memory");
    assert!(tags.holds(&one, 1) && tags.holds(&two, 2));
}

/// Both hold the locks of several arenas at a time.
#[test]
fn changes_of_the_same_arenas_in_any_order_do_not_wait_for_each_other_for_ever() {
    let setups = [1, 2].map(|_| Setup::new(discrete()));
    let blocks = [&setups[0], &setups[1]].map(|setup| setup.filled(MIB, 1));
    let arenas = [&setups[0].sleep, &setups[1].sleep];
    let change = |[one, other]: [&SleepArena<HostDevice>; 2]| {
        let kept = [(one, Offload::Pageable), (other, Offload::Pageable)];
        // Each twice.
        let _ = sleep_all([kept, kept].concat(), Duration::ZERO, &|_| ()).expect("no region");
        let _ = wake_all([one, other, one], &|_| ()).expect("memory");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| (0..200).for_each(|_| change(arenas)));
        scope.spawn(|| (0..200).for_each(|_| change([arenas[1], arenas[0]])));
    });
    let _ = wake_all(arenas, &|_| ()).expect("memory");
    assert!(setups.iter().zip(&blocks).all(|(setup, block)| setup.holds(block, 1)));
}
