//! Tags: limit, callbacks, accesses, faults.

use crate::setup::{Tags, on_each, without_addresses};
use crate::{MIB, discrete, integrated};
use std::sync::{Arc, Mutex};
use vrampool::Error;
use vrampool::arena::ArenaError;
use vrampool::sleep::Sleeper;
use vrampool::sleep::{BlockState, Offload, SleepState, Wake};

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
                .allocate_tagged(64 * MIB, "weights", &tags.stream)
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
fn a_limit_that_no_block_could_keep_to_is_refused_at_once() {
    let refused = Sleeper::builder(&discrete()).limit(100).build();
    assert!(
        matches!(&refused, Err(Error::Configuration(setting)) if setting.field == "limit"),
        "{refused:?}"
    );
    assert!(Sleeper::builder(&without_addresses()).limit(100).build().is_ok(), "there it has no granules");
}

#[test]
fn one_limit_holds_for_all_tags_and_free_memory_of_one_makes_room_for_another() {
    for device in [integrated(), without_addresses()] {
        let tags = Tags::with(device, |builder| builder.limit(32 * MIB).offload(Offload::Pageable));
        let before = tags.free();
        let one = tags.filled("one", 20 * MIB, 1);
        let error = tags.sleeper.allocate_tagged(20 * MIB, "two", &tags.stream).expect_err("over the limit");
        assert!(error.is_out_of_memory(), "{error}");
        drop(one);
        let two = tags.filled("two", 20 * MIB, 2);
        tags.settle();
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
            assert!(matches!(
                tags.sleeper.sleep(&["a", "b"]).as_ref().err().and_then(Error::arena),
                Some(ArenaError::Pinned)
            ));
        }
        {
            let access = two.access().expect("awake");
            let _region = access.on(&tags.stream).expect("awake");
            assert!(matches!(
                tags.sleeper.sleep(&["a", "b"]).as_ref().err().and_then(Error::arena),
                Some(ArenaError::Pinned)
            ));
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
        assert_eq!(
            (tags.sleeper.usage().asleep_bytes, tags.sleeper.usage().backup_bytes),
            (2 * MIB, 2 * MIB)
        );
        assert_eq!(tags.sleeper.wake_up(Wake::All).expect("memory").mapped_bytes, 2 * MIB);
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
                assert_eq!(
                    (tags.free(), tags.sleeper.usage().asleep_bytes),
                    (asleep, 27 * MIB),
                    "{call:?} {n}"
                );
            }
            tags.settle();
            assert!(all_hold(), "{call:?}");
            assert_eq!(tags.free(), awake);
        }
        assert!(faults > 20, "{offload:?}: {faults} calls failed");
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
