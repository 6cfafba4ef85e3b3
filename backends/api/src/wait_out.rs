//! A wait for a stream that the device may refuse.

use crate::{Backend, BackendError, Event};
use std::time::Duration;

/// Sleep between two polls.
const NAP: Duration = Duration::from_micros(200);

/// Waits until the work of a stream is complete, also if the device refuses to wait.
///
/// # Errors
/// [`BackendError`] if the device is lost, a wait is forbidden, or the work cannot be polled either.
pub fn wait_out<B: Backend>(device: &B, stream: &B::Stream) -> Result<(), BackendError> {
    match device.synchronize(stream) {
        Err(error) if !error.is_would_block() && !error.is_device_lost() => {
            let complete = device.record(stream)?;
            while !complete.is_complete()? {
                std::thread::sleep(NAP);
            }
            Ok(())
        }
        waited => waited,
    }
}
