//! Each failure is counted once, by its cause, with its time; and a lost device is reported while requests hit.
#![cfg(feature = "host")]

use std::thread;
use std::time::Duration;
use vrampool::figures::{FigureValue, Group};
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, Error, Pool, PoolStats, SizeClasses, Source};
use vrampool_test_support::{has_virtual_memory, until};

const MIB: u64 = 1 << 20;

/// The reasons that have a count, with it.
fn reasons(stats: &PoolStats) -> Vec<(&'static str, u64)> {
    let counted = stats.failed.figures().into_iter().filter_map(|(figure, value)| match value {
        FigureValue::Number(count) if count > 0 => Some((figure.short, count)),
        _ => None,
    });
    let timed = stats.last_failure.figures().into_iter();
    let timed: Vec<_> =
        timed.filter(|(_, value)| *value != FigureValue::Number(0)).map(|(figure, _)| figure.short).collect();
    let counted: Vec<_> = counted.collect();
    assert_eq!(counted.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), timed, "each has its time");
    counted
}

#[test]
fn a_failure_counts_once_by_its_cause() -> Result<(), Error> {
    let device = HostDevice::builder().memory_limit(16 * MIB).build();
    let stream = device.create_stream()?;
    let foreign = HostDevice::new().create_stream()?;
    let exact = || Pool::builder(&device).size_classes(SizeClasses::EXACT);

    let pool = exact().limit(2 * MIB).build()?;
    let live = pool.allocate(2 * MIB, &stream)?;
    assert!(pool.allocate(1, &stream).is_err());
    assert_eq!(reasons(&pool.stats()), [("limit", 1)]);
    assert!(pool.allocate(3 * MIB, &stream).is_err());
    assert!(pool.allocate_timeout(3 * MIB, &stream, Duration::MAX).is_err());
    assert!(pool.allocate_timeout(1, &stream, Duration::from_millis(1)).is_err());
    assert_eq!(reasons(&pool.stats()), [("limit", 1), ("request", 2), ("timeout", 1)]);
    assert!(pool.allocate(1, &foreign).is_err());
    pool.close();
    assert!(pool.allocate(1, &stream).is_err());
    let all = [("limit", 1), ("request", 2), ("timeout", 1), ("closed", 1), ("invalid", 1)];
    assert_eq!((reasons(&pool.stats()), pool.stats().failed.total()), (all.to_vec(), 6));
    drop((live, pool));

    let pool = exact().build()?;
    let live = pool.allocate(12 * MIB, &stream)?;
    assert!(pool.allocate(8 * MIB, &stream).is_err());
    assert_eq!(reasons(&pool.stats()), [("device", 1)]);
    device.faults().fail_nth(Call::Allocate, 1);
    assert!(pool.allocate(MIB, &stream).is_err());
    assert_eq!(reasons(&pool.stats()), [("device", 1), ("backend", 1)]);
    assert_eq!((pool.stats().device_errors.allocate, pool.stats().device_errors.total()), (1, 1));
    drop((live, pool));

    // Half is free, in holes; then all of it is live.
    let pool = exact().source(Source::Arena).limit(8 * MIB).addresses_stay(true).build()?;
    let mut live = (0..8).map(|_| pool.allocate(MIB, &stream)).collect::<Result<Vec<_>, _>>()?;
    live = live.into_iter().skip(1).step_by(2).collect();
    pool.trim()?;
    let stats = pool.stats().virtual_memory;
    assert_eq!((stats.arena_free_bytes, stats.arena_largest_free_bytes), (4 * MIB, MIB));
    assert!(pool.allocate(4 * MIB, &stream).is_err());
    assert_eq!(reasons(&pool.stats()), [("fragmentation", 1)]);
    drop((live, pool));
    Ok(())
}

#[test]
fn a_virtual_source_joins_what_is_free() -> Result<(), Error> {
    let device = HostDevice::new();
    if !has_virtual_memory(&device) {
        return Ok(());
    }
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).source(Source::Virtual).limit(64 * MIB).build()?;
    let live = [pool.allocate(8 * MIB, &stream)?, pool.allocate(8 * MIB, &stream)?];
    drop(pool.allocate(8 * MIB, &stream)?);
    let stats = pool.stats();
    let free = stats.virtual_memory.arena_free_bytes;
    assert_eq!(
        (free, stats.virtual_memory.arena_largest_free_bytes),
        (stats.reserved_bytes - 16 * MIB, free)
    );
    drop(live);
    Ok(())
}

/// Requests hit, so none fails; what fails are the calls that reach the device.
#[test]
fn errors_of_the_device_are_counted_by_call_while_requests_hit() -> Result<(), Error> {
    let device = HostDevice::new();
    let (stream, other) = (device.create_stream()?, device.create_stream()?);
    let pool = Pool::new(&device)?;
    let (idle, mut buffer) = (pool.allocate(1000, &stream)?, pool.allocate(1000, &stream)?);
    drop(idle);
    let wrong = [0; 2000];
    assert!(buffer.write(&wrong, &stream).is_err(), "the caller's fault, not the device's");
    assert_eq!(pool.stats().device_errors.total(), 0);
    device.faults().lose_device();
    for _ in 0..3 {
        drop(pool.allocate(5000, &stream));
        assert!(buffer.write(&[1], &stream).is_err() && buffer.read(&mut [0], &stream).is_err());
    }
    let errors = pool.stats().device_errors;
    assert_eq!(errors.copy, 6, "{errors:?}");
    assert!(buffer.on(&other).is_err());
    assert_eq!(pool.stats().device_errors.order, errors.order + 1);
    drop(pool.allocate(1000, &stream)?);
    Ok(())
}

#[test]
fn requests_that_wait_are_figures() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(MIB).size_classes(SizeClasses::EXACT).build()?;
    let live = pool.allocate(MIB, &stream)?;
    let waiting = |stats: &PoolStats| (stats.waiting_requests, stats.waiting_bytes);
    assert_eq!(waiting(&pool.stats()), (0, 0));
    thread::scope(|scope| {
        let waits = [MIB / 2, MIB / 4].map(|bytes| {
            let before = pool.waiting_requests();
            let (pool, stream) = (&pool, &stream);
            let thread = scope.spawn(move || pool.allocate_timeout(bytes, stream, Duration::MAX).map(drop));
            until(|| pool.waiting_requests() != before);
            thread
        });
        // Between two attempts a request is queued without bytes for a moment.
        until(|| waiting(&pool.stats()) == (2, 3 * MIB / 4));
        let (first, then) = (pool.stats().oldest_wait, pool.stats().oldest_wait);
        assert!(first > Duration::ZERO && then > first, "{first:?} {then:?}");
        assert_eq!(pool.stats().waits.count(), 0, "those that wait are not over");
        drop(live);
        waits.into_iter().try_for_each(|thread| thread.join().expect("no panic"))?;
        let stats = pool.stats();
        assert_eq!((waiting(&stats), stats.oldest_wait, stats.waits.count()), ((0, 0), Duration::ZERO, 2));
        assert!(stats.waits.sum >= then, "{:?}", stats.waits);
        assert_eq!(stats.served.total(), 3, "each request counts once");
        Ok(())
    })
}
