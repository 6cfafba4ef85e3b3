//! Memory that several streams used: nothing gets it too early, and no stream waits for more than it must.

use super::PAGE;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use vrampool::arena::{ArenaBuffer, DeviceArena};
use vrampool::backend::Capabilities;
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, Event};
use vrampool_test_support::AuditDevice;

/// Only a test that fails waits so long.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) type Block = ArenaBuffer<HostDevice>;

/// An arena of so many pages that grows to them, or has them from the start, and streams.
pub(super) fn scene(pages: u64, is_growing: bool) -> (HostDevice, DeviceArena<HostDevice>, [HostStream; 3]) {
    let (device, streams) = super::host();
    let builder = DeviceArena::builder(&device).limit(pages * PAGE);
    let arena = if is_growing { builder.growing() } else { builder }.build().expect("an arena");
    (device, arena, streams)
}

/// The message that a stalled stream received, once it is set.
type Heard = Arc<Mutex<Option<Result<(), RecvTimeoutError>>>>;

/// Has a stream do nothing until a message comes. Returns the sender, and what the stream received.
pub(super) fn stall(stream: &HostStream) -> (Sender<()>, Heard) {
    let (go, signal) = channel();
    let heard = Arc::new(Mutex::new(None));
    let hears = Arc::clone(&heard);
    let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| {
        *hears.lock().expect("no panic") = Some(signal.recv_timeout(PATIENCE))
    };
    stream.launch([], [], kernel).expect("queued");
    (go, heard)
}

pub(super) fn place(block: &Block) -> u64 {
    block.parts()[0].start
}

/// The next owner of a block does not wait for work that the reader got after the free.
#[test]
fn work_after_the_free_is_not_waited_for() {
    let (device, arena, [writer, reader, _]) = scene(8, true);
    let block = arena.allocate(8 * PAGE, &writer).expect("memory");
    let first = place(&block);
    let (go, heard) = stall(&reader);
    block.used_on(&reader).expect("no fault");
    drop(block);
    let (go_on, heard_later) = stall(&reader);
    let next = arena.allocate(8 * PAGE, &writer).expect("there is no other");
    assert_eq!(place(&next), first);
    let after = device.record(&writer).expect("no fault");
    assert_eq!(after.is_complete(), Ok(false), "it waits for the reader");
    go.send(()).expect("it listens");
    device.synchronize(&writer).expect("no fault");
    go_on.send(()).expect("it listens");
    device.synchronize(&reader).expect("no fault");
    assert_eq!(*heard.lock().expect("no panic"), Some(Ok(())));
    assert_eq!(
        *heard_later.lock().expect("no panic"),
        Some(Ok(())),
        "the writer waited for work after the free"
    );
}

/// Nor is what the stream is given that it was allocated for, once another one used it too.
#[test]
fn work_of_the_writer_after_the_free_is_not_waited_for() {
    let (device, arena, [writer, reader, next]) = scene(8, true);
    let block = arena.allocate(8 * PAGE, &writer).expect("memory");
    let (go, heard) = stall(&writer);
    block.record_stream(&reader).expect("no fault");
    drop(block);
    let (go_on, heard_later) = stall(&writer);
    let _next = arena.allocate(8 * PAGE, &next).expect("there is no other");
    let after = device.record(&next).expect("no fault");
    assert_eq!(after.is_complete(), Ok(false), "it waits for the writer");
    go.send(()).expect("it listens");
    device.synchronize(&next).expect("no fault");
    go_on.send(()).expect("it listens");
    device.synchronize(&writer).expect("no fault");
    for heard in [heard, heard_later] {
        assert_eq!(*heard.lock().expect("no panic"), Some(Ok(())), "it waited for work after the free");
    }
}

/// The code that asks gets what nothing uses, even if it fits less closely; and of what is in use what was freed
/// first.
#[test]
fn memory_in_use_is_left_where_there_is_other() {
    let (device, arena, [own, reader, _]) = scene(30, true);
    let allocate = |pages: u64| arena.allocate(pages * PAGE, &own).expect("memory");
    let (first, wall, second, other_wall) = (allocate(9), allocate(1), allocate(8), allocate(1));
    let (free, last_wall) = (allocate(10), allocate(1));
    let [first_place, second_place, free_place] = [&first, &second, &free].map(place);
    let (go, _) = stall(&reader);
    for block in [first, second] {
        block.used_on(&reader).expect("no fault");
        drop(block);
    }
    drop(free);
    let waits = arena.stream_waits();
    let (one, two, three) = (allocate(8), allocate(8), allocate(8));
    assert_eq!(place(&one), free_place, "it is unused");
    assert_eq!(
        (place(&two), place(&three)),
        (first_place, second_place),
        "what was freed first is free first"
    );
    assert_eq!(arena.stream_waits(), waits + 2);
    go.send(()).expect("it listens");
    device.synchronize(&reader).expect("no fault");
    drop((one, two, three));
    assert_eq!(place(&allocate(8)), second_place, "all of it is free, and this fits");
    drop((wall, other_wall, last_wall));
}

/// All streams are in one order, so no position of a stream is queried, for which some devices submit work.
#[test]
fn a_device_with_one_order_is_not_asked_where_its_streams_are() {
    let device = AuditDevice::new(HostDevice::builder().memory_limit(1 << 30).build())
        .with_properties(|of| of.capabilities.remove(Capabilities::CONCURRENT_STREAMS));
    let [own, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(8 * PAGE).build().expect("an arena");
    let block = arena.allocate(PAGE, &own).expect("memory");
    let (go, _) = stall(&reader);
    block.used_on(&reader).expect("no fault");
    let (faults, first) = (device.inner().faults(), block.parts());
    let events = faults.calls(Call::Record);
    drop(block);
    assert_eq!(faults.calls(Call::Record), events);
    assert_eq!(arena.allocate(PAGE, &own).expect("memory").parts(), first);
    go.send(()).expect("it listens");
}

/// Of two free blocks of one size the first was used by an idle stream, the other one by a busy stream.
#[test]
fn a_small_request_takes_the_block_that_needs_no_wait() {
    const SMALL: u64 = 8 << 20;
    let device = HostDevice::builder().memory_limit(1 << 30).granularity(64 << 20).build();
    let [asks, idle, busy] = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(1 << 29).growing().build().expect("an arena");
    let allocate = |bytes, stream| arena.allocate(bytes, stream).expect("memory");
    // A block of another size in the same bin, and walls between all.
    let [other, wanted, waits] = [(SMALL + 256, &busy), (SMALL, &idle), (SMALL, &busy)]
        .map(|(bytes, stream)| (allocate(bytes, stream), allocate(256, &asks)));
    let at = place(&wanted.0);
    let _go = stall(&busy);
    let _walls = [other, waits, wanted].map(|(block, wall)| {
        drop(block);
        wall
    });
    let next = allocate(SMALL, &asks);
    assert_eq!((place(&next), arena.stream_waits()), (at, 0));
}
