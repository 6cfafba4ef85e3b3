//! Where streams share blocks each mostly gets what it had last, and leaves to the others what they had: what a stream that is behind
//! got of theirs they would have to wait for.

use super::streams::{place, stall};
use super::{PAGE, has_virtual_memory};
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, DeviceArena};

fn scene() -> (HostDevice, DeviceArena<HostDevice>, [HostStream; 3]) {
    let device = HostDevice::builder().capacity(1 << 30).granularity(PAGE).build();
    let streams = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(64 * PAGE).growing().build().expect("an arena");
    (device, arena, streams)
}

/// A hole of its own is taken although a smaller one of another stream's, which is done with it, would serve.
#[test]
fn what_another_stream_had_is_left_to_it() {
    if !has_virtual_memory() {
        return;
    }
    let (device, arena, [own, other, reader]) = scene();
    let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
    let (written, _one) = (allocate(4, &other), allocate(1, &own));
    let (shared, _two) = (allocate(4, &other), allocate(1, &own));
    let (had, _three) = (allocate(8, &own), allocate(1, &own));
    let [first, second, last] = [&written, &shared, &had].map(place);
    drop((written, had));
    shared.record_stream(&reader).expect("no fault");
    drop(shared);
    // All is done, and known to be once somebody has looked.
    [&own, &other, &reader].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let blocks = [allocate(3, &own), allocate(3, &own)];
    assert_eq!(blocks.each_ref().map(place), [last, last + 3 * PAGE]);
    let (go, _) = stall(&own);
    drop(blocks);
    let theirs = [allocate(4, &other), allocate(4, &other)];
    let mut places = theirs.each_ref().map(place);
    places.sort_unstable();
    assert_eq!((places, arena.stream_waits()), ([first, second], 0));
    go.send(()).expect("it listens");
}

/// Rather than wait, or have more mapped, it gets what another stream had that is done with it.
#[test]
fn what_others_had_serves_where_a_stream_has_nothing() {
    if !has_virtual_memory() {
        return;
    }
    let (device, arena, [own, other, third]) = scene();
    let allocate = |pages: u64, stream| arena.allocate(pages * PAGE, stream).expect("memory");
    let (small, _one) = (allocate(4, &other), allocate(1, &own));
    let (large, _two) = (allocate(8, &third), allocate(1, &own));
    let first = place(&large);
    large.record_stream(&own).expect("no fault");
    drop(large);
    [&own, &third].iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    let (go, _) = stall(&other);
    drop(small);
    let mapped = arena.reserved_bytes();
    let block = allocate(4, &own);
    assert_eq!((place(&block), arena.reserved_bytes(), arena.stream_waits()), (first, mapped, 0));
    go.send(()).expect("it listens");
}
