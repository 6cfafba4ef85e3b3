//! TestPinnedMemoryPool.

use crate::{UNIT, address, device, used};
use vrampool::host::HostDevice;
use vrampool::{Placement, Pool};

fn pool(device: &HostDevice) -> Pool<HostDevice> {
    Pool::builder(device).pinned().build().expect("a pool")
}

#[test]
fn test_alloc() {
    let (device, stream) = device();
    let pool = pool(&device);
    let [a, b] = [(); 2].map(|()| pool.allocate(4 * UNIT, &stream).expect("memory"));
    assert_ne!(address(&a, &stream), address(&b, &stream));
    assert_eq!((a.kind().placement, a.capacity()), (Placement::HostVisible, 4 * UNIT));
}

#[test]
fn test_free_and_test_free_different_size() {
    let (device, stream) = device();
    let pool = pool(&device);
    let first = pool.allocate(4 * UNIT, &stream).expect("memory");
    let place = address(&first, &stream);
    drop(first);
    let other = pool.allocate(2 * UNIT, &stream).expect("memory");
    assert_ne!(address(&other, &stream), place);
    assert_eq!(address(&pool.allocate(4 * UNIT, &stream).expect("memory"), &stream), place);
}

#[test]
fn test_free_all_blocks_and_test_free_all_blocks2() {
    let (device, stream) = device();
    let pool = pool(&device);
    drop([1, 2, 4].map(|units| pool.allocate(units * UNIT, &stream).expect("memory")));
    assert_eq!(pool.trim().expect("a trim"), 7 * UNIT);
    assert_eq!((pool.trim().expect("a trim"), pool.stats().held_bytes), (0, 0));
    drop(pool.allocate(UNIT, &stream).expect("memory"));
    assert_eq!(pool.stats().source.allocations, 4);
}

#[test]
fn test_zero_size_alloc() {
    let (device, stream) = device();
    let pool = pool(&device);
    assert!(pool.allocate(0, &stream).expect("0 bytes are allowed").is_empty());
    assert_eq!(used(&pool), 0);
}

/// cupy#7742: 10 GiB of pinned memory took 16.
#[test]
fn pinned_memory_is_at_most_an_eighth_larger_than_its_request() {
    let device = HostDevice::builder().memory_limit(1 << 40).build();
    let stream = vrampool::Backend::create_stream(&device).expect("a stream");
    let pool = pool(&device);
    for bytes in [UNIT, 3 * UNIT + 1, (1 << 20) + 1, (4 << 30) + 1, 10 << 30] {
        let buffer = pool.allocate(bytes, &stream).expect("memory");
        assert!(buffer.capacity() <= bytes + bytes / 8 + 1, "{} bytes of {bytes}", buffer.capacity());
    }
}
