//! As `hit_path`, of a device that is chosen at run time. In a file of its own, because functions that both use
//! would be put out of line.

use vrampool::any::{self, AnyDevice, AnyStream};
use vrampool::{Backend, Buffer, Error, Pool};

/// Out of this thread's magazine.
#[inline(never)]
pub fn take(pool: &Pool<AnyDevice>, bytes: u64, stream: &AnyStream) -> Result<Buffer<AnyDevice>, Error> {
    pool.allocate(bytes, stream)
}

/// Back into it.
#[inline(never)]
pub fn put(buffer: Buffer<AnyDevice>) {
    drop(buffer);
}

fn main() -> Result<(), Error> {
    let device = any::open("auto")?;
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).build()?;
    for _ in 0..1000 {
        put(take(&pool, 4096, &stream)?);
    }
    println!("hit rate {}", pool.stats().hit_rate());
    Ok(())
}
