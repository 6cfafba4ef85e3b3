//! Memory is never reused while earlier work may still access it, and the host is not blocked for that.

mod bench;
mod moved;
mod random_work;
mod side_by_side;

use std::sync::mpsc::channel;
use vrampool::arena::DeviceArena;
use vrampool::backend::AllocationRequest;
use vrampool::host::{Call, HostDevice};
use vrampool::{Amount, Backend, Error, Event, Placement, Pool, Region, RegionMut, Source};
use vrampool_test_support::{AuditDevice, close_gate, has_virtual_memory, streams};

type Device = AuditDevice<HostDevice>;
type Memory = <Device as Backend>::Memory;
type Stream = <HostDevice as Backend>::Stream;

fn device() -> Device {
    AuditDevice::new(HostDevice::builder().granularity(4096).build())
}

/// Returns the sources of the host device on this system.
fn sources() -> Vec<Source> {
    let has_virtual_memory = has_virtual_memory(&device());
    Source::ALL.iter().copied().filter(|&source| has_virtual_memory || source != Source::Virtual).collect()
}

fn result_memory(device: &Device, bytes: u64) -> Memory {
    device.allocate(&AllocationRequest::new(bytes, Placement::Device)).expect("memory")
}

fn contents(device: &Device, stream: &Stream, memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; vrampool::Memory::len(memory) as usize];
    device.download(stream, Region::whole(memory, stream), &mut bytes).expect("no fault");
    bytes
}

#[test]
fn the_same_stream_reuses_at_once_without_event_or_wait() {
    let device = device();
    let [stream] = streams(&device);
    let pool = Pool::builder(&device).build().expect("a pool");
    let open = close_gate(&stream);
    let result = result_memory(&device, 1024);
    let mut first = pool.allocate(1024, &stream).expect("memory");
    device.fill(&stream, first.on_mut(&stream).expect("a region"), 1).expect("queued");
    device
        .copy(&stream, first.on(&stream).expect("a region"), RegionMut::whole(&result, &stream))
        .expect("queued");
    drop(first);
    let faults = device.inner().faults();
    let before = [Call::Record, Call::Wait, Call::Synchronize, Call::Query, Call::Allocate]
        .map(|call| faults.calls(call));
    let mut second = pool.allocate(1000, &stream).expect("memory");
    device.fill(&stream, second.on_mut(&stream).expect("a region"), 2).expect("queued");
    let after = [Call::Record, Call::Wait, Call::Synchronize, Call::Query, Call::Allocate]
        .map(|call| faults.calls(call));
    assert_eq!(before, after, "a hit on the same stream asks the driver nothing");
    drop(open);
    assert_eq!(contents(&device, &stream, &result), [1; 1024]);
    assert_eq!(pool.stats().stream_waits, 0);
}

#[test]
fn a_block_of_the_same_stream_is_preferred() {
    let device = device();
    let [a, b] = streams(&device);
    let pool = Pool::builder(&device).build().expect("a pool");
    let lease = |stream| pool.allocate(1024, stream).expect("memory");
    let (on_a, on_b, again_on_b) = (lease(&a), lease(&b), lease(&b));
    let address = vrampool::Memory::address(&*on_a.memory());
    drop((on_b, on_a, again_on_b));
    assert_eq!(vrampool::Memory::address(&*lease(&a).memory()), address);
    assert_eq!((pool.stats().served.by_bucket, pool.stats().stream_waits), (1, 0));
}

#[test]
fn a_block_stays_with_its_stream_though_others_used_it() {
    let device = device();
    let [a, b] = streams(&device);
    let pool = Pool::builder(&device).overlap(Amount::Bytes(0)).build().expect("a pool");
    let lease = |stream| pool.allocate(1024, stream).expect("memory");
    let (on_a, on_b) = (lease(&a), lease(&b));
    let address = vrampool::Memory::address(&*on_a.memory());
    on_a.used_on(&b).expect("queued");
    let _used = close_gate(&b);
    let waits = pool.stats().stream_waits;
    drop((on_b, on_a));
    assert_eq!(vrampool::Memory::address(&*lease(&a).memory()), address, "not the oldest, which is b's");
    assert_eq!(pool.stats().stream_waits, waits + 1);
}

