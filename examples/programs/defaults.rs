//! A pool with defaults.
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    let (stream, pool) = (device.create_stream()?, Pool::new(&device)?);
    drop(pool.allocate(40_000, &stream)?);
    assert_eq!(pool.stats().idle_bytes, 65_536);
    Ok(())
}
