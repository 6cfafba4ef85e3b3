//! Tags: vLLM's tests of its allocator, by their names, on the host's virtual memory and without it.

use crate::{MIB, discrete, integrated, pattern};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use vrampool::Error;
use vrampool::arena::ArenaError;
use vrampool::host::{Backend, DeviceKind, HostDevice, HostStream};
use vrampool::sleep::{BlockState, Level, Offload, SleepBuffer, SleepState, Sleeper, SleeperBuilder, Wake};

type Block = SleepBuffer<HostDevice>;

struct Tags {
    device: HostDevice,
    stream: HostStream,
    sleeper: Sleeper<HostDevice>,
}

/// A device as OpenCL's and wgpu's are.
fn without_addresses() -> HostDevice {
    let builder = HostDevice::builder().capacity(1 << 30).kind(DeviceKind::Discrete);
    builder.virtual_memory(false).build()
}

impl Tags {
    fn with(
        device: HostDevice,
        build: impl FnOnce(SleeperBuilder<HostDevice>) -> SleeperBuilder<HostDevice>,
    ) -> Self {
        let sleeper = build(Sleeper::builder(&device)).build().expect("a sleeper");
        let stream = device.create_stream().expect("a stream");
        Self { device, stream, sleeper }
    }

    fn filled(&self, tag: &str, bytes: u64, seed: u64) -> Block {
        let mut block = self.sleeper.allocate_tagged(tag, bytes, &self.stream).expect("memory");
        block.write(&self.stream, &pattern(seed, bytes)).expect("awake");
        block
    }

    fn holds(&self, block: &Block, seed: u64) -> bool {
        let mut bytes = vec![0; block.len() as usize];
        block.read(&self.stream, &mut bytes).expect("awake");
        bytes == pattern(seed, block.len())
    }

    fn free(&self) -> u64 {
        self.device.memory_info().expect("known").free_bytes
    }

    fn settle(&self) {
        while self.sleeper.tags().iter().any(|tag| {
            self.sleeper.state_of(tag) == SleepState::Awake && self.sleeper.usage_of(tag).backups > 0
        }) {
            std::thread::yield_now();
        }
    }
}

/// On each kind of device.
fn on_each(test: impl Fn(&Tags)) {
    for device in [integrated(), discrete(), without_addresses()] {
        let tags = Tags::with(device, |builder| builder.offload(Offload::Pageable));
        let before = tags.free();
        test(&tags);
        let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
        let _ = tags.sleeper.trim().expect("no fault");
        tags.settle();
        assert_eq!((tags.free(), tags.device.races()), (before, 0), "everything went back");
    }
}

#[test]
fn test_basic_cumem() {
    on_each(|tags| {
        let before = tags.free();
        let blocks: Vec<_> = (0..5).map(|seed| tags.filled("weights", (seed + 1) * MIB, seed)).collect();
        let addresses: Vec<_> = blocks.iter().map(Block::address).collect();
        let usage = tags.sleeper.usage();
        assert!(usage.mapped >= 15 * MIB && usage.live == 15 * MIB && usage.asleep == 0, "{usage:?}");
        let report = tags.sleeper.sleep(&["weights"]).expect("no fault");
        assert_eq!((report.freed, report.backed_up, report.discarded), (usage.mapped, 15 * MIB, 0));
        let asleep = tags.sleeper.usage();
        assert_eq!((asleep.mapped, asleep.live, asleep.asleep), (0, 0, 15 * MIB));
        assert_eq!((asleep.backups, tags.free()), (15 * MIB, before), "by memory info, too");
        if tags.sleeper.stable_addresses() {
            assert_eq!(asleep.addresses, usage.addresses, "the addresses stay reserved");
        }
        let report = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert_eq!((report.restored, report.was_awake), (15 * MIB, false));
        assert_eq!(tags.sleeper.usage().mapped, report.mapped);
        assert!((0..).zip(&blocks).all(|(seed, block)| tags.holds(block, seed)));
        if tags.sleeper.stable_addresses() {
            assert_eq!(blocks.iter().map(Block::address).collect::<Vec<_>>(), addresses);
        }
    });
}

