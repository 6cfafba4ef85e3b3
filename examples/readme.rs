//! The example of the front page.

use vrampool::{Backend, Pool, host::HostDevice};

fn main() -> Result<(), vrampool::Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).max_cached_bytes(1 << 30).max_buffers_per_bucket(32).build()?;
    for step in 0..100u8 {
        let mut activations = pool.allocate(40_000, &stream)?; // from the second step on a hit
        activations.write(&[step; 40_000], &stream)?; // in order on the stream, and later
    } // dropped: back in its bucket
    println!("hit rate {:.2}, {} bytes idle", pool.stats().hit_rate(), pool.stats().idle_bytes);
    Ok(())
}
