//! TestSingleDeviceMemoryPool, TestMemoryPool.

use crate::{UNIT, address, device, used};
use vrampool::host::{DeviceKind, HostDevice, HostStream};
use vrampool::{Backend, Error, Pool, SizeClasses, Source};
use vrampool_test_support::close_gate;

/// Exact sizes, kept without a cap, each an allocation of the device's.
fn pool(device: &HostDevice) -> Pool<HostDevice> {
    let builder = Pool::builder(device).size_classes(SizeClasses::Exact(UNIT)).max_cached_bytes(None);
    builder.build().expect("a pool")
}

/// Exact sizes of one range, whose free blocks merge: what is freed goes back to the range.
fn range(device: &HostDevice, bytes: u64) -> Pool<HostDevice> {
    let builder = Pool::builder(device).size_classes(SizeClasses::Exact(UNIT)).source(Source::Arena);
    builder.limit(bytes).max_cached_bytes(0).build().expect("a pool")
}

fn one(pool: &Pool<HostDevice>, units: u64, stream: &HostStream) -> vrampool::Buffer<HostDevice> {
    pool.allocate(units * UNIT, stream).expect("memory")
}

#[test]
fn test_round_size() {
    let classes = SizeClasses::Exact(UNIT);
    assert_eq!(classes.round(UNIT - 1), Some(UNIT));
    assert_eq!(classes.round(UNIT), Some(UNIT));
    assert_eq!(classes.round(UNIT + 1), Some(UNIT * 2));
}

#[test]
fn test_split_and_test_alloc_split() {
    let (device, stream) = device();
    let pool = range(&device, 4 * UNIT);
    let whole = one(&pool, 4, &stream);
    let start = address(&whole, &stream);
    drop(whole);
    let (head, tail) = (one(&pool, 2, &stream), one(&pool, 2, &stream));
    assert_eq!((address(&head, &stream), address(&tail, &stream)), (start, start + 2 * UNIT));
}

#[test]
fn test_merge_and_test_free_merge() {
    let (device, stream) = device();
    let pool = range(&device, 4 * UNIT);
    for head_first in [true, false] {
        let (head, tail) = (one(&pool, 2, &stream), one(&pool, 2, &stream));
        let start = address(&head, &stream);
        let (first, second) = if head_first { (head, tail) } else { (tail, head) };
        drop(first);
        drop(second);
        assert_eq!(address(&one(&pool, 4, &stream), &stream), start, "head first: {head_first}");
    }
}

#[test]
fn test_alloc() {
    let (device, stream) = device();
    let pool = pool(&device);
    let buffers = [1, 1, 1].map(|units| one(&pool, units, &stream));
    let [a, b, c] = buffers.each_ref().map(|buffer| address(buffer, &stream));
    assert!(a != b && b != c && c != a);
}

#[test]
fn test_alloc_limit() {
    let (device, stream) = device();
    let builder = Pool::builder(&device).size_classes(SizeClasses::Exact(UNIT)).limit(6 * UNIT);
    let pool = builder.build().expect("a pool");
    let kept = (one(&pool, 5, &stream), one(&pool, 1, &stream));
    let error = pool.allocate(UNIT, &stream).expect_err("it is full");
    let Error::OutOfMemory(error) = error else { panic!("{error}") };
    assert_eq!((error.requested_bytes, error.live_bytes, error.held_bytes), (UNIT, 6 * UNIT, 6 * UNIT));
    drop(kept);
    one(&pool, 1, &stream);
}

/// cupy#7678: freed blocks of another size counted against the limit.
#[test]
fn test_alloc_limit_fragmented() {
    let (device, stream) = device();
    let builder = Pool::builder(&device).size_classes(SizeClasses::Exact(UNIT)).limit(6 * UNIT);
    let pool = builder.build().expect("a pool");
    drop(one(&pool, 5, &stream));
    drop(one(&pool, 6, &stream));
    assert_eq!(pool.stats().held_bytes, 6 * UNIT);
}

