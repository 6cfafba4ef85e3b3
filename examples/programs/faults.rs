//! An injected out-of-memory fault, and recovery from it.
use vrampool::host::{BackendError, Call, HostDevice};
use vrampool::prelude::*;
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    let (stream, pool) = (device.create_stream()?, Pool::new(&device)?);
    device.faults().fail_all(Call::Allocate, BackendError::out_of_memory(1 << 20, Some(0)));
    assert!(pool.allocate(300 << 20, &stream).is_err_and(|error| error.is_out_of_memory()));
    device.faults().clear();
    assert!(pool.allocate(300 << 20, &stream).is_ok());
    Ok(())
}
