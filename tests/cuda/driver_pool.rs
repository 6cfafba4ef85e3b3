//! A pool over the driver's own: in the order of streams, and nothing of others' touched.

use crate::MIB;
use vrampool::cuda::{CudaDevice, CudaStream, DriverPool, PoolHandle};
use vrampool::{Backend, Placement, Pool, Source};
use vrampool_test_support::{require, streams};

#[test]
fn a_miss_is_the_drivers_and_what_is_trimmed_is_free_again() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let [stream]: [CudaStream; 1] = streams(&device);
    let pool = Pool::builder(&device).source(Source::Driver).build().expect("a pool");
    let drivers = DriverPool::new(&device, PoolHandle::Current).expect("a pool");
    // Other tests use the driver's pool too.
    let mut buffer = pool.allocate(96 * MIB, &stream).expect("memory");
    assert!(drivers.used_bytes().expect("figures") >= buffer.capacity());
    buffer.write(&[3; 100], &stream).expect("a copy");
    let mut bytes = [0; 100];
    buffer.read(&mut bytes, &stream).expect("a copy");
    assert_eq!(bytes, [3; 100]);
    let class = buffer.capacity();
    drop(buffer);
    assert_eq!((pool.trim().expect("a trim"), pool.stats().held_bytes), (class, 0));
    device.synchronize(&stream).expect("no fault");
    let stats = pool.stats();
    assert_eq!((stats.source.kind, stats.source.allocations, stats.source.frees), (Source::Driver, 1, 1));
}

/// The driver has no pool of pinned or managed memory.
#[test]
fn other_kinds_come_from_the_device() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let [stream]: [CudaStream; 1] = streams(&device);
    let pool = Pool::builder(&device).source(Source::Driver).build().expect("a pool");
    for placement in [Placement::HostVisible, Placement::Managed] {
        let mut buffer = pool.allocate_kind(4096, placement, &stream).expect("memory");
        assert_eq!(buffer.memory().kind().placement, placement);
        buffer.write(&[1], &stream).expect("a copy");
    }
    pool.trim().expect("a trim");
    assert_eq!(pool.stats().held_bytes, 0);
}
