//! A hook that panics as a pool reports leaves no memory behind, and statistics are JSON with the names of their
//! fields.

use vrampool::hooks::{Holder, Hook};
use vrampool::host::HostDevice;
use vrampool::{Backend, Error, Pool};
use vrampool_test_support as _;

/// Counts holders by a panic.
#[derive(Debug)]
struct Panics;

impl Hook for Panics {
    fn name(&self) -> &str {
        "panics"
    }

    fn holders(&self) -> Vec<Holder> {
        panic!("no holders")
    }
}

#[test]
fn a_hook_that_panics_leaves_no_pool_open() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let free = device.memory_info()?.free_bytes;
    let pool = Pool::builder(&device).hook(Panics).build()?;
    let outlives = pool.allocate(1000, &stream)?;
    drop(pool.allocate(1 << 20, &stream)?);
    assert!(pool.report().holders.is_empty());
    drop(pool);
    drop(outlives);
    assert_eq!(device.memory_info()?.free_bytes, free);
    Ok(())
}

#[cfg(feature = "serde")]
#[test]
fn statistics_are_json() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(1 << 20).build()?;
    drop(pool.allocate(1000, &stream)?);
    assert!(pool.allocate(2 << 20, &stream).is_err());
    let (stats, json) = (pool.stats(), serde_json::to_value(pool.stats()).expect("JSON"));
    assert_eq!(json["source_allocations"], stats.source.allocations);
    assert_eq!(json["limit_bytes"], 1 << 20);
    assert_eq!(json["source_kind"], "direct");
    assert_eq!(json["rung_fail"], stats.rungs.fail);
    assert_eq!(json["buckets"][0]["class"], 1024);
    // Every figure that is printed.
    let fields = format!("{stats:?}").matches(": ").count();
    assert!(json.as_object().is_some_and(|all| all.len() > 30 && all.len() <= fields), "{json}");
    Ok(())
}
