//! Memory that sleeps in a forked child: every call fails typed or reports nothing, drops have no effect, and nothing
//! waits.
#![cfg(target_os = "linux")]

use std::mem::ManuallyDrop;
use vrampool::Backend;
use vrampool::arena::{Attachment, DeviceArena};
use vrampool::host::HostDevice;
use vrampool_sleep::{Offload, SleepArena};
use vrampool_test_support::{assert_forked, end_at_once, in_child_that_ends, while_busy};

const MIB: u64 = 1 << 20;

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
            assert_eq!((mine.arena().attachment(), mine.backup_bytes()), (Attachment::Detached, 0));
            // SAFETY: this process drops it here and ends, and the parent drops its own.
            unsafe { ManuallyDrop::drop(&mut mine) };
        };
        in_child_that_ends(act, end_at_once);
    });
    drop((ManuallyDrop::into_inner(mine), block));
    assert_eq!(arena.arena().used(), 0);
}
