//! TestMemoryAsyncPool, TestParseMempoolLimitEnvVar, and what its users complain of.

use crate::UNIT;
use vrampool::backend::Scarce;
use vrampool::cuda::{CudaDevice, CudaStream, DriverPool, PoolHandle};
use vrampool::{Amount, Backend, BackendError, Memory};
use vrampool_test_support::require;

const MIB: u64 = 1 << 20;

fn setup() -> Option<(CudaDevice, DriverPool, CudaStream)> {
    let device = require("cuda", || CudaDevice::open(0))?;
    let pool = DriverPool::new(&device, PoolHandle::Created).expect("a pool");
    let stream = device.create_stream().expect("a stream");
    Some((device, pool, stream))
}

#[test]
fn test_parse_mempool_limit_env_var() {
    for (text, limit) in [
        ("0", Amount::Bytes(0)),
        ("1073741824", Amount::Bytes(1 << 30)),
        ("0%", Amount::Percent(0.0)),
        ("40%", Amount::Percent(40.0)),
        ("70.5%", Amount::Percent(70.5)),
        ("100%", Amount::Percent(100.0)),
    ] {
        assert_eq!(text.parse(), Ok(limit), "{text}");
    }
    for text in ["", "%", "-1", "1GBs", "101%", "-1%", "nan%", "0x10"] {
        let error = text.parse::<Amount>().expect_err(text).to_string();
        assert!(error.contains("25%"), "{error}");
    }
}

#[test]
fn test_zero_size_alloc() {
    let Some((_, pool, stream)) = setup() else { return };
    let before = pool.used_bytes().expect("figures");
    let nothing = pool.allocate_on(0, &stream).expect("0 bytes are allowed");
    assert_eq!((nothing.len(), nothing.address()), (0, Some(0)));
    assert_eq!(pool.used_bytes(), Ok(before));
}

#[test]
fn test_alloc_and_rounding() {
    let Some((_, pool, stream)) = setup() else { return };
    let memories = [100, UNIT, UNIT + 1].map(|bytes| pool.allocate_on(bytes, &stream).expect("memory"));
    assert_eq!(memories.each_ref().map(Memory::len), [100, UNIT, UNIT + 1]);
    assert_eq!((pool.used_bytes(), pool.live_bytes()), (Ok(4 * UNIT), 4 * UNIT));
    let [a, b, c] = memories.each_ref().map(Memory::address);
    assert!(a != b && b != c && c != a);
}

#[test]
fn test_free_all_blocks_and_total_bytes2() {
    let Some((_, pool, stream)) = setup() else { return };
    pool.set_release_threshold(u64::MAX).expect("a threshold");
    drop(pool.allocate_on(64 * MIB, &stream).expect("memory"));
    let total = pool.total_bytes().expect("figures");
    assert!(total >= 64 * MIB, "the driver keeps it: {total}");
    pool.free_all_blocks(&stream).expect("a trim");
    assert_eq!(pool.total_bytes(), Ok(0));
    drop(pool.allocate_on(64 * MIB, &stream).expect("memory"));
    assert_eq!(pool.total_bytes(), Ok(total));
}

#[test]
fn test_used_bytes2_and_free_bytes2() {
    let Some((device, pool, stream)) = setup() else { return };
    pool.set_release_threshold(u64::MAX).expect("a threshold");
    let first = pool.allocate_on(2 * UNIT, &stream).expect("memory");
    let total = pool.total_bytes().expect("figures");
    let used = |units: u64| {
        device.synchronize(&stream).expect("no fault");
        assert_eq!(pool.used_bytes(), Ok(units * UNIT));
        assert_eq!(pool.free_bytes(), Ok(total - units * UNIT));
        assert_eq!(pool.total_bytes(), Ok(total));
    };
    used(2);
    let second = pool.allocate_on(4 * UNIT, &stream).expect("memory");
    used(6);
    drop(second);
    used(2);
    drop(first);
    used(0);
    let third = pool.allocate_on(UNIT, &stream).expect("memory");
    used(1);
    drop(third);
    used(0);
}

