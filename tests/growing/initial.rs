//! Memory that is mapped when a pool or an arena is made.

use super::PAGE;
use vrampool::arena::DeviceArena;
use vrampool::host::{Call, HostDevice};
use vrampool::{Amount, Backend, Error, Pool, SizeClasses, Source};
use vrampool_test_support::AuditDevice;

const MEMORY: u64 = 1 << 24;

fn device() -> AuditDevice<HostDevice> {
    AuditDevice::new(HostDevice::builder().memory_limit(MEMORY).granularity(PAGE).build())
}

#[test]
fn the_first_requests_of_a_pool_with_initial_memory_make_no_driver_calls() {
    for (initial, bytes) in [(Amount::Bytes(64 * PAGE), 64 * PAGE), (Amount::Percent(25.0), MEMORY / 4)] {
        let device = device();
        let stream = device.create_stream().expect("a stream");
        let builder =
            Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Multiple(PAGE));
        let pool = builder.initial(initial).magazine_bytes(0).build().expect("a pool");
        let calls = device.inner().faults().calls(Call::Map);
        assert_eq!((device.taken(), pool.stats().reserved_bytes), (bytes, bytes));
        let live: Vec<_> = (1..10).map(|n| pool.allocate(n * PAGE, &stream).expect("memory")).collect();
        assert_eq!(device.inner().faults().calls(Call::Map), calls);
        drop(live);
        pool.trim().expect("no fault");
        assert_eq!(device.taken(), 0, "it is released like other memory");
    }
}

#[test]
fn initial_memory_is_mapped_whole_or_not_at_all() {
    let device = device();
    let build = |bytes| {
        DeviceArena::builder(&device)
            .growing()
            .limit(64 * PAGE)
            .piece_bytes(8 * PAGE)
            .initial_bytes(bytes)
            .build()
    };
    assert_eq!(build(64 * PAGE).expect("an arena").reserved_bytes(), 64 * PAGE);
    for bytes in [64 * PAGE + 1, MEMORY + 1, u64::MAX] {
        let error = build(bytes).expect_err("it is over the limit");
        assert!(error.is_out_of_memory(), "{error}");
    }
    for (call, calls) in [(Call::CreatePhysical, 5), (Call::Map, 5), (Call::SetAccess, 1)] {
        for nth in 1..=calls {
            device.inner().faults().fail_nth(call, nth);
            build(63 * PAGE).expect_err("a fault");
            assert_eq!(device.taken(), 0, "{call:?} {nth}");
        }
    }
}

#[test]
fn initial_memory_needs_an_arena_that_grows_and_is_the_pools() {
    let device = device();
    let initial = |builder: vrampool::PoolBuilder<_>| builder.initial(Amount::Bytes(PAGE)).build();
    let arena = DeviceArena::builder(&device).growing().build().expect("an arena");
    for builder in [
        Pool::builder(&device),
        Pool::builder(&device).source(Source::Arena).limit(64 * PAGE),
        Pool::builder(&device).arena(&arena),
    ] {
        let error = initial(builder).expect_err("it has no use");
        assert!(
            matches!(&error, Error::Configuration { .. }) && error.to_string().contains("initial"),
            "{error}"
        );
    }
}
