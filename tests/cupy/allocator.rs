//! TestAllocator, TestMallocAsync, TestExceptionPicklable.

use crate::{UNIT, address, device};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, Source, Stream};
use vrampool_test_support::close_gate;

fn pool(device: &HostDevice) -> Pool<HostDevice> {
    Pool::builder(device).build().expect("a pool")
}

/// One thread's memory serves the next one on the same stream, with no wait.
#[test]
fn test_reuse_between_thread_same_stream() {
    let (device, stream) = device();
    let pool = pool(&device);
    let place = || {
        let buffer = pool.allocate(UNIT, &stream).expect("memory");
        address(&buffer, &stream)
    };
    let first = std::thread::scope(|scope| scope.spawn(place).join().expect("no panic"));
    assert_eq!(place(), first);
    assert_eq!(pool.stats().stream_waits, 0);
}

/// CuPy gives different memory. Here it is the same, behind a wait.
#[test]
fn test_reuse_between_thread_different_stream() {
    let (device, stream) = device();
    let pool = pool(&device);
    let place = |stream: &_| {
        let buffer = pool.allocate(UNIT, stream).expect("memory");
        address(&buffer, stream)
    };
    let first = std::thread::scope(|scope| scope.spawn(|| place(&stream)).join().expect("no panic"));
    let other = device.create_stream().expect("a stream");
    assert_eq!(place(&other), first);
    let _busy = close_gate(&other);
    assert_ne!(place(&stream), first, "the stream that used it is busy now");
    assert_eq!(pool.stats().stream_waits, 0);
}

#[test]
fn test_stream_is_recorded_and_destroyed_before_memory() {
    let (device, keeper) = device();
    for &source in Source::ALL {
        let pool = Pool::builder(&device).source(source).limit(1 << 20).build().expect("a pool");
        let stream = device.create_stream().expect("a stream");
        let mut buffer = pool.allocate(UNIT, &stream).expect("memory");
        assert_eq!(buffer.stream().id(), stream.id());
        buffer.write(&[7], &stream).expect("a copy");
        drop(stream);
        let mut bytes = [0];
        buffer.read(&mut bytes, &keeper).expect("a copy");
        assert_eq!(bytes, [7]);
        drop(buffer);
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().held_bytes, 0, "{source}");
    }
}

#[test]
fn test_free_on_same_and_on_other_stream() {
    let (device, stream) = device();
    let other = device.create_stream().expect("a stream");
    for &source in Source::ALL {
        let builder = Pool::builder(&device).source(source).limit(1 << 20);
        let pool = builder.max_cached_bytes(0).build().expect("a pool");
        for user in [&stream, &other] {
            let mut buffer = pool.allocate(UNIT, &stream).expect("memory");
            buffer.write(&[1], user).expect("a copy");
            drop(buffer);
        }
        assert_eq!(pool.stats().held_bytes, 0, "{source}");
    }
}

/// The contents of CuPy's exception survive being sent elsewhere.
#[test]
fn test_picklable() {
    let (device, stream) = device();
    let pool = Pool::builder(&device).limit(UNIT).build().expect("a pool");
    let error = pool.allocate(4 * UNIT, &stream).expect_err("it is over the limit");
    let copy = std::thread::scope(|scope| {
        let error = error.clone();
        scope.spawn(move || error).join().expect("no panic")
    });
    assert_eq!(copy.to_string(), error.to_string());
    assert!(copy.is_out_of_memory() && copy.to_string().contains("raise `limit`"), "{copy}");
}
