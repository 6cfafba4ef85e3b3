//! Memory of a graph has no other owner while the graph lives, and a capture makes no forbidden call.

use vrampool::host::HostDevice;
use vrampool::{Amount, Backend, Memory, Pool, SizeClasses};
use vrampool_test_support::{AuditDevice, close_gate};

#[test]
fn a_graphs_memory_is_not_reused_before_the_graph_memory_is_dropped() {
    let device = HostDevice::new();
    let [stream, other] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let pool = Pool::builder(&device).overlap(Amount::Bytes(0)).build().expect("a pool");
    let memory = pool.child("graph").private(true).build().expect("a pool");
    let buffer = memory.allocate(1000, &stream).expect("memory");
    let place = buffer.on(&stream).expect("a region").address();
    drop(buffer);
    let outsider = pool.allocate(1000, &stream).expect("memory");
    assert_ne!(outsider.memory().address(), place);
    // Launched on another stream, for which the next owner waits.
    memory.used_on(&other).expect("a use");
    let _launched = close_gate(&other);
    let survivor = memory.allocate(5000, &stream).expect("memory");
    drop(memory);
    let waits = pool.stats().stream_waits;
    let _next = pool.allocate(1000, &stream).expect("memory");
    assert_eq!((waits, pool.stats().stream_waits), (1, 1), "the device has its memory back");
    let held = pool.stats().held_bytes;
    drop(survivor);
    assert!(
        pool.stats().held_bytes < held,
        "a buffer that outlived the graph's memory returns to the device"
    );
}

#[test]
fn a_child_finds_blocks_again_that_a_class_borrowed_from_a_larger_one() {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).size_classes(SizeClasses::GEOMETRIC).build().expect("a pool");
    let (bytes, larger) = (3 << 20, (3 << 20) + (1 << 19));
    let memory = pool.child("graph").private(true).build().expect("a pool");
    drop(memory.allocate(larger, &stream).expect("memory"));
    let buffer = memory.allocate(bytes, &stream).expect("memory");
    assert_eq!(buffer.capacity(), pool.class_of(larger).expect("a class"), "it is borrowed");
    drop(buffer);
    device.set_capturing(true);
    drop(memory.allocate(bytes, &stream).expect("it has it"));
    device.set_capturing(false);
    // Whatever class the bytes have by the time of the free.
    let buffer = memory.allocate(bytes, &stream).expect("it has it");
    pool.set_limit(1 << 20).expect("no arena refuses it");
    drop((buffer, memory));
    let stats = pool.stats();
    assert_eq!((stats.live_bytes, stats.requested_bytes), (0, 0));
}
