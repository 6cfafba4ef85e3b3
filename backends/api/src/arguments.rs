//! Checks of arguments that every backend makes.

use crate::{BackendError, DeviceId, Stream};

/// Checks that `stream` belongs to `device`.
///
/// # Errors
/// [`BackendError::InvalidArgument`], which names the stream's device.
pub fn check_stream(stream: &impl Stream, device: DeviceId) -> Result<(), BackendError> {
    if stream.device() == device {
        return Ok(());
    }
    Err(BackendError::invalid("stream", format!("it is one of device {}", stream.device())))
}

/// Checks that a copy's source and destination have the same length, bytes.
///
/// # Errors
/// [`BackendError::InvalidArgument`], which names both lengths.
pub fn same_length(source: u64, destination: u64) -> Result<(), BackendError> {
    if source == destination {
        return Ok(());
    }
    Err(BackendError::invalid("length", format!("{source} bytes cannot be copied to {destination}")))
}
