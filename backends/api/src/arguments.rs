//! Checks of arguments that every backend makes.

use crate::{BackendError, DeviceId, Memory, Region, Stream, fork};
use std::any::type_name;

pub use crate::memory::check_range;

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

/// Checks that an allocation has at least 1 byte, and at most `most`.
///
/// # Errors
/// [`BackendError::InvalidArgument`], which names the most.
pub fn check_size(bytes: u64, most: u64) -> Result<(), BackendError> {
    match bytes {
        0 => Err(BackendError::invalid("bytes", "an allocation has at least 1")),
        _ if bytes <= most => Ok(()),
        _ => Err(BackendError::invalid(
            "bytes",
            format!("{bytes} are more than the {most} that one allocation of this device may have"),
        )),
    }
}

/// Checks the place of a mapping, or with offset 0 the size of a reservation or of physical memory.
///
/// # Errors
/// [`BackendError::InvalidArgument`] if one is not a multiple of the granularity, or there are no bytes.
pub fn check_granularity(offset: u64, bytes: u64, granularity: u64) -> Result<(), BackendError> {
    if !offset.is_multiple_of(granularity) {
        let reason = format!("{offset} is not a multiple of the granularity, {granularity}");
        return Err(BackendError::invalid("offset", reason));
    }
    if bytes == 0 || !bytes.is_multiple_of(granularity) {
        let reason = format!("{bytes} is 0, or not a multiple of the granularity, {granularity}");
        return Err(BackendError::invalid("bytes", reason));
    }
    Ok(())
}

/// Returns the number of `T`s in a region whose `start` must be a multiple of `alignment`.
///
/// # Errors
/// [`BackendError::InvalidArgument`] if it is not a whole number of them, or not aligned; if a `T` has no size.
pub fn elements<T, M: Memory>(
    region: &Region<'_, M>,
    start: u64,
    alignment: u64,
) -> Result<usize, BackendError> {
    let size = size_of::<T>() as u64;
    let count = region.len().checked_div(size).and_then(|count| usize::try_from(count).ok());
    match count {
        Some(count) if region.len().is_multiple_of(size) && start.is_multiple_of(alignment) => Ok(count),
        _ => Err(BackendError::invalid(
            "region",
            format!(
                "{} bytes at offset {} are not a whole number of aligned {}",
                region.len(),
                region.offset(),
                type_name::<T>()
            ),
        )),
    }
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
