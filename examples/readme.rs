//! The example of the front page.

use vrampool::{Backend, Pool, host::HostDevice};

fn main() -> Result<(), vrampool::Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).max_cached_bytes(1 << 30).max_buffers_per_bucket(32).build()?;
    for step in 0..100u8 {
        let mut activations = pool.allocate(40_000, &stream)?; // a hit from the second step on: no call of the device
        activations.write(&[step; 40_000], &stream)?; // queued on the stream
    } // dropped: idle, for the next step
    println!("{}, {} bytes idle", pool.stats().served, pool.stats().idle_bytes);
    Ok(())
}
