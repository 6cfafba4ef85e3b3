//! Nothing waits for a stream whose work on free memory is known to be complete, whatever later work it has.

use super::PAGE;
use super::streams::{PATIENCE, stall};
use crate::detached::detach;
use std::sync::mpsc::channel;
use vrampool::Backend;
use vrampool::arena::DeviceArena;
use vrampool::host::{HostDevice, HostStream};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

/// Of an arena in which 8 pages behind the first 4 are free that the first stream wrote and the second one
/// read; both are done, and known to be.
fn scene() -> (Device, DeviceArena<Device>, [HostStream; 3], impl Sized) {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
    let [writer, reader, other] = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(64 * PAGE).growing().build().expect("an arena");
    let first = arena.allocate(4 * PAGE, &other).expect("memory");
    let shared = arena.allocate(8 * PAGE, &writer).expect("memory");
    shared.record_stream(&reader).expect("no fault");
    drop(shared);
    [&writer, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    // Some code looks.
    (0..2).for_each(|_| drop(arena.allocate(256, &reader).expect("memory")));
    (device, arena, [writer, reader, other], first)
}

/// Answers what it does while the writer does not get on.
fn beside_the_writer<T: Send>(writer: &HostStream, act: impl FnOnce() -> T + Send) -> T {
    let (go, _) = stall(writer);
    let (sender, receiver) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || _ = sender.send(act()));
        let answer = receiver.recv_timeout(PATIENCE);
        go.send(()).expect("it listens");
        answer.expect("it waited for later work of a stream that is done with it")
    })
}

#[test]
fn a_release_waits_for_no_completed_stream() {
    let (_device, arena, [writer, ..], _first) = scene();
    let released = beside_the_writer(&writer, || arena.release(0)).expect("no fault");
    assert!(released >= 8 * PAGE, "{released}");
}

#[test]
fn ordering_an_arena_for_a_stream_waits_for_no_completed_work() {
    let (_device, arena, [writer, _, other], _first) = scene();
    beside_the_writer(&writer, || arena.synchronize_freed(&other)).expect("no fault");
}

#[test]
fn detaching_waits_for_no_completed_stream() {
    let (_device, arena, [writer, ..], _first) = scene();
    beside_the_writer(&writer, || detach(&arena).map(drop)).expect("no fault");
}

/// Nor is it in the way that it is captured since.
#[test]
fn memory_is_released_and_detached_while_a_completed_stream_is_captured() {
    let (device, arena, [writer, ..], _first) = scene();
    device.capture(&[&writer]);
    assert!(arena.release(0).expect("no fault") >= 8 * PAGE);
    detach(&arena).map(drop).expect("no fault");
}
