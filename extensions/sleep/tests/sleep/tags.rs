//! Tags: devices, limit, callbacks, regions, faults.

use crate::setup::{Tags, on_each};
use crate::{MIB, discrete, integrated, is_pinned};
use std::sync::{Arc, Mutex};
use vrampool::host::HostDevice;
use vrampool_sleep::{BlockState, Offload, SleepState, Wake};
use vrampool_sleep::{Error, Sleeper};

/// vLLM registered a block before it was mapped, and kept it when that failed (bug 2).
#[test]
fn callbacks_are_told_of_what_is_there_and_of_nothing_else() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (malloc, free) = (Arc::clone(&told), Arc::clone(&told));
    let tags = Tags::with(discrete(), |builder| {
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
    let told: Vec<_> =
        told.lock().unwrap().iter().map(|(malloc, tag, bytes)| (*malloc, tag.clone(), bytes / MIB)).collect();
    let told: Vec<_> = told.iter().map(|(malloc, tag, mib)| (*malloc, tag.as_str(), *mib)).collect();
    assert_eq!(
        told,
        [(true, "weights", 3), (true, "kv_cache", 5), (false, "weights", 3), (false, "kv_cache", 5)]
    );
}

#[test]
fn a_limit_that_no_block_could_keep_to_is_refused_at_once() {
    let refused = Sleeper::builder(&discrete()).limit(100).build();
    assert!(matches!(refused, Err(Error::Limit { limit_bytes: 100, .. })), "{refused:?}");
}

/// Blocks keep their addresses by virtual memory alone. Devices of OpenCL and wgpu have none.
#[test]
fn a_device_without_virtual_memory_is_refused_with_the_lack_and_a_remedy() {
    let device = HostDevice::builder().virtual_memory(false).build();
    for refused in [Sleeper::new(&device), Sleeper::builder(&device).limit(100).build()] {
        let error = refused.expect_err("no virtual memory");
        assert!(matches!(error, Error::NoVirtualMemory { .. }));
        let text = error.to_string();
        assert!(text.contains("no virtual memory") && text.contains("allocate them again"), "{text}");
    }
}

#[test]
fn one_limit_holds_for_all_tags_and_free_memory_of_one_makes_room_for_another() {
    let tags = Tags::with(integrated(), |builder| builder.limit(32 * MIB).offload(Offload::Pageable));
    let before = tags.free();
    let one = tags.filled("one", 20 * MIB, 1);
    let error = tags.sleeper.allocate_tagged(20 * MIB, "two", &tags.stream).expect_err("over the limit");
    assert!(error.is_out_of_memory(), "{error}");
    drop(one);
    let two = tags.filled("two", 20 * MIB, 2);
    tags.finish();
    assert!(before - tags.free() <= 32 * MIB);
    // Asleep it takes none of the limit, and it does not wake over it.
    let _ = tags.sleeper.sleep(&["two"]).expect("no fault");
    let _ = tags.sleeper.wake_up(Wake::Tags(&[])).expect("it is internal");
    let _ = tags.sleeper.discard(&["one"]).expect("nothing");
    let _ = tags.sleeper.sleep(&["two"]).expect("no fault");
    let three = tags.filled("three", 20 * MIB, 3);
    assert!(tags.sleeper.wake_up(Wake::All).expect_err("over the limit").is_out_of_memory());
    assert_eq!(
        (tags.sleeper.state_of("two").expect("it exists"), two.state()),
        (SleepState::Asleep, BlockState::AsleepBackedUp)
    );
    assert!(tags.holds(&three, 3));
    drop(three);
    // What is free of tag three makes room.
    let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
    assert!(tags.holds(&two, 2));
}

#[test]
fn a_region_keeps_memory_awake_and_all_tags_with_it() {
    let tags = Tags::with(integrated(), |builder| builder);
    let (one, mut two) = (tags.filled("a", MIB, 1), tags.filled("b", MIB, 2));
    {
        let _region = two.on_mut(&tags.stream).expect("awake");
        assert!(tags.sleeper.sleep(&["a", "b"]).is_err_and(|error| is_pinned(&error)));
    }
    {
        let _region = two.on(&tags.stream).expect("awake");
        assert!(tags.sleeper.sleep(&["a", "b"]).is_err_and(|error| is_pinned(&error)));
    }
    assert!(tags.holds(&one, 1) && tags.holds(&two, 2));
    let _ = tags.sleeper.sleep(&["a", "b"]).expect("no fault");
    let _ = tags.sleeper.wake_up(Wake::All).expect("memory");
    assert!(tags.holds(&one, 1) && tags.holds(&two, 2));
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
        assert_eq!(tags.sleeper.wake_up(Wake::All).expect("memory").physical_bytes, 2 * MIB);
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
    for (device, offload) in [(discrete(), Offload::Pinned), (integrated(), Offload::Pageable)] {
        let tags = Tags::with(device, |builder| builder.offload(offload).chunk_bytes(2 * MIB));
        let all = ["a", "b", "c"];
        let blocks: Vec<_> = (0..9).map(|seed| tags.filled(all[seed % 3], 3 * MIB, seed as u64)).collect();
        let all_hold = || (0..).zip(&blocks).all(|(seed, block)| tags.holds(block, seed));
        let is = |state| all.iter().all(|tag| tags.sleeper.state_of(tag).expect("it exists") == state);
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
                tags.finish();
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
            tags.finish();
            assert!(all_hold(), "{call:?}");
            assert_eq!(tags.free(), awake);
        }
        assert!(faults > 20, "{offload:?}: {faults} calls failed");
    }
}