#[test]
fn test_discard_tags() {
    on_each(|tags| {
        let (weights, cache) = (tags.filled("weights", 3 * MIB, 1), tags.filled("kv_cache", 5 * MIB, 2));
        let report = tags.sleeper.discard(&["kv_cache"]).expect("no fault");
        assert_eq!((report.backed_up, report.discarded), (0, 5 * MIB));
        assert_eq!((weights.state(), cache.state()), (BlockState::Mapped, BlockState::AsleepDiscarded));
        assert!(tags.holds(&weights, 1));
        assert!(matches!(cache.access(), Err(Error::Asleep { .. })));
        assert!(matches!(
            tags.sleeper.allocate_tagged("kv_cache", 100, &tags.stream),
            Err(Error::Asleep { .. })
        ));
        // What is backed up stays so.
        let _ = tags.sleeper.sleep(&["weights"]).expect("no fault");
        assert!(tags.sleeper.discard(&["weights"]).expect("nothing").was_asleep);
        assert_eq!(weights.state(), BlockState::AsleepBackedUp);
        let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert!(tags.holds(&weights, 1) && !tags.holds(&cache, 2));
    });
}

#[test]
fn test_selective_wake_restores_internal_tags() {
    on_each(|tags| {
        let blocks: Vec<_> = (0..)
            .zip(["weights", "kv_cache", "workspace", "default"])
            .map(|(seed, tag)| tags.filled(tag, 2 * MIB, seed))
            .collect();
        let all = ["weights", "kv_cache", "workspace", "default"];
        let _ = tags.sleeper.sleep(&all).expect("no fault");
        let _ = tags.sleeper.wake_up(Wake::Tags(&["weights"])).expect("memory");
        let states: Vec<_> = all.iter().map(|tag| tags.sleeper.state_of(tag)).collect();
        use SleepState::{Asleep, Awake};
        assert_eq!(states, [Awake, Asleep, Awake, Awake]);
        assert!([0, 2, 3].iter().all(|&seed| tags.holds(&blocks[seed], seed as u64)));
        let _ = tags.sleeper.wake_up(Wake::Tags(&["kv_cache"])).expect("memory");
        assert!(tags.holds(&blocks[1], 1));
        assert!(tags.sleeper.wake_up(Wake::All).expect("nothing").was_awake);
    });
}

/// The second sleep after a partial wake unmapped nothing.
#[test]
fn test_sleep_with_only_weights_asleep() {
    for first in [1, 2] {
        for second in [1, 2] {
            on_each(|tags| {
                let before = tags.free();
                let (weights, cache) =
                    (tags.filled("weights", 4 * MIB, 1), tags.filled("kv_cache", 6 * MIB, 2));
                let _ = tags.sleeper.sleep_level(first).expect("no fault");
                let _ = tags.sleeper.wake_up(Wake::Tags(&["kv_cache"])).expect("memory");
                assert_eq!(
                    (weights.state() == BlockState::Mapped, cache.state()),
                    (false, BlockState::Mapped)
                );
                let report = tags.sleeper.sleep_level(second).expect("no fault");
                assert_eq!((report.discarded, report.was_asleep), (6 * MIB, false));
                assert_eq!((tags.sleeper.usage().mapped, tags.free()), (0, before));
                let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
                assert_eq!(tags.holds(&weights, 1), first == 1, "as the sleep that it fell asleep in has it");
            });
        }
    }
}

#[test]
fn test_workspace_scratch_discarded_on_sleep() {
    on_each(|tags| {
        let outgrown = tags.filled("workspace", 2 * MIB, 1);
        let scratch = tags.filled("workspace", 8 * MIB, 2);
        drop(outgrown);
        let place = scratch.address();
        let report = tags.sleeper.sleep(&["weights"]).expect("no fault");
        assert_eq!((report.backed_up, report.discarded, tags.sleeper.usage().backups), (0, 8 * MIB, 0));
        let report = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert_eq!(report.mapped, 8 * MIB, "what was outgrown does not come back");
        assert!(!tags.holds(&scratch, 2));
        assert!(scratch.address() == place || !tags.sleeper.stable_addresses());
        // It can be used again.
        drop(scratch);
        assert!(tags.holds(&tags.filled("workspace", 8 * MIB, 3), 3));
    });
}

