//! Work on two streams: the pool inserts the waits.
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    let pool = Pool::new(&device)?;
    let (copy, compute) = (device.create_stream()?, device.create_stream()?);
    let batch = pool.upload(&[7u32; 1000], &copy)?;
    let mut result = pool.allocate(batch.len(), &compute)?;
    result.copy_from(&batch, &compute)?; // behind the upload
    drop(batch); // the next borrower waits for the copy
    assert_eq!(result.read_vec::<u32>(&copy)?, [7; 1000]);
    Ok(())
}