#[test]
fn test_get_limit_and_test_set_limit() {
    let Some((device, pool, stream)) = setup() else { return };
    assert_eq!(pool.limit(), None);
    let total = device.memory_info().expect("memory info").total_bytes;
    for (limit, bytes) in [
        (Amount::Bytes(1024), Some(1024)),
        (Amount::Bytes(0), None),
        (Amount::Unlimited, None),
        (Amount::Percent(50.0), Some(total / 2)),
        (Amount::Percent(0.0), None),
        (Amount::Percent(100.0), Some(total)),
    ] {
        pool.set_limit(limit).expect("a limit");
        assert_eq!(pool.limit(), bytes, "{limit:?}");
    }
    for share in [-0.1, 100.1, f64::NAN] {
        let refused = pool.set_limit(Amount::Percent(share));
        assert!(matches!(refused, Err(BackendError::InvalidArgument { .. })), "{refused:?}");
    }
    assert_eq!(pool.limit(), Some(total), "what is refused changes nothing");
    drop(pool.allocate_on(UNIT, &stream).expect("memory"));
}

/// cupy#5177: a limit of 1 KiB let the first 32 MiB pass.
#[test]
fn a_limit_is_hard_and_is_not_the_release_threshold() {
    let Some((_, pool, stream)) = setup() else { return };
    pool.set_limit(Amount::Bytes(6 * UNIT)).expect("a limit");
    let kept = [5, 1].map(|units| pool.allocate_on(units * UNIT, &stream).expect("memory"));
    let error = pool.allocate_on(1, &stream).expect_err("it is full");
    assert!(error.is_out_of_memory(), "{error}");
    let Some(Scarce::Limit { of, limit_bytes, charged_bytes, .. }) = error.scarce() else {
        panic!("{error}")
    };
    assert_eq!((&**of, *limit_bytes, *charged_bytes), ("driver pool", 6 * UNIT, 6 * UNIT));
    assert_eq!(pool.release_threshold(), Ok(0));
    drop(kept);
    drop(pool.allocate_on(6 * UNIT, &stream).expect("all of it is free again"));
    assert!(pool.allocate_on(u64::MAX, &stream).expect_err("too much").is_out_of_memory());
}

/// cupy#5191: what other libraries set stays.
#[test]
fn making_a_pool_changes_nothing_for_others() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let current = DriverPool::new(&device, PoolHandle::Current).expect("a pool");
    let before = current.release_threshold();
    for handle in [PoolHandle::Default, PoolHandle::Current, PoolHandle::Created] {
        let pool = DriverPool::new(&device, handle).expect("a pool");
        pool.set_limit(Amount::Bytes(MIB)).expect("a limit");
    }
    assert_eq!(current.release_threshold(), before);
    assert_eq!(DriverPool::new(&device, PoolHandle::Current).expect("a pool").limit(), None);
}

#[test]
fn test_interaction_with_external_pool() {
    let Some((device, created, stream)) = setup() else { return };
    let handle = created.raw_handle();
    // SAFETY: `created` lives until the end of this test.
    let external = unsafe { DriverPool::external(&device, handle) }.expect("a pool");
    let memory = external.allocate_on(UNIT, &stream).expect("memory");
    assert_eq!((created.used_bytes(), created.live_bytes(), external.live_bytes()), (Ok(UNIT), 0, UNIT));
    drop(memory);
}

/// Memory outlives its pool's last handle, and its stream's owner.
#[test]
fn test_stream_destroyed_before_memory() {
    let Some((device, pool, stream)) = setup() else { return };
    let (kept, retired) = (pool.allocate_on(MIB, &stream), pool.allocate_on(MIB, &stream));
    drop(pool);
    stream.retire().expect("its work is done");
    drop(retired.expect("memory"));
    drop(stream);
    drop(kept.expect("memory"));
    device.synchronize(&device.null_stream().expect("a stream")).expect("no fault");
}