/// Memory of what was freed under a tag is given back by the next entry, whether something of it lives on or not.
#[test]
fn test_reentered_tag() {
    on_each(|tags| {
        for keeps in [false, true] {
            let before = tags.free();
            let kept = {
                let _scope = tags.sleeper.tag("weights");
                let kept = tags.sleeper.allocate(4 * MIB, &tags.stream).expect("memory");
                let freed = tags.sleeper.allocate(16 * MIB, &tags.stream).expect("memory");
                assert_eq!((freed.tag(), before - tags.free() >= 20 * MIB), ("weights", true));
                kept
            };
            let kept = keeps.then_some(kept);
            let _scope = tags.sleeper.tag("weights");
            assert!(before - tags.free() <= if keeps { 4 * MIB } else { 0 });
            drop(kept);
            assert_eq!(tags.sleeper.current_tag().as_ref(), "weights");
        }
        assert_eq!(tags.sleeper.current_tag().as_ref(), "default");
    });
}

#[test]
fn test_runtime_state_survives_sleep() {
    for level in [1, 2] {
        on_each(|tags| {
            let (mut runtime, mut cache) = {
                let _outer = tags.sleeper.tag("kv_cache");
                let runtime = {
                    let _inner = tags.sleeper.tag("runtime");
                    tags.sleeper.allocate(MIB, &tags.stream).expect("memory")
                };
                (runtime, tags.sleeper.allocate(3 * MIB, &tags.stream).expect("memory"))
            };
            assert_eq!((runtime.tag(), cache.tag()), ("runtime", "kv_cache"));
            runtime.write(&tags.stream, &pattern(1, MIB)).expect("awake");
            cache.write(&tags.stream, &pattern(2, 3 * MIB)).expect("awake");
            let _ = tags.sleeper.sleep_level(level).expect("no fault");
            assert_eq!(runtime.state(), BlockState::AsleepBackedUp);
            assert_eq!(cache.state(), BlockState::AsleepDiscarded);
            let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
            assert!(tags.holds(&runtime, 1) && !tags.holds(&cache, 2));
        });
    }
}

#[test]
fn test_level2_discards_ordinary_tensor_with_weights_tag() {
    on_each(|tags| {
        let weights = tags.filled("weights", 5 * MIB, 1);
        let place = weights.address();
        assert_eq!(tags.sleeper.sleep_level(0).expect("a pause"), vrampool::sleep::SleepReport::default());
        assert!(tags.holds(&weights, 1));
        let report = tags.sleeper.sleep_level(2).expect("no fault");
        assert_eq!((report.backed_up, report.discarded), (0, 5 * MIB));
        let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert!(weights.address() == place || !tags.sleeper.stable_addresses());
        assert!(!tags.holds(&weights, 1));
        assert!(matches!(tags.sleeper.sleep_level(3), Err(Error::Configuration { field: "level", .. })));
        assert_eq!(Level::ALL.map(|level| level.number), [0, 1, 2]);
    });
}

/// `test_cudagraph_pool_sleep`: what a graph uses keeps its place and its contents at both levels.
#[test]
fn test_cudagraph_pool_sleep() {
    for level in [1, 2] {
        on_each(|tags| {
            let graph = tags.filled("cudagraph", 3 * MIB, 1);
            let place = graph.address();
            for _ in 0..3 {
                let _ = tags.sleeper.sleep_level(level).expect("no fault");
                let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
                assert!(tags.holds(&graph, 1));
                assert!(graph.address() == place || !tags.sleeper.stable_addresses());
            }
        });
    }
}

