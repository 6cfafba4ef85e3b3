//! vLLM's tests of its allocator, by their names, on the host's virtual memory. Those that need a model are not here: `test_end_to_end`, `test_deep_sleep` and its kin; nor are those of its registry
//! of backends.

use crate::setup::{Block, on_each};
use crate::{MIB, pattern};
use vrampool::Error;
use vrampool_sleep::{BlockState, SleepReport, SleepState, Wake};

#[test]
fn test_basic_cumem() {
    on_each(|tags| {
        let before = tags.free();
        let blocks: Vec<_> = (0..5).map(|seed| tags.filled("weights", (seed + 1) * MIB, seed)).collect();
        let addresses: Vec<_> = blocks.iter().map(Block::address).collect();
        let usage = tags.sleeper.usage();
        assert!(
            usage.mapped_bytes >= 15 * MIB && usage.live_bytes == 15 * MIB && usage.asleep_bytes == 0,
            "{usage:?}"
        );
        let report = tags.sleeper.sleep(&["weights"]).expect("no fault");
        assert_eq!(
            (report.physical_bytes, report.copied_bytes, report.discarded_bytes),
            (usage.mapped_bytes, 15 * MIB, 0)
        );
        let asleep = tags.sleeper.usage();
        assert_eq!((asleep.mapped_bytes, asleep.live_bytes, asleep.asleep_bytes), (0, 0, 15 * MIB));
        assert_eq!((asleep.backup_bytes, tags.free()), (15 * MIB, before), "by memory info, too");
        assert_eq!(asleep.address_bytes, usage.address_bytes, "the addresses stay reserved");
        assert_eq!(blocks.iter().map(Block::address).collect::<Vec<_>>(), addresses);
        let report = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert_eq!((report.copied_bytes, report.no_op), (15 * MIB, false));
        assert_eq!(tags.sleeper.usage().mapped_bytes, report.physical_bytes);
        assert!((0..).zip(&blocks).all(|(seed, block)| tags.holds(block, seed)));
        assert_eq!(blocks.iter().map(Block::address).collect::<Vec<_>>(), addresses);
    });
}

#[test]
fn test_discard_tags() {
    on_each(|tags| {
        let (weights, cache) = (tags.filled("weights", 3 * MIB, 1), tags.filled("kv_cache", 5 * MIB, 2));
        let report = tags.sleeper.discard(&["kv_cache"]).expect("no fault");
        assert_eq!((report.copied_bytes, report.discarded_bytes), (0, 5 * MIB));
        assert_eq!((weights.state(), cache.state()), (BlockState::Mapped, BlockState::AsleepDiscarded));
        assert!(tags.holds(&weights, 1));
        assert!(matches!(cache.on(&tags.stream), Err(Error::Asleep { .. })));
        assert!(matches!(
            tags.sleeper.allocate_tagged(100, "kv_cache", &tags.stream),
            Err(Error::Asleep { .. })
        ));
        // What is backed up stays so.
        let _ = tags.sleeper.sleep(&["weights"]).expect("no fault");
        assert!(tags.sleeper.discard(&["weights"]).expect("nothing").no_op);
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
        let states: Vec<_> = all.iter().map(|tag| tags.sleeper.state_of(tag).expect("it exists")).collect();
        use SleepState::{Asleep, Awake};
        assert_eq!(states, [Awake, Asleep, Awake, Awake]);
        assert!([0, 2, 3].iter().all(|&seed| tags.holds(&blocks[seed], seed as u64)));
        let _ = tags.sleeper.wake_up(Wake::Tags(&["kv_cache"])).expect("memory");
        assert!(tags.holds(&blocks[1], 1));
        assert!(tags.sleeper.wake_up(Wake::All).expect("nothing").no_op);
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
                assert_eq!((report.discarded_bytes, report.no_op), (6 * MIB, false));
                assert_eq!((tags.sleeper.usage().mapped_bytes, tags.free()), (0, before));
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
        assert_eq!(
            (report.copied_bytes, report.discarded_bytes, tags.sleeper.usage().backup_bytes),
            (0, 8 * MIB, 0)
        );
        let report = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert_eq!(report.physical_bytes, 8 * MIB, "what was outgrown does not come back");
        assert!(!tags.holds(&scratch, 2));
        assert_eq!(scratch.address(), place);
        // It can be used again.
        drop(scratch);
        assert!(tags.holds(&tags.filled("workspace", 8 * MIB, 3), 3));
    });
}

/// Memory of what was freed under a tag is released by the next entry, whether something of it lives on or
/// not.
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
            runtime.write(&pattern(1, MIB), &tags.stream).expect("awake");
            cache.write(&pattern(2, 3 * MIB), &tags.stream).expect("awake");
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
        assert_eq!(tags.sleeper.sleep_level(0).expect("a pause"), SleepReport::default());
        assert!(tags.holds(&weights, 1));
        let report = tags.sleeper.sleep_level(2).expect("no fault");
        assert_eq!((report.copied_bytes, report.discarded_bytes), (0, 5 * MIB));
        let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
        assert_eq!(weights.address(), place);
        assert!(!tags.holds(&weights, 1));
        assert!(matches!(
            tags.sleeper.sleep_level(3),
            Err(vrampool_sleep::Error::UnknownLevel { level: 3, .. })
        ));
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
                assert_eq!(graph.address(), place);
            }
        });
    }
}
