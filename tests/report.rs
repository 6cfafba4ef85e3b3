//! A hook that panics as a pool reports leaves no memory behind.

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
