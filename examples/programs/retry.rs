//! Workers that share few slots, and wait for one another's memory.
use std::{thread, time::Duration};
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    let (stream, pool) = (device.create_stream()?, Pool::builder(&device).limit(1 << 20).build()?);
    let work = || pool.allocate_timeout(256 << 10, &stream, Duration::from_secs(60)).map(drop);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..16).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    pool.close(); // requests that still wait fail
    Ok(())
}
