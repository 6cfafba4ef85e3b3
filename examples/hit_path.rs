//! The two halves of a hit, each a function of its own, for a look at their instructions
//! (`tests/hit_path.sh`).

use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Error, Pool};

/// Out of this thread's magazine.
#[inline(never)]
pub fn take(pool: &Pool<HostDevice>, bytes: u64, stream: &HostStream) -> Result<Buffer<HostDevice>, Error> {
    pool.allocate(bytes, stream)
}

/// Back into it.
#[inline(never)]
pub fn put(buffer: Buffer<HostDevice>) {
    drop(buffer);
}

fn main() -> Result<(), Error> {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let root = Pool::builder(&device).build()?;
    // With an argument, of a child.
    let pool = if std::env::args().len() > 1 { root.child("child").build()? } else { root };
    for _ in 0..1000 {
        put(take(&pool, 4096, &stream)?);
    }
    println!("hit rate {}", pool.stats().hit_rate());
    Ok(())
}
