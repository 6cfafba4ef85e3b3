//! netcl's acceptance cases a1 to a16 (its `PersistentBufferPool`, versions 0.2.0 and 0.4.4), as they hold
//! here. Tests elsewhere are about these:
//!
//! * a3, a4, a8, a10 and a16, caps, the order of evictions, borrowed classes and trims: the twins of `tests/caps`.
//! * a5 and a6, a buffer comes back once: `tests/streams`, and the same twins.
//! * a12, memory is not freed under work that uses it: `devices/order.rs`, without a cache.
//!
//! a1 and the golden vectors are with the size classes, a2 with the environment,
//! a13 with the broker's stager.

use vrampool::host::{Call, DeviceKind, HostDevice};
use vrampool::{Backend, BackendError, Buffer, MemoryKind, Placement, Pool, SizeClasses, Usage};
use vrampool_test_support::AuditDevice;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

type Stream = <HostDevice as Backend>::Stream;

fn device() -> (HostDevice, Stream) {
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

fn buffers<B: Backend>(pool: &Pool<B>, count: usize, bytes: u64, stream: &B::Stream) -> Vec<Buffer<B>> {
    (0..count).map(|_| pool.allocate(bytes, stream).expect("memory")).collect()
}

#[test]
fn a7_the_hit_rate_is_0_when_nothing_was_asked() {
    let (device, _) = device();
    let stats = Pool::builder(&device).build().expect("a pool").stats();
    assert_eq!((stats.hit_rate(), stats.internal_fragmentation()), (0.0, 0.0));
}

#[test]
fn a9_out_of_memory_trims_and_tries_again_and_then_explains() {
    let (device, stream) = device();
    device.set_memory_limit(10 * MIB);
    let pool = Pool::builder(&device).size_classes(SizeClasses::Multiple(MIB)).build().expect("a pool");
    drop((buffers(&pool, 4, MIB, &stream), buffers(&pool, 2, 2 * MIB, &stream)));
    assert_eq!(pool.stats().idle_bytes, 8 * MIB);
    // 2 MiB are free; the class asked for longest ago gives enough.
    let live = buffers(&pool, 1, 5 * MIB, &stream);
    let stats = pool.stats();
    assert_eq!((stats.rungs.trim, stats.failed.by_device), (1, 0));
    assert!(stats.idle_bytes >= 2 * MIB, "no more was released than requested: {stats:?}");
    // Now nothing helps; all idle memory went on the way.
    let error = pool.allocate(6 * MIB, &stream).expect_err("the device is full");
    assert!(error.is_out_of_memory() && !error.is_device_lost());
    assert!(error.to_string().contains("the device is out of memory"), "{error}");
    assert!(
        error.to_string().contains("6291456 bytes were requested")
            && error.to_string().contains("5.0 MiB are free"),
        "the device's own figures: {error}"
    );
    let stats = pool.stats();
    assert_eq!((stats.idle_bytes, stats.live_bytes, stats.held_bytes), (0, 5 * MIB, 5 * MIB));
    assert_eq!((stats.failed.by_device, stats.rungs.fail), (1, 1));
    drop(live);
    assert!(pool.allocate(6 * MIB, &stream).is_ok(), "nothing was lost");
}

#[test]
fn a9_a_second_refusal_is_not_hidden_and_another_error_is_not_retried() {
    let (device, stream) = device();
    let pool = Pool::builder(&device).build().expect("a pool");
    let out_of_memory = || BackendError::out_of_memory(KIB, None);
    device.faults().fail_nth_with(Call::Allocate, 1, out_of_memory());
    assert!(pool.allocate(1, &stream).is_ok(), "one refusal is tried again");
    device.faults().fail_nth_with(Call::Allocate, 1, out_of_memory());
    device.faults().fail_nth_with(Call::Allocate, 2, out_of_memory());
    let live = buffers(&pool, 1, 1, &stream);
    assert!(pool.allocate(1, &stream).expect_err("two refusals").is_out_of_memory());
    drop(live);
    device.faults().clear();
    device.faults().fail_nth(Call::Allocate, 1);
    let calls = device.faults().calls(Call::Allocate);
    assert!(!pool.allocate(MIB, &stream).expect_err("a driver error").is_out_of_memory());
    assert_eq!(device.faults().calls(Call::Allocate), calls + 1);
    assert_eq!(pool.stats().failed.by_backend, 1);
}

#[test]
fn a11_a_destructor_may_call_the_pool() {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    for limit in [u64::MAX, 4 * KIB] {
        let pool = Pool::builder(&device).max_cached_bytes(2 * KIB).limit(limit).build().expect("a pool");
        let (again, on) = (pool.clone(), stream.clone());
        device.on_drop(move || {
            // Memory of the pool was freed just now, by this thread, within a call of the pool.
            let _ = again.stats();
            drop(again.allocate(500, &on));
            drop(again.allocate(4 * KIB, &on));
            again.trim_to(KIB).expect("a trim");
        });
        drop(buffers(&pool, 4, 1000, &stream));
        pool.trim().expect("a trim");
        drop(buffers(&pool, 1, 2000, &stream));
        device.forget_hook();
        pool.trim().expect("a trim");
        let stats = pool.stats();
        assert_eq!((stats.held_bytes, stats.live_bytes, device.taken()), (0, 0, 0));
    }
}

#[test]
fn a14_a_device_that_shares_the_hosts_memory_gets_host_visible_buffers() {
    for (kind, placement) in [
        (DeviceKind::Cpu, Placement::HostVisible),
        (DeviceKind::Integrated, Placement::HostVisible),
        (DeviceKind::Discrete, Placement::Device),
    ] {
        let device = HostDevice::builder().kind(kind).memory_limit(8 << 30).build();
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).build().expect("a pool");
        let buffer = pool.allocate(1, &stream).expect("memory");
        assert_eq!(buffer.kind().placement, placement);
        assert_eq!(buffer.memory().kind().placement, placement, "the device was asked for it");
        // netcl's run: int(8 GiB × 0.85) on a discrete device, no budget elsewhere.
        let budget = if kind == DeviceKind::Discrete { 7_301_444_403 } else { u64::MAX };
        assert_eq!(pool.stats().caps.budget_bytes.unwrap_or(u64::MAX), budget);
        assert_eq!(pool.stats().caps.max_cached_bytes, Some(4 << 30));
    }
}

