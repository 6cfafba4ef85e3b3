//! Threads use memory while it, or other memory, sleeps and wakes.

use crate::setup::{Block, Tags, without_addresses};
use crate::{MIB, discrete, pattern};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool::Error;
use vrampool::arena::ArenaError;
use vrampool::host::Backend;
use vrampool::sleep::{BlockState, Offload, Wake};

/// Threads allocate, use and drop blocks of one tag while another sleeps and wakes.
#[test]
fn a_tag_works_while_others_sleep_and_wake() {
    for device in [discrete(), without_addresses()] {
        let tags = Tags::with(device, |builder| builder.offload(Offload::Pageable));
        let weights = tags.filled("weights", 6 * MIB, 1);
        let (rounds, is_over) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|worker| {
                    let (tags, rounds, is_over) = (&tags, &rounds, &is_over);
                    scope.spawn(move || {
                        let stream = tags.device.create_stream().expect("a stream");
                        let _scope = tags.sleeper.tag("work");
                        let mut rng = fastrand::Rng::with_seed(worker);
                        while is_over.load(Relaxed) == 0 || rounds.load(Relaxed) < 30 {
                            let bytes = rng.u64(1..MIB);
                            let mut block = tags.sleeper.allocate(bytes, &stream).expect("awake");
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
                let _ = tags.sleeper.discard(&["none"]).expect("nothing");
                let policy = ["weights"];
                // Of one tag alone.
                let _ = tags.sleeper.sleep_tags(&policy).expect("no fault");
                assert_eq!(weights.state(), BlockState::AsleepBackedUp);
                let _ = tags.sleeper.wake_up(Wake::Tags(&["weights"])).expect("memory");
                assert!(tags.holds(&weights, 1));
            }
            is_over.store(1, Relaxed);
            workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        });
        assert_eq!(tags.device.races(), 0);
    }
}

/// Threads use blocks of the very tag that sleeps and wakes: each gets its memory or a typed error, and what
/// it wrote.
#[test]
fn users_of_a_tag_that_sleeps_get_memory_or_a_typed_error() {
    for device in [discrete(), without_addresses()] {
        let tags = Tags::with(device, |builder| builder.offload(Offload::Pageable));
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
                            match tags.sleeper.allocate_tagged(rng.u64(1..MIB), "weights", &stream) {
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
                match tags.sleeper.sleep(&["weights"]) {
                    Ok(_) => slept += 1,
                    Err(error) => assert!(matches!(error.arena(), Some(ArenaError::Pinned)), "{error}"),
                }
                let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
            }
            is_over.store(1, Relaxed);
            workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        });
        assert_eq!(tags.device.races(), 0);
    }
}
