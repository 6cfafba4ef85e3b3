//! Callbacks of a compaction may use the arena, and may panic.

use super::{MB, check, holds, setup};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn a_panicking_callback_leaves_every_block_where_it_is_said_to_be() {
    let setup = setup(MB);
    let (hole, kept) = (setup.allocate(1000), [setup.filled(5000, 0), setup.filled(70_000, 1)]);
    drop(hole);
    let mut calls = 0;
    let compaction = AssertUnwindSafe(|| {
        setup.arena.compact(u64::MAX, &setup.stream, |_| {
            calls += 1;
            panic!("a caller's bug");
        })
    });
    assert!(catch_unwind(compaction).is_err());
    assert_eq!((calls, kept[0].offset().expect("live")), (1, 0));
    assert!(kept.iter().enumerate().all(|(n, buffer)| holds(buffer, &setup.stream, n as u64)));
    check(&setup.arena);
    assert_eq!(setup.arena.highest_end(), setup.arena.used(), "all have moved");
    let again = setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault");
    assert_eq!(again.moved_blocks, 0);
    setup.arena.reset().expect("nothing moves");
}

/// The callback may ask the arena for anything.
#[test]
fn a_callback_may_use_the_arena() {
    let setup = setup(MB);
    let (hole, _kept) = (setup.allocate(1000), setup.allocate(5000));
    drop(hole);
    let mut inside = None;
    let answer = setup.arena.compact(u64::MAX, &setup.stream, |moved| {
        assert!(setup.arena.compact(u64::MAX, &setup.stream, |_| {}).expect("no fault").moved_blocks == 0);
        inside = Some((moved.to, setup.allocate(100)));
    });
    assert_eq!(answer.expect("no fault").moved_blocks, 1);
    assert_eq!(inside.expect("called").0, 0);
}
