//! Limits are compared with the request, and not with the size class that it rounds up to.

use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Error, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_test_support as _;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn scene(max_allocation: u64) -> (HostDevice, HostStream) {
    let device = HostDevice::builder().memory_limit(8 * GIB).max_allocation(max_allocation).build();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}

fn pool(builder: PoolBuilder<HostDevice>) -> Pool<HostDevice> {
    builder.build().expect("a pool")
}

/// Allocates `bytes` twice, one after the other, and expects a hit of at most `largest` bytes.
fn serves(pool: &Pool<HostDevice>, bytes: u64, largest: u64, stream: &HostStream) {
    let before = pool.stats();
    for _ in 0..2 {
        let buffer = pool.allocate(bytes, stream).unwrap_or_else(|error| panic!("{bytes}: {error}"));
        assert!((bytes..=largest).contains(&buffer.capacity()), "{} for {bytes}", buffer.capacity());
        assert!(pool.stats().held_bytes <= largest.max(before.held_bytes));
    }
    // A virtual pool keeps less than this idle; its arena serves it again.
    let is_kept = pool.source() != Source::Virtual;
    assert_eq!(pool.stats().served.by_bucket, before.served.by_bucket + u64::from(is_kept), "{bytes}");
    pool.trim().expect("a trim");
}

#[test]
fn a_class_is_clamped_to_what_the_device_allocates() {
    for (max, sizes) in [
        // Such as wgpu's devices: a few bytes less than a class.
        (2 * GIB - 4, [GIB, GIB + 1, 2 * GIB - 513, 2 * GIB - 4]),
        (300 * MIB, [256 * MIB, 256 * MIB + 1, 257 * MIB, 300 * MIB]),
        // Smaller than the largest class of magazines.
        (300 << 10, [70 << 10, 256 << 10, (256 << 10) + 1, 300 << 10]),
        (1000, [1, 999, 1000, 500]),
    ] {
        let (device, stream) = scene(max);
        for classes in
            [SizeClasses::Fixed, SizeClasses::PowerOfTwo, SizeClasses::GEOMETRIC, SizeClasses::Tight]
        {
            let pool = pool(Pool::builder(&device).size_classes(classes));
            for bytes in sizes {
                serves(&pool, bytes, max, &stream);
            }
            let error = pool.allocate(max + 1, &stream).expect_err("more than the device allocates");
            assert!(matches!(error, Error::TooLarge { .. }), "{error}");
        }
    }
}

#[test]
fn a_class_is_clamped_to_the_limit() {
    let (device, stream) = scene(8 * GIB);
    for source in [Source::Direct, Source::Arena, Source::Virtual] {
        let pool =
            pool(Pool::builder(&device).source(source).size_classes(SizeClasses::Fixed).limit(700 * MIB));
        for bytes in [257 * MIB, 589 * MIB, 700 * MIB] {
            serves(&pool, bytes, 700 * MIB, &stream);
        }
        let error = pool.allocate(700 * MIB + 1, &stream).expect_err("more than the limit");
        assert!(error.out_of_memory().is_some(), "{error}");
    }
    for limit in [100 << 10, 3000, 900] {
        serves(&pool(Pool::builder(&device).limit(limit)), limit, limit, &stream);
    }
    // Also after the limit changed.
    let pool = pool(Pool::builder(&device));
    for limit in [600 * MIB, 5_000_000, 600 * MIB] {
        pool.set_limit(limit).expect("set");
        serves(&pool, limit, limit, &stream);
        serves(&pool, limit - limit / 8, limit, &stream);
        assert!(pool.allocate(limit + 1, &stream).expect_err("over it").is_out_of_memory());
    }
    pool.set_limit(0).expect("set");
    for bytes in [0, 1] {
        assert!(pool.allocate(bytes, &stream).expect_err("none").is_out_of_memory());
    }
}

/// The loop of examples/out_of_memory.rs.
#[test]
fn a_loop_that_halves_a_batch_ends_at_what_the_device_allocates() {
    let (device, stream) = scene(300 * MIB);
    let pool = pool(Pool::builder(&device));
    let mut batch = 4 * GIB;
    let buffer = loop {
        match pool.allocate(batch, &stream) {
            Ok(buffer) => break buffer,
            Err(error) if error.is_out_of_memory() && batch > 1 => batch /= 2,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(buffer.len(), 256 * MIB);
}
