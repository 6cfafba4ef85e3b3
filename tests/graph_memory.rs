//! What a graph uses is nobody else's while the graph lives, and a capture makes no call that is forbidden.

use vrampool::host::HostDevice;
use vrampool::{Backend, Error, Memory, Overlap, Pool};
use vrampool_test_support::{AuditDevice, close_gate};

#[test]
fn a_captured_step_takes_what_its_warm_up_left_and_calls_nobody() {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).build().expect("a pool");
    let memory = pool.child("graph");
    let step = || {
        let mut places = Vec::new();
        let mut first = memory.allocate(1000, &stream).expect("memory");
        device.fill(&stream, first.on_mut(&stream).expect("a region"), 1).expect("queued");
        let second = memory.allocate(60_000, &stream).expect("memory");
        for buffer in [&first, &second] {
            places.push(buffer.on(&stream).expect("a region").address());
        }
        drop(first);
        // Of the same class, and larger than what was asked for before.
        let third = memory.allocate(1020, &stream).expect("memory");
        assert_eq!((third.len(), third.on(&stream).expect("a region").len()), (1020, 1020));
        places.push(third.on(&stream).expect("a region").address());
        places
    };
    let places = step();
    assert_eq!(places[0], places[2], "within the graph it is used again");
    device.set_capturing(true);
    let before = (device.allocations(), device.frees(), pool.stats().stream_waits);
    assert_eq!(step(), places);
    let error = memory.allocate(1 << 20, &stream).expect_err("nothing of the class is here");
    assert!(
        matches!(error, Error::Capture { requested_bytes: 1_048_576, class_bytes: 1_048_576, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("before the capture") && !error.is_out_of_memory(), "{error}");
    assert_eq!((device.allocations(), device.frees(), pool.stats().stream_waits), before);
    device.set_capturing(false);
    assert_eq!(memory.idle_bytes(), 1024 + 65_536);
}

#[test]
fn a_graphs_memory_is_not_reused_before_the_graph_memory_is_dropped() {
    let device = HostDevice::new();
    let [stream, other] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let pool = Pool::builder(&device).overlap(Overlap::Bytes(0)).build().expect("a pool");
    let memory = pool.child("graph");
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
    let next = pool.allocate(1000, &stream).expect("memory");
    assert_eq!((next.memory().address(), pool.stats().stream_waits), (place, waits + 1));
    let class = pool.stats().idle_bytes;
    drop(survivor);
    assert!(pool.stats().idle_bytes > class, "a buffer that outlived the graph's memory returns to the pool");
}
