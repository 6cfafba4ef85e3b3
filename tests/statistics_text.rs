//! Statistics as text: a line each, with names and units of its figures.

use vrampool::arena::{Compaction, DeviceArena};
use vrampool::host::HostDevice;
use vrampool::{Amount, Backend, Error, Pool, PoolStats};
use vrampool_test_support as _;

#[test]
fn a_pools_statistics_are_one_line_or_one_for_each_class() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(1 << 20).build()?;
    drop(pool.allocate(1000, &stream)?);
    let _live = pool.allocate(1000, &stream)?;
    assert!(pool.allocate(2 << 20, &stream).is_err());
    let stats = pool.stats();
    let line = "hit rate 0.50, bucket hit rate 0.50 (served by buckets 1, arena 0, driver 1), live 1.0 KiB in 1 buffers (requested 1000 B), idle 0 B, \
                held 1.0 KiB, reserved 1.0 KiB (source direct), limit 1.0 MiB, failed 1, invalid 0";
    assert_eq!(stats.to_string(), line);
    let bucket = "class 1.0 KiB: hits 1, misses 1, idle 0 B in 0 buffers";
    assert_eq!(stats.buckets[0].to_string(), bucket);
    assert_eq!(format!("{stats:#}").lines().nth(1), Some(format!("    {bucket}").as_str()));
    let unlimited = Pool::new(&device)?.stats().to_string();
    assert!(unlimited.contains("no limit"), "{unlimited}");
    Ok(())
}

#[test]
fn all_other_statistics_are_a_line() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let arena = DeviceArena::builder(&device).limit(1 << 20).build()?;
    let compacted =
        arena.compact(1 << 20, &stream, |moved| assert!(moved.to_string().contains("from offset")))?;
    assert_eq!(compacted, Compaction::default());
    assert_eq!(compacted.to_string(), "moved 0 B in 0 blocks, held in place 0 blocks");

    let info = device.memory_info()?;
    assert_eq!(info.to_string(), format!("{} of {} bytes free", info.free_bytes, info.total_bytes));
    assert!(!PoolStats::default().to_string().contains('\n'));
    Ok(())
}

#[test]
fn texts_of_a_bound_are_read_as_they_are_written() {
    for overlap in [Amount::Unlimited, Amount::Bytes(0), Amount::Bytes(3 << 40), Amount::Percent(25.0)] {
        assert_eq!(overlap.to_string().parse::<Amount>().expect("its own text"), overlap);
    }
    for text in ["", "%", "-1%", "much", "12 parsecs"] {
        assert!(text.parse::<Amount>().is_err(), "{text}");
    }
}

#[test]
fn statistics_in_the_wrong_order_are_no_panic() {
    let mut later = PoolStats::default();
    (later.served.by_bucket, later.served.by_driver, later.live_bytes) = (3, 1, 7);
    let since = |stats: &PoolStats, earlier: &PoolStats| stats.served.since(&earlier.served).hit_rate();
    assert_eq!(since(&PoolStats::default(), &later), 0.0);
    assert_eq!(since(&later, &PoolStats::default()), 0.75);
    assert_eq!(later.in_transit_bytes, 0);
}
