//! Code for any device, and a device that is chosen at run time.
use vrampool::{Backend, Error, Pool, any};
fn zeros<B: Backend>(pool: &Pool<B>, count: u64) -> Result<Vec<u64>, Error> {
    let stream = pool.device().create_stream()?;
    let mut buffer = pool.allocate_elements::<u64>(count, &stream)?;
    buffer.fill(0, &stream)?;
    buffer.read_vec(&stream)
}
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::new(&any::open("host")?)?;
    assert_eq!(zeros(&pool, 3)?, [0; 3]);
    Ok(())
}
