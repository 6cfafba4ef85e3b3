//! TestPinnedMemoryPool.

use crate::UNIT;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};

/// cupy#7742: 10 GiB of pinned memory took 16.
#[test]
fn pinned_memory_is_at_most_an_eighth_larger_than_its_request() {
    let device = HostDevice::builder().memory_limit(1 << 40).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).pinned().build().expect("a pool");
    for bytes in [UNIT, 3 * UNIT + 1, (1 << 20) + 1, (4 << 30) + 1, 10 << 30] {
        let buffer = pool.allocate(bytes, &stream).expect("memory");
        assert!(buffer.capacity() <= bytes + bytes / 8 + 1, "{} bytes of {bytes}", buffer.capacity());
    }
}
