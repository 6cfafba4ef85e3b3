//! Numbers to the device and back.
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    let (stream, pool) = (device.create_stream()?, Pool::new(&device)?);
    let buffer = pool.upload(&[1.0f32, 2.0, 3.0], &stream)?;
    assert_eq!(buffer.read_vec::<f32>(&stream)?, [1.0, 2.0, 3.0]);
    Ok(())
}
