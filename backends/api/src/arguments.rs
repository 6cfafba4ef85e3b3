//! Checks of arguments that every backend makes.

use crate::{BackendError, DeviceId, Memory, Region, Stream, fork};

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

/// Checks the regions of one call: each was made for `stream`, its memory satisfies `is_own`, and no written
/// region overlaps another one.
///
/// # Errors
/// [`BackendError::InvalidArgument`]; [`BackendError::Forked`].
pub fn check_regions<'r, 'm: 'r, M: Memory + 'm>(
    stream: &impl Stream,
    reads: impl Iterator<Item = &'r Region<'m, M>> + Clone,
    mut writes: impl Iterator<Item = &'r Region<'m, M>> + Clone,
    is_own: impl Fn(&M) -> bool,
) -> Result<(), BackendError> {
    fork::check()?;
    for region in reads.clone().chain(writes.clone()) {
        region.check_stream(stream)?;
        if !is_own(region.memory()) {
            return Err(BackendError::invalid("region", "its memory is another device's"));
        }
    }
    while let Some(written) = writes.next() {
        if reads.clone().chain(writes.clone()).any(|other| written.overlaps(other)) {
            return Err(BackendError::invalid(
                "region",
                "a written range overlaps another one of the same call",
            ));
        }
    }
    Ok(())
}
