//! Two halves of one buffer, each written by its own call.
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    let (stream, pool) = (device.create_stream()?, Pool::new(&device)?);
    let mut buffer = pool.allocate(2000, &stream)?;
    let (first, second) = buffer.on_mut(&stream)?.split_at(1000)?;
    device.fill(&stream, first, 1)?;
    device.fill(&stream, second, 2)?;
    assert_eq!(buffer.read_vec::<u8>(&stream)?[999..1001], [1, 2]);
    Ok(())
}