/// A stream that was recorded is behind nothing for that: a region of it waits for the writer as for any
/// stream.
#[test]
fn a_recorded_stream_that_reads_waits_for_the_writer() {
    for source in sources() {
        let device = device();
        let [a, b] = streams(&device);
        let pool = Pool::builder(&device).source(source).limit(1 << 20).build().expect("a pool");
        let mut buffer = pool.allocate(1024, &a).expect("memory");
        let open = close_gate(&a);
        device.fill(&a, buffer.on_mut(&a).expect("a region"), 7).expect("queued");
        buffer.record_stream(&b).expect("no fault");
        assert_eq!(pool.stats().stream_waits, 0, "{source}");
        let result = result_memory(&device, 1024);
        device.copy(&b, buffer.on(&b).expect("a region"), RegionMut::whole(&result, &b)).expect("queued");
        assert_eq!(pool.stats().stream_waits, 1, "{source}");
        buffer.record_stream(&b).expect("no fault");
        assert!(buffer.on(&b).is_ok() && pool.stats().stream_waits == 1, "{source}: it is behind it by now");
        drop(open);
        assert_eq!(contents(&device, &b, &result), [7; 1024], "{source}");
    }
}

/// A compaction makes another stream the one that wrote a block last.
#[test]
fn its_own_stream_that_is_recorded_after_a_compaction_is_waited_for() {
    let device = device();
    let [own, mover, next] = streams(&device);
    let arena = DeviceArena::builder(&device).limit(8192).build().expect("an arena");
    let pool = Pool::builder(&device).source(Source::Arena).arena(&arena).max_cached_bytes(0);
    let pool = pool.build().expect("a pool");
    let [hole, buffer] = [(); 2].map(|()| pool.allocate(4096, &own).expect("memory"));
    drop(hole);
    assert_eq!(pool.compact(u64::MAX, &mover, |_| {}).expect("no fault").moved_blocks, 1);
    // The program's own order, and its own use, which it records in the pool.
    device.wait(&own, &device.record(&mover).expect("an event")).expect("queued");
    buffer.record_stream(&own).expect("no fault");
    let _not_done = close_gate(&own);
    drop(buffer);
    let _other = arena.allocate(8192, &next).expect("all of it");
    let after = device.record(&next).expect("an event");
    for _ in 0..10_000 {
        assert_eq!(after.is_complete(), Ok(false), "the next user waits for the recorded stream");
        std::thread::yield_now();
    }
}

/// Every reader sees the last write and no writer overtakes a reader, whichever streams they are on.
#[test]
fn reads_follow_writes_and_writes_follow_reads_across_streams() {
    for source in sources() {
        let device = device();
        let [a, b, c] = streams(&device);
        let pool = Pool::builder(&device).source(source).limit(1 << 20).build().expect("a pool");
        let mut buffer = pool.allocate(1024, &a).expect("memory");
        let mut results = Vec::new();
        let gates = [&a, &b, &c].map(close_gate);
        for (value, (writer, reader)) in
            (1u8..).zip([(&b, &c), (&a, &b), (&a, &b), (&c, &a), (&b, &b), (&a, &c)])
        {
            device.fill(writer, buffer.on_mut(writer).expect("a region"), value).expect("queued");
            for stream in [reader, writer] {
                let result = result_memory(&device, 1024);
                device
                    .copy(stream, buffer.on(stream).expect("a region"), RegionMut::whole(&result, stream))
                    .expect("queued");
                results.push((result, stream, value));
            }
        }
        drop(gates);
        for (result, stream, value) in results {
            assert_eq!(contents(&device, stream, &result), [value; 1024], "{source}");
        }
        assert_eq!(device.inner().races(), 0);
    }
}

#[test]
fn a_region_is_refused_on_another_stream() {
    let device = device();
    let [a, b] = streams(&device);
    let pool = Pool::builder(&device).build().expect("a pool");
    let mut buffer = pool.allocate(1024, &a).expect("memory");
    let error = device.fill(&b, buffer.on_mut(&a).expect("a region"), 0).expect_err("another stream");
    assert!(error.to_string().contains("make it with the stream that uses it"), "{error}");
}

