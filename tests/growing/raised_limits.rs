//! Limits that are raised and lowered at run time: the range has two parts, and the first one ends where it ended under
//! the first limit.

use super::streams::{place, stall};
use super::{PAGE, scene};
use std::sync::mpsc;
use std::time::Duration;
use vrampool::arena::Zone;

/// Addresses behind the first part belong to the second one.
#[test]
fn small_requests_leave_a_full_first_part_for_the_second() {
    let scene = scene(|builder| builder.limit(16 * PAGE));
    let large = scene.live(4 * PAGE, 0, 1).expect("memory");
    scene.arena.resize(256 * PAGE).expect("the device has it");
    // Each is of the first part as long as that has room.
    let small: Vec<_> =
        (2..130).map(|seed| scene.live(PAGE / 4, 0, seed).expect("the limit has room")).collect();
    assert_eq!(scene.arena.capacity_of(Zone::Stable), 16 * PAGE, "the first part is full");
    for live in small.iter().chain([&large]) {
        scene.check(live, 0);
    }
    scene.check_books(small.iter().chain([&large]));
    drop((small, large));
    scene.check_end();
}

/// A full first part has nothing that serves a small request without a wait, so the second part grows for it.
#[test]
fn small_requests_wait_for_no_stream_where_the_first_part_is_full() {
    let (_, arena, [own, other, _]) = super::streams::scene(16, true);
    let _large = arena.allocate(4 * PAGE, &other).expect("memory");
    arena.resize(256 * PAGE).expect("the device has it");
    let mut small: Vec<_> =
        (0..64).map(|_| arena.allocate(PAGE / 4, &own).expect("the limit has room")).collect();
    assert_eq!(arena.capacity_of(Zone::Stable), 16 * PAGE, "the first part is full");
    let (go_on, _) = stall(&own);
    small.truncate(60);
    let (done, served) = mpsc::channel();
    let asking = arena.clone();
    std::thread::spawn(move || {
        let block = asking.allocate(PAGE / 4, &other).expect("the limit has room");
        done.send((place(&block), asking.stream_waits())).expect("it listens");
    });
    let (place, waits) = served.recv_timeout(Duration::from_secs(60)).expect("the request ends");
    assert_eq!((place, waits), (20 * PAGE, 0), "new memory behind the large block");
    go_on.send(()).expect("it listens");
}