#[test]
fn a_chunk_is_as_large_as_was_asked_for() {
    let tags = Tags::with(integrated(), |builder| builder.chunk_bytes(3 * MIB));
    assert_eq!(tags.sleeper.chunk_bytes(), 4 * MIB);
    let calls = || tags.device.faults().calls(vrampool::host::Call::CreatePhysical);
    let _block = tags.filled("weights", 32 * MIB, 1);
    assert_eq!(calls(), 8);
}

/// Every callback is called for a block, also to those after one that panics, and a thread that unwinds already goes on
/// to do so.
#[test]
fn a_callback_that_panics_keeps_a_block_from_no_other() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    static TOLD: AtomicU64 = AtomicU64::new(0);
    let tags = Tags::with(discrete(), |builder| {
        builder
            .on_malloc(|allocation| assert_ne!(allocation.bytes, 7, "of the first callback's"))
            .on_malloc(|_| {
                TOLD.fetch_add(1, SeqCst);
            })
            .on_free(|_| panic!("of the first callback's"))
            .on_free(|_| {
                TOLD.fetch_add(10, SeqCst);
            })
    });
    let caught = |call: &dyn Fn()| catch_unwind(AssertUnwindSafe(call)).is_err();
    let before = tags.free();
    let block = tags.sleeper.allocate_tagged(MIB, "a", &tags.stream).expect("memory");
    assert_eq!(TOLD.load(SeqCst), 1);
    let block = std::cell::Cell::new(Some(block));
    assert!(caught(&|| drop(block.take())));
    assert_eq!(TOLD.load(SeqCst), 11);
    // The block is freed while the first panic unwinds, and its callbacks panic too.
    assert!(caught(&|| drop(tags.sleeper.allocate_tagged(7, "a", &tags.stream))));
    assert_eq!(TOLD.load(SeqCst), 22);
    let _ = tags.sleeper.trim().expect("no fault");
    assert_eq!(tags.free(), before);
}

/// A name with a mistake in it would discard what was to be kept.
#[test]
fn a_tag_that_does_not_exist_is_an_error_that_names_those_that_do() {
    on_each(|tags| {
        let (weights, mine) = (tags.filled("weights", MIB, 1), tags.filled("mine", MIB, 2));
        let refused = |outcome: Result<(), Error>| {
            let error = outcome.expect_err("no such tag");
            assert!(matches!(&error, Error::UnknownTag { tag, .. } if tag == "wieghts"), "{error}");
            assert!(
                error.to_string().contains("cudagraph, default, kv_cache, mine, runtime, weights"),
                "{error}"
            );
            assert!(tags.holds(&weights, 1) && tags.holds(&mine, 2), "nothing was done");
        };
        let sleeper = &tags.sleeper;
        refused(sleeper.sleep(&["weights", "wieghts"]).map(drop));
        refused(sleeper.sleep_tags(&["wieghts"]).map(drop));
        refused(sleeper.discard(&["wieghts", "mine"]).map(drop));
        refused(sleeper.wake_up(Wake::Tags(&["wieghts"])).map(drop));
        refused(sleeper.state_of("wieghts").map(drop));
        refused(sleeper.usage_of("wieghts").map(drop));
        // Those that programs have by custom are no mistakes, before anything was allocated under them.
        assert_eq!(sleeper.state_of("kv_cache").expect("a custom"), SleepState::Awake);
        assert_eq!(sleeper.usage_of("default").expect("a custom").live_bytes, 0);
        let _ = sleeper.discard(&["kv_cache", "default"]).expect("no fault");
        assert!(tags.holds(&weights, 1) && tags.holds(&mine, 2));
        // A tag that all was freed of is one yet.
        drop(mine);
        let _ = sleeper.sleep_tags(&["mine"]).expect("no fault");
        assert_eq!(sleeper.state_of("mine").expect("it was used"), SleepState::Asleep);
    });
}