/// vLLM registered a block before it was mapped, and kept it when that failed (bug 2).
#[test]
fn callbacks_are_told_of_what_is_there_and_of_nothing_else() {
    for device in [discrete(), without_addresses()] {
        let told = Arc::new(Mutex::new(Vec::new()));
        let (malloc, free) = (Arc::clone(&told), Arc::clone(&told));
        let tags = Tags::with(device, |builder| {
            builder
                .limit(32 * MIB)
                .on_malloc(move |block| {
                    assert!(block.address.is_some());
                    malloc.lock().unwrap().push((true, block.tag.to_owned(), block.bytes));
                })
                .on_free(move |block| free.lock().unwrap().push((false, block.tag.to_owned(), block.bytes)))
        });
        assert!(
            tags.sleeper
                .allocate_tagged("weights", 64 * MIB, &tags.stream)
                .expect_err("the limit")
                .is_out_of_memory()
        );
        let weights = tags.filled("weights", 3 * MIB, 1);
        let cache = tags.filled("kv_cache", 5 * MIB, 2);
        drop(weights);
        let _ = tags.sleeper.sleep(&[]).expect("no fault");
        drop(cache);
        let told: Vec<_> = told
            .lock()
            .unwrap()
            .iter()
            .map(|(malloc, tag, bytes)| (*malloc, tag.clone(), bytes / MIB))
            .collect();
        let told: Vec<_> = told.iter().map(|(malloc, tag, mib)| (*malloc, tag.as_str(), *mib)).collect();
        assert_eq!(
            told,
            [(true, "weights", 3), (true, "kv_cache", 5), (false, "weights", 3), (false, "kv_cache", 5)]
        );
    }
}

#[test]
fn one_limit_holds_for_all_tags_and_free_memory_of_one_makes_room_for_another() {
    for device in [integrated(), without_addresses()] {
        let tags = Tags::with(device, |builder| builder.limit(32 * MIB).offload(Offload::Pageable));
        let before = tags.free();
        let one = tags.filled("one", 20 * MIB, 1);
        let error = tags.sleeper.allocate_tagged("two", 20 * MIB, &tags.stream).expect_err("over the limit");
        assert!(error.is_out_of_memory(), "{error}");
        drop(one);
        let two = tags.filled("two", 20 * MIB, 2);
        assert!(before - tags.free() <= 32 * MIB);
        // Asleep it takes none of the limit, and it does not wake over it.
        let _ = tags.sleeper.sleep(&["two"]).expect("no fault");
        let _ = tags.sleeper.wake_up(Wake::Tags(&[])).expect("it is internal");
        let _ = tags.sleeper.discard(&["one"]).expect("nothing");
        let _ = tags.sleeper.sleep(&["two"]).expect("no fault");
        let three = tags.filled("three", 20 * MIB, 3);
        assert!(tags.sleeper.wake_up(Wake::All).expect_err("over the limit").is_out_of_memory());
        assert_eq!(
            (tags.sleeper.state_of("two"), two.state()),
            (SleepState::Asleep, BlockState::AsleepBackedUp)
        );
        assert!(tags.holds(&three, 3));
        drop(three);
        // What is free of tag three makes room.
        let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert!(tags.holds(&two, 2));
    }
}

#[test]
fn an_access_keeps_memory_awake_and_all_tags_with_it() {
    for device in [integrated(), without_addresses()] {
        let tags = Tags::with(device, |builder| builder);
        let (one, mut two) = (tags.filled("a", MIB, 1), tags.filled("b", MIB, 2));
        {
            let access = two.access_mut();
            let mut access = access.expect("awake");
            let _region = access.on_mut(&tags.stream).expect("awake");
            assert!(matches!(tags.sleeper.sleep(&["a", "b"]), Err(Error::Arena(ArenaError::Pinned))));
        }
        {
            let access = two.access().expect("awake");
            let _region = access.on(&tags.stream).expect("awake");
            assert!(matches!(tags.sleeper.sleep(&["a", "b"]), Err(Error::Arena(ArenaError::Pinned))));
        }
        assert!(tags.holds(&one, 1) && tags.holds(&two, 2));
        let _ = tags.sleeper.sleep(&["a", "b"]).expect("no fault");
        let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert!(tags.holds(&one, 1) && tags.holds(&two, 2));
    }
}

#[test]
fn freeing_sleeping_blocks_frees_their_backups() {
    on_each(|tags| {
        let (one, two) = (tags.filled("weights", 20 * MIB, 1), tags.filled("weights", 2 * MIB, 2));
        let _ = tags.sleeper.sleep(&["weights"]).expect("no fault");
        drop(one);
        assert_eq!((tags.sleeper.usage().asleep, tags.sleeper.usage().backups), (2 * MIB, 2 * MIB));
        assert_eq!(tags.sleeper.wake_up(Wake::All).expect("memory").mapped, 2 * MIB);
        assert!(tags.holds(&two, 2));
    });
}

