//! Captured streams are waited for as before their capture, and no request is sent to their memory.

use super::PAGE;
use super::streams::stall;
use crate::detached::detach;
use vrampool::arena::DeviceArena;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Error, Event, Forbidden, Pool, Source};
use vrampool_test_support::AuditDevice;

/// Memory that a captured stream freed belongs to its graph; no other stream gets it.
#[test]
fn memory_that_a_captured_stream_freed_serves_no_other_stream() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
    let [own, reader, captured] = [(); 3].map(|()| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).growing().limit(21 * PAGE).build().expect("an arena");
    let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
    let (theirs, wall, block) = (allocate(9, &captured), allocate(1, &own), allocate(8, &own));
    let (other_wall, later, last_wall) = (allocate(1, &own), allocate(1, &own), allocate(1, &own));
    device.capture(&[&captured]);
    drop(theirs);
    later.used_on(&reader).expect("no fault");
    drop(later);
    let place = block.parts();
    let (go, _) = stall(&reader);
    block.used_on(&reader).expect("no fault");
    drop(block);
    assert_eq!(allocate(8, &own).parts(), place, "at the limit it waits for the reader");
    go.send(()).expect("it listens");
    device.synchronize(&reader).expect("no fault");
    drop((wall, other_wall, last_wall));
}

/// Work of a stream before its capture is waited for during the capture.
#[test]
fn a_captured_reader_is_waited_for_as_it_was_before() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
    let [own, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).growing().limit(8 * PAGE).build().expect("an arena");
    let block = arena.allocate(8 * PAGE, &own).expect("memory");
    let (go, _) = stall(&reader);
    block.used_on(&reader).expect("no fault");
    drop(block);
    device.capture(&[&reader]);
    let next = arena.allocate(8 * PAGE, &own).expect("what the reader did before is no part of its capture");
    let after = device.record(&own).expect("no fault");
    assert_eq!(after.is_complete(), Ok(false), "it waits for the reader");
    go.send(()).expect("it listens");
    device.synchronize(&own).expect("no fault");
    assert_eq!(device.forbidden(), 0);
    drop(next);
}

/// Memory that another stream may have used before their common capture is refused, and so is memory from outside
/// the capture: the graph does not order that work. Nothing is mapped or waited for.
#[test]
fn no_stream_outside_gets_a_wait_for_a_captured_one() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
    let [own, reader, side] = [(); 3].map(|()| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).growing().limit(64 * PAGE).build().expect("an arena");
    let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
    let (outside, _wall, inside, _last) =
        (allocate(9, &own), allocate(1, &own), allocate(8, &side), allocate(1, &own));
    let (go, _) = stall(&reader);
    outside.used_on(&reader).expect("no fault");
    drop(outside);
    device.capture(&[&own, &side]);
    drop(inside);
    let before = (arena.reserved_bytes(), arena.stream_waits(), device.forbidden());
    let refused = arena.allocate(8 * PAGE, &own).map(drop);
    let after = (arena.reserved_bytes(), arena.stream_waits(), device.forbidden());
    go.send(()).expect("it listens");
    assert!(matches!(refused, Err(Error::Capture { forbidden: Forbidden::Wait, .. })), "{refused:?}");
    assert_eq!(after, before);
}

/// Returns a growing pool of sixteen pages. One stream freed them while it was busy, and another stream uses
/// all of them after one wait. All streams are idle.
fn handed_over() -> (AuditDevice<HostDevice>, Pool<AuditDevice<HostDevice>>, [HostStream; 3], [impl Sized; 2])
{
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build());
    let streams = [(); 3].map(|()| device.create_stream().expect("a stream"));
    let pool = Pool::builder(&device).source(Source::Virtual).limit(16 * PAGE).cached_class(0);
    let pool = pool.build().expect("a pool");
    let [before, now, _] = &streams;
    let allocate = |stream| pool.allocate(8 * PAGE, stream).expect("memory");
    let (go, _) = stall(before);
    drop([(); 2].map(|()| allocate(before)));
    let live = [(); 2].map(|()| allocate(now));
    assert_eq!(pool.stats().stream_waits, 1);
    go.send(()).expect("it listens");
    [before, now].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    assert_eq!(pool.arena().map(DeviceArena::used), Some(16 * PAGE));
    (device, pool, streams, live)
}

#[test]
fn a_captured_stream_that_uses_no_block_does_not_keep_an_arena_attached() {
    let (device, pool, [before, ..], _live) = handed_over();
    device.capture(&[&before]);
    let detached = detach(pool.arena().expect("it has one"));
    assert!(matches!(detached, Ok(Some(_))), "{detached:?}");
}

/// No launch of a graph is reported: what is refused of a captured stream is not noted of it either.
#[test]
fn a_block_is_not_recorded_on_a_captured_stream() {
    let device = AuditDevice::new(HostDevice::new());
    let [own, captured] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(PAGE).build().expect("an arena");
    let pool = Pool::builder(&device).source(Source::Arena).build().expect("a pool");
    let (block, buffer) =
        (arena.allocate(PAGE, &own).expect("memory"), pool.allocate(PAGE, &own).expect("memory"));
    device.capture(&[&captured]);
    assert!(block.used_on(&captured).is_err() && block.record_stream(&captured).is_err());
    assert!(buffer.used_on(&captured).is_err() && buffer.record_stream(&captured).is_err());
}

/// A free range without users on the captured stream needs no wait.
#[test]
fn a_stream_without_use_of_free_memory_is_not_waited_for() {
    let (device, pool, [before, _, captured], _live) = handed_over();
    let (go, heard) = stall(&before);
    pool.arena().expect("it has one").synchronize_freed(&captured).expect("no fault");
    go.send(()).expect("it listens");
    device.synchronize(&before).expect("no fault");
    assert_eq!(*heard.lock().expect("no panic"), Some(Ok(())), "it was waited for");
}