#[test]
fn a15_placement_and_usage_are_part_of_the_key() {
    let (device, stream) = device();
    let pool = Pool::builder(&device).build().expect("a pool");
    let kinds = [
        MemoryKind::new(Placement::Device).with_usage(Usage(0)),
        MemoryKind::new(Placement::Device).with_usage(Usage(1)),
        MemoryKind::new(Placement::HostVisible).with_usage(Usage(0)),
        MemoryKind::new(Placement::Managed).with_usage(Usage(0)),
    ];
    for (n, &kind) in (0..).zip(&kinds) {
        let buffer = pool.allocate_kind(1000, kind, &stream).expect("memory");
        assert_eq!((buffer.kind(), buffer.memory().kind()), (kind, kind));
        drop(buffer);
        assert_eq!((pool.stats().served.by_bucket, pool.stats().source.allocations), (0, n + 1));
    }
    for &kind in &kinds {
        let buffer = pool.allocate_kind(10, kind, &stream).expect("memory");
        assert_eq!(
            (buffer.kind(), buffer.len()),
            (kind, 10),
            "a buffer has the size that its borrower asked for"
        );
    }
    assert_eq!(pool.stats().served.by_bucket, 4);
}

#[test]
fn one_pool_for_each_device_and_no_dead_device_is_kept_alive() {
    let (device, stream) = device();
    let (other, _) = self::device();
    let pool = Pool::shared(&device).expect("a pool");
    let again = Pool::shared(&device.clone()).expect("a pool");
    drop(buffers(&pool, 1, 1000, &stream));
    assert_eq!(again.stats().idle_bytes, KIB, "the same pool");
    assert_eq!(
        Pool::shared(&other).expect("a pool").stats().source.allocations,
        0,
        "another device's is another"
    );
    drop((pool, again));
    let (free, total) = (device.memory_info().expect("info").free_bytes, 1 << 30);
    assert_eq!(free, total, "the last handle took the idle memory with it");
    assert_eq!(Pool::shared(&device).expect("a pool").stats().source.allocations, 0, "a new pool");
}

#[test]
fn the_presets_are_netcls_other_pools() {
    let (device, stream) = device();
    let unbounded = Pool::builder(&device).unbounded().build().expect("a pool");
    drop(buffers(&unbounded, 100, 1025, &stream));
    let stats = unbounded.stats();
    assert_eq!((stats.idle_bytes, stats.buckets[0].class), (100 * 2048, 2048));
    let pinned = Pool::builder(&device).pinned().build().expect("a pool");
    let buffer = pinned.allocate(3000, &stream).expect("memory");
    // netcl's are powers of two, which double 4 GiB + 1.
    assert_eq!((buffer.capacity(), buffer.memory().kind().placement), (3072, Placement::HostVisible));
}

#[test]
fn recycled_bytes_are_as_they_were_and_zeroed_ones_are_zero() {
    let (device, stream) = device();
    let pool = Pool::builder(&device).build().expect("a pool");
    let mut buffer = pool.allocate(1000, &stream).expect("memory");
    buffer.write(&[9; 1000], &stream).expect("queued");
    drop(buffer);
    let mut bytes = [0; 1000];
    pool.allocate(1000, &stream).expect("memory").read(&mut bytes, &stream).expect("done");
    assert_eq!(bytes, [9; 1000]);
    pool.allocate_zeroed(1000, &stream).expect("memory").read(&mut bytes, &stream).expect("done");
    assert_eq!(bytes, [0; 1000]);
    device.faults().fail_nth(Call::Fill, 1);
    assert!(pool.allocate_zeroed(1000, &stream).is_err());
    let stats = pool.stats();
    assert_eq!(
        (stats.live_bytes, stats.failed.by_backend),
        (0, 1),
        "a buffer that could not be cleared is not lost"
    );
}

#[test]
fn a_buffer_may_outlive_its_pool() {
    let device = AuditDevice::new(HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).build().expect("a pool");
    let mut live = buffers(&pool, 3, 1000, &stream);
    drop(live.pop());
    assert_eq!(device.taken(), 3 * KIB);
    let clone = pool.clone();
    drop(pool);
    assert_eq!(device.taken(), 3 * KIB, "a clone keeps the cache");
    drop(clone);
    assert_eq!(device.taken(), 2 * KIB, "the last handle releases idle memory");
    live[0].write(&[1, 2, 3], &stream).expect("it is still a buffer");
    let mut bytes = [0; 3];
    live[0].read(&mut bytes, &stream).expect("it is still a buffer");
    assert_eq!(bytes, [1, 2, 3]);
    drop(live);
    assert_eq!((device.taken(), device.allocations(), device.frees()), (0, 3, 3));
}