/// Each call fails once, of several tags' in turn: all tags are as they were.
#[test]
fn a_fault_in_one_tag_leaves_all_tags_as_they_were() {
    use vrampool::host::Call;
    let calls = [
        Call::Allocate,
        Call::CreateStream,
        Call::Copy,
        Call::Upload,
        Call::Download,
        Call::Synchronize,
        Call::Record,
        Call::Wait,
        Call::CreatePhysical,
        Call::Map,
        Call::SetAccess,
        Call::Unmap,
    ];
    for (device, offload) in [
        (discrete(), Offload::Pinned),
        (integrated(), Offload::Pageable),
        (without_addresses(), Offload::Pinned),
        (without_addresses(), Offload::Pageable),
    ] {
        let tags = Tags::with(device, |builder| builder.offload(offload).chunk_bytes(2 * MIB));
        let all = ["a", "b", "c"];
        let blocks: Vec<_> = (0..9).map(|seed| tags.filled(all[seed % 3], 3 * MIB, seed as u64)).collect();
        let all_hold = || (0..).zip(&blocks).all(|(seed, block)| tags.holds(block, seed));
        let is = |state| all.iter().all(|tag| tags.sleeper.state_of(tag) == state);
        let awake = tags.free();
        let mut faults = 0;
        for call in calls {
            for n in 1.. {
                tags.device.faults().fail_nth(call, n);
                let outcome = tags.sleeper.sleep(&all);
                tags.device.faults().clear();
                if outcome.is_ok() {
                    break;
                }
                faults += 1;
                tags.settle();
                assert!(is(SleepState::Awake) && all_hold(), "{call:?} {n}");
                assert_eq!(tags.free(), awake, "{call:?} {n}");
            }
            let asleep = tags.free();
            for n in 1.. {
                tags.device.faults().fail_nth(call, n);
                let outcome = tags.sleeper.wake_up(Wake::All);
                tags.device.faults().clear();
                if outcome.is_ok() {
                    break;
                }
                faults += 1;
                assert!(is(SleepState::Asleep), "{call:?} {n}");
                assert_eq!((tags.free(), tags.sleeper.usage().asleep), (asleep, 27 * MIB), "{call:?} {n}");
            }
            tags.settle();
            assert!(all_hold(), "{call:?}");
            assert_eq!(tags.free(), awake);
        }
        assert!(faults > 20, "{offload:?}: {faults} calls failed");
    }
}

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
                            block.write(&stream, &pattern(seed, bytes)).expect("awake");
                            let mut found = vec![0; bytes as usize];
                            block.read(&stream, &mut found).expect("awake");
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

/// Threads use blocks of the very tag that sleeps and wakes: each gets its memory or a typed error, and what it wrote.
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
                            match tags.sleeper.allocate_tagged("weights", rng.u64(1..MIB), &stream) {
                                Ok(mut block) => match block.write(&stream, &pattern(seed, block.len())) {
                                    Ok(()) => blocks.push((seed, block)),
                                    Err(error) => assert!(matches!(error, Error::Asleep { .. }), "{error}"),
                                },
                                Err(error) => assert!(matches!(error, Error::Asleep { .. }), "{error}"),
                            }
                            if let Some((seed, block)) = blocks.last() {
                                let mut found = vec![0; block.len() as usize];
                                match block.read(&stream, &mut found) {
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
                    Err(error) => assert!(matches!(error, Error::Arena(ArenaError::Pinned)), "{error}"),
                }
                let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
            }
            is_over.store(1, Relaxed);
            workers.into_iter().for_each(|worker| worker.join().expect("no panic"));
        });
        assert_eq!(tags.device.races(), 0);
    }
}

#[test]
fn a_chunk_is_as_large_as_was_asked_for() {
    let tags = Tags::with(integrated(), |builder| builder.chunk_bytes(3 * MIB));
    assert_eq!((tags.sleeper.chunk_bytes(), tags.sleeper.stable_addresses()), (Some(4 * MIB), true));
    let calls = || tags.device.faults().calls(vrampool::host::Call::CreatePhysical);
    let _block = tags.filled("weights", 32 * MIB, 1);
    assert_eq!(calls(), 8);
    let tags = Tags::with(without_addresses(), |builder| builder);
    assert_eq!((tags.sleeper.chunk_bytes(), tags.sleeper.stable_addresses()), (None, false));
}
