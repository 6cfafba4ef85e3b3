//! A sleeper in a forked child: every call fails typed or reports nothing, drops have no effect, and nothing waits.
#![cfg(target_os = "linux")]

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::Backend;
use vrampool::arena::DeviceArena;
use vrampool::host::HostDevice;
use vrampool_sleep::{BlockState, Offload, SleepArena, SleepState, SleepUsage, Sleeper, Wake};
use vrampool_test_support::{assert_forked, end_at_once, in_child_that_ends, while_busy};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

#[test]
fn a_sleeper_refuses_a_child() {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    let stream = device.create_stream().expect("a stream");
    let freed = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&freed);
    let builder = Sleeper::builder(&device).on_free(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    let sleeper = builder.build().expect("a sleeper");
    let block = sleeper.allocate_tagged(MIB, "weights", &stream).expect("memory");
    let mut mine = ManuallyDrop::new((sleeper.clone(), block));
    let work = |thread: u64| {
        let tag = format!("tag {thread}");
        drop(sleeper.allocate_tagged(KIB, &tag, &stream).expect("memory"));
        let _ = (sleeper.usage(), sleeper.trim());
    };
    while_busy(work, 10, || {
        let before = freed.load(Ordering::Relaxed);
        let act = || {
            let before = freed.load(Ordering::Relaxed).max(before);
            let (sleeper, block) = &mut *mine;
            assert_forked(sleeper.allocate(KIB, &stream));
            assert_forked(sleeper.sleep(&["weights"]));
            assert_forked(sleeper.discard(&["weights"]));
            assert_forked(sleeper.wake_up(Wake::All));
            assert_forked(sleeper.trim());
            drop(sleeper.tag("weights"));
            let usage = sleeper.usage_of("weights").expect("a figure");
            assert_eq!((sleeper.usage(), usage), Default::default());
            assert!(sleeper.tags().is_empty() && sleeper.usage() == SleepUsage::default());
            assert_eq!(sleeper.state_of("weights").expect("a state"), SleepState::Asleep);
            assert_forked(block.on(&stream).map(drop));
            assert_forked(block.on_mut(&stream).map(drop));
            assert_forked(block.used_on(&stream));
            assert_forked(block.write(&[1], &stream));
            assert_forked(block.read(&mut [1], &stream));
            assert_eq!((block.state(), block.address()), (BlockState::AsleepDiscarded, None));
            // SAFETY: this process drops them here and ends, and the parent drops its own.
            unsafe { ManuallyDrop::drop(&mut mine) };
            assert_eq!(freed.load(Ordering::Relaxed), before, "no callback");
        };
        in_child_that_ends(act, end_at_once);
    });
    let (_, block) = ManuallyDrop::into_inner(mine);
    let _ = sleeper.sleep(&["weights"]).expect("the parent's works");
    drop(block);
    assert_eq!((sleeper.usage().live_bytes, sleeper.usage().asleep_bytes), (0, 0));
}

#[test]
fn an_arena_refuses_a_child() {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    let stream = device.create_stream().expect("a stream");
    let arena = SleepArena::new(DeviceArena::builder(&device).growing().build().expect("an arena"));
    let block = arena.arena().allocate(MIB, &stream).expect("memory");
    let mut mine = ManuallyDrop::new(arena.clone());
    let work = |_| {
        let _ = arena.sleep(Offload::Pageable).and_then(|_| arena.wake()).expect("no fault");
    };
    // One thread sleeps and wakes at a time; the others wait for it.
    while_busy(work, 10, || {
        let act = || {
            assert_forked(mine.sleep(Offload::Pageable));
            assert_forked(mine.wake());
            assert_eq!((mine.state(), mine.contents()), (SleepState::Asleep, BlockState::AsleepDiscarded));
            assert_eq!(mine.backup_bytes(), 0);
            // SAFETY: this process drops it here and ends, and the parent drops its own.
            unsafe { ManuallyDrop::drop(&mut mine) };
        };
        in_child_that_ends(act, end_at_once);
    });
    drop((ManuallyDrop::into_inner(mine), block));
    assert_eq!(arena.arena().used(), 0);
}
