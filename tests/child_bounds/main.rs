//! A child's limit holds at every instant, and its share of the pool's limit is there whenever it asks.

mod arena;
mod errors;
mod graphs;
mod interference;
mod private_arena;
mod sources;
mod tenants;
mod threads;
mod twin;
mod waits;

use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Pool};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

const KIB: u64 = 1024;

fn device() -> Device {
    AuditDevice::new(HostDevice::builder().memory_limit(1 << 40).build())
}

fn device_and_stream() -> (Device, HostStream) {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

/// Forks. In the child each call of the pools and of the buffers that `take` returns is refused, and what it drops
/// stays.
#[cfg(target_os = "linux")]
fn fork(pools: &[&Pool<Device>], stream: &HostStream, take: impl FnOnce() -> Vec<Buffer<Device>>) {
    use std::time::Duration;
    use vrampool_test_support::{assert_forked, end_at_once, in_child_that_ends};
    let act = || {
        for pool in pools {
            assert_forked(pool.allocate(KIB, stream));
            assert_forked(pool.allocate_timeout(128 * KIB, stream, Duration::MAX));
            assert_forked(pool.allocate_zeroed(KIB, stream));
            assert_forked(pool.child("forked").share(KIB).build());
            assert_forked(pool.set_share(1));
            assert_forked(pool.set_limit(1));
            assert_forked(pool.used_on(stream));
            assert_forked(pool.synchronize_freed(stream));
            assert_forked(pool.compact(None, stream, |_| {}));
            assert_forked(pool.decay());
            assert_forked(pool.trim());
            pool.set_max_cached_bytes(0);
            pool.set_max_buffers_per_bucket(0);
            pool.reset_peaks();
            assert_eq!((pool.stats().live_bytes, pool.own_stats().idle_bytes, pool.share()), (0, 0, 0));
            assert_eq!((pool.waiting_requests(), pool.is_closed()), (0, false));
            pool.close();
        }
        for mut buffer in take() {
            assert_forked(buffer.on(stream).map(drop));
            assert_forked(buffer.on_mut(stream).map(drop));
            assert_forked(buffer.used_on(stream));
            assert_forked(buffer.record_stream(stream));
            assert_forked(buffer.fill(1, stream));
        }
    };
    in_child_that_ends(act, end_at_once);
}