#[test]
fn a_stream_of_another_device_is_refused() {
    let (device, other) = (device(), device());
    let [mine] = streams(&device);
    let [foreign] = streams(&other);
    let pool = Pool::builder(&device).build().expect("a pool");
    let error = pool.allocate(1, &foreign).expect_err("another device's");
    assert!(
        matches!(error, Error::WrongDevice(wrong) if wrong.pool == device.id() && wrong.given == other.id())
    );
    let mut buffer = pool.allocate(1, &mine).expect("memory");
    assert!(matches!(buffer.on(&foreign), Err(Error::WrongDevice { .. })));
    assert!(matches!(buffer.on_mut(&foreign), Err(Error::WrongDevice { .. })));
    assert!(matches!(buffer.used_on(&foreign), Err(Error::WrongDevice { .. })));
    assert!(matches!(buffer.record_stream(&foreign), Err(Error::WrongDevice { .. })));
    assert_eq!(
        (pool.stats().failed.invalid, pool.stats().served.by_bucket, pool.stats().source.allocations),
        (1, 0, 1)
    );
}

#[test]
fn a_stream_may_be_dropped_before_its_buffers() {
    let device = device();
    let [kept] = streams(&device);
    // No room for another block.
    let pool = Pool::builder(&device).limit(64 * 1024).build().expect("a pool");
    let result = result_memory(&device, 64 * 1024);
    {
        let [dropped] = streams(&device);
        let mut buffer = pool.allocate(64 * 1024, &dropped).expect("memory");
        device.fill(&dropped, buffer.on_mut(&dropped).expect("a region"), 5).expect("queued");
        device
            .copy(&dropped, buffer.on(&dropped).expect("a region"), RegionMut::whole(&result, &dropped))
            .expect("queued");
    }
    let mut buffer = pool.allocate(64 * 1024, &kept).expect("memory");
    device.fill(&kept, buffer.on_mut(&kept).expect("a region"), 6).expect("queued");
    assert_eq!(
        contents(&device, &kept, &result),
        [5; 64 * 1024],
        "reuse waited for the stream that was dropped"
    );
}

/// A compaction's copy is pending. The pool reuses the moved block on its stream, and the caller takes its
/// address: work that uses the address runs after the copy.
#[test]
fn a_hit_after_a_compaction_is_behind_its_copy() {
    const BYTES: u64 = 4096;
    let device = HostDevice::new();
    let (own, mover) = (device.create_stream().expect("a stream"), device.create_stream().expect("a stream"));
    let arena = DeviceArena::builder(&device).limit(1 << 20).build().expect("an arena");
    let pool = Pool::builder(&device).source(Source::Arena).arena(&arena).build().expect("a pool");
    let hole = arena.allocate(16 * BYTES, &own).expect("memory");
    let mut buffer = pool.allocate(BYTES, &own).expect("memory");
    buffer.write(&[1; BYTES as usize], &own).expect("no fault");
    let before = buffer.address();
    drop(buffer);
    drop(hole);
    let (go, signal) = channel::<()>();
    let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| _ = signal.recv();
    mover.launch([], [], kernel).expect("queued");
    let report = arena.compact(u64::MAX, &mover, |_| {}).expect("no fault");
    assert_eq!(report.moved_blocks, 1, "it is idle");
    let buffer = pool.allocate(BYTES, &own).expect("memory");
    assert_eq!(pool.stats().served.by_bucket, 1);
    let place = buffer.address().expect("the host has addresses");
    assert_ne!(Some(place), before);
    {
        // An access by address alone: the pool gets no request for an order.
        let memory = buffer.memory();
        let start = vrampool::Memory::address(&*memory).expect("the host has addresses");
        let region = RegionMut::new(&*memory, place - start, BYTES, &own).expect("inside");
        device.fill(&own, region, 2).expect("queued");
        drop(go);
        device.synchronize(&own).expect("no fault");
        device.synchronize(&mover).expect("no fault");
    }
    let mut bytes = vec![0; BYTES as usize];
    buffer.read(&mut bytes, &own).expect("no fault");
    assert!(bytes.iter().all(|&byte| byte == 2), "the copy came later: {}", bytes[0]);
}