#[test]
fn test_free_and_test_free_different_size() {
    let (device, stream) = device();
    let pool = pool(&device);
    let first = one(&pool, 4, &stream);
    let start = address(&first, &stream);
    drop(first);
    let other = one(&pool, 2, &stream);
    assert_ne!(address(&other, &stream), start, "another size has another bucket");
    assert_eq!(address(&one(&pool, 4, &stream), &stream), start);
}

/// CuPy gives the other stream other memory. Here it gets the same, behind a wait.
#[test]
fn test_free_stream() {
    let (device, stream) = device();
    let pool = pool(&device);
    let other = device.create_stream().expect("a stream");
    let first = one(&pool, 4, &stream);
    let start = address(&first, &stream);
    drop(first);
    assert_eq!(address(&one(&pool, 4, &other), &other), start);
    let _busy = close_gate(&other);
    assert_ne!(address(&one(&pool, 4, &stream), &stream), start, "the stream that used it is busy now");
    assert_eq!(pool.stats().stream_waits, 0);
}

#[test]
fn test_free_all_blocks() {
    let (device, stream) = device();
    let pool = pool(&device);
    drop(one(&pool, 4, &stream));
    assert_eq!((pool.stats().held_bytes, pool.trim().expect("a trim")), (4 * UNIT, 4 * UNIT));
    assert_eq!(pool.stats().held_bytes, 0);
    drop(one(&pool, 4, &stream));
    assert_eq!(pool.stats().source.allocations, 2);
}

#[test]
fn test_free_all_blocks_split() {
    let (device, stream) = device();
    let pool = range(&device, 4 * UNIT);
    drop(one(&pool, 4, &stream));
    let (head, tail) = (one(&pool, 2, &stream), one(&pool, 2, &stream));
    drop(tail);
    pool.trim().expect("a trim");
    // A sibling is live, and what is left of the block serves all the same.
    assert_ne!(address(&one(&pool, 2, &stream), &stream), address(&head, &stream));
    assert!(pool.allocate(4 * UNIT, &stream).is_err());
}

#[test]
fn test_used_bytes_and_test_free_bytes_and_test_total_bytes() {
    let (device, stream) = device();
    let pool = pool(&device);
    let figures = || {
        let stats = pool.stats();
        assert_eq!(stats.live_bytes + stats.idle_bytes, stats.held_bytes);
        (stats.live_bytes / UNIT, stats.idle_bytes / UNIT, stats.held_bytes / UNIT)
    };
    assert_eq!(figures(), (0, 0, 0));
    let first = one(&pool, 2, &stream);
    assert_eq!(figures(), (2, 0, 2));
    let second = one(&pool, 4, &stream);
    assert_eq!(figures(), (6, 0, 6));
    drop(second);
    assert_eq!(figures(), (2, 4, 6));
    drop(first);
    assert_eq!(figures(), (0, 6, 6));
    let third = one(&pool, 2, &stream);
    assert_eq!(figures(), (2, 4, 6));
    drop(third);
    pool.trim().expect("a trim");
    assert_eq!(figures(), (0, 0, 0));
}

#[test]
fn test_get_limit_and_test_set_limit_fraction() {
    let device = HostDevice::builder().memory_limit(1 << 30).kind(DeviceKind::Discrete).build();
    assert_eq!(pool(&device).stats().caps.limit_bytes, None);
    let limited = Pool::builder(&device).limit(1024).build().expect("a pool");
    assert_eq!(limited.stats().caps.limit_bytes, Some(1024));
}

#[test]
fn test_zero_size_alloc() {
    let (device, stream) = device();
    let pool = pool(&device);
    let nothing = pool.allocate(0, &stream).expect("0 bytes are allowed");
    assert_eq!((nothing.len(), nothing.is_empty()), (0, true));
    drop(nothing);
    assert_eq!(used(&pool), 0);
}

#[test]
fn test_free_all_blocks_without_malloc() {
    let (device, _) = device();
    assert_eq!(pool(&device).trim().expect("a trim"), 0);
}
