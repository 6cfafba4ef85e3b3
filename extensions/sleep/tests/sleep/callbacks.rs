//! Callbacks for progress that call the pools and the arena again: each call is served or refused, and none waits.

use crate::setup::Tags;
use crate::{MIB, Setup, discrete};
use std::cell::{Cell, RefCell};
use std::time::Duration;
use vrampool::Error as Refused;
use vrampool_sleep::{Error, Offload, sleep_all, wake_all};

#[test]
fn a_callback_calls_its_own_arena() {
    let setup = Setup::new(discrete());
    let (other, count) = (Setup::new(discrete()), Cell::new(0));
    let arena = &setup.arena;
    let block = |bytes| arena.allocate(bytes, &setup.stream).expect("memory");
    let (kept, dropped) = (block(4 * MIB), RefCell::new(Some(block(4 * MIB))));
    let call_again = |_| {
        count.set(count.get() + 1);
        let is_asleep = |error: Option<Refused>| matches!(error, Some(Refused::Asleep { .. }));
        assert!(is_asleep(arena.allocate(MIB, &setup.stream).err()));
        assert!(is_asleep(kept.on(&setup.stream).err()));
        assert!(is_asleep(arena.resize(100 * MIB).err()));
        assert!(is_asleep(arena.reset().err()));
        assert_eq!(arena.release(0).expect("no fault"), 0);
        drop(dropped.take());
        for refused in [
            setup.sleep.sleep(Offload::Discard).err(),
            setup.sleep.wake().err(),
            other.sleep.sleep(Offload::Discard).err(),
            sleep_all([(&other.sleep, Offload::Discard)], Duration::ZERO, &|_| ()).err(),
            wake_all([&other.sleep], &|_| ()).err(),
        ] {
            assert!(matches!(refused, Some(Error::Busy)), "{refused:?}");
        }
        assert!(other.arena.allocate(MIB, &other.stream).is_ok(), "it is awake");
    };
    let _ = sleep_all([(&setup.sleep, Offload::Pinned)], Duration::ZERO, &call_again).expect("asleep");
    assert!(setup.sleep.backup_bytes() > 0);
    let slept = count.replace(0);
    let _ = wake_all([&setup.sleep], &call_again).expect("awake");
    assert!(slept > 0 && count.get() > 0, "{slept} and {} pieces", count.get());
    assert!(kept.on(&setup.stream).is_ok() && arena.allocate(MIB, &setup.stream).is_ok());
}

#[test]
fn a_callback_calls_its_own_pools() {
    let tags = Tags::new(discrete(), &["weights", "other"], Offload::Pinned);
    let [weights, other] = [&tags.of("weights").pool, &tags.of("other").pool];
    let _block = tags.filled("weights", 4 * MIB, 1);
    // Idle memory is released before, and is no part of the progress.
    drop(tags.filled("weights", 1000, 2));
    let (count, last) = (Cell::new(0), Cell::new(None));
    let call_again = |progress| {
        count.set(count.get() + 1);
        last.set(Some(progress));
        assert!(matches!(tags.sleep(&[]), Err(Error::Busy)));
        assert!(matches!(tags.wake_up(), Err(Error::Busy)));
        assert!(matches!(weights.allocate(MIB, &tags.stream), Err(Refused::Asleep { .. })));
        drop(other.allocate(MIB, &tags.stream).expect("it is awake"));
        assert!(tags.pool.trim().is_ok() && weights.stats().live_bytes == 4 * MIB);
    };
    let policy = |tag: &str| (tag == "weights").then_some(Offload::Pinned);
    let _ = tags.sleep_with(policy, Duration::ZERO, &call_again).expect("asleep");
    let complete = last.get().map(|last| (last.copied_bytes, last.total_bytes));
    assert_eq!(complete, Some((4 * MIB, 4 * MIB)));
    let slept = count.replace(0);
    let _ = wake_all(tags.all.iter().map(|tag| &tag.arena), &call_again).expect("awake");
    assert!(slept > 0 && count.get() > 0, "{slept} and {} pieces", count.get());
}
