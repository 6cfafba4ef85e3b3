//! Steps of a training loop: the second step allocates nothing from the device.
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    let (stream, pool) = (device.create_stream()?, Pool::new(&device)?);
    for _ in 0..10 {
        let mut activations = pool.allocate_elements::<f32>(300_000, &stream)?;
        let mut gradients = pool.allocate(activations.len(), &stream)?;
        activations.fill(0, &stream)?;
        gradients.copy_from(&activations, &stream)?;
    }
    assert!(pool.stats().hit_rate() > 0.8);
    Ok(())
}
