//! Allocation in the order of a stream, from the driver's own pools.

use crate::driver::{Allocation, Context, RawDevice, RawPool};
use crate::shared::DeviceCore;
use crate::stream_core::StreamCore;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::sync::Arc;
use vrampool_backend::BackendError;

/// Memory of the device's current pool.
pub(crate) fn allocate_current(
    device: &DeviceCore,
    bytes: u64,
    stream: &Arc<StreamCore>,
) -> Result<Allocation, BackendError> {
    let raw = RawPool::current_of(&device.context, device_number(device)?)?;
    allocate(&raw, bytes, stream)
}

/// Asks; while the device is out of memory, waits for ever more work to end, releases what that frees, and
/// asks again.
pub(crate) fn allocate(
    raw: &RawPool,
    bytes: u64,
    stream: &Arc<StreamCore>,
) -> Result<Allocation, BackendError> {
    let context = raw.context();
    let mut answer = context.allocate_from(raw, bytes, stream);
    for everything in [false, true] {
        if !matches!(answer, Err(BackendError::OutOfMemory { .. })) {
            break;
        }
        // A captured stream cannot be waited for, and its graph would fail.
        if context.enter()?.is_capturing(stream.queue())? || relieve(raw, stream, everything).is_err() {
            break;
        }
        answer = context.allocate_from(raw, bytes, stream);
        if answer.is_err() {
            // On its way to a refusal the driver takes all that the device has, and keeps it.
            let _ = raw.trim_to(0);
        }
    }
    answer
}

fn relieve(raw: &RawPool, stream: &StreamCore, everything: bool) -> Result<(), BackendError> {
    let context: &Context = raw.context();
    match everything {
        true => context.enter()?.synchronize_all()?,
        false => context.enter()?.synchronize(stream.queue())?,
    }
    raw.trim_to(0)
}

/// The driver's number of a device that has pools.
pub(crate) fn device_number(device: &DeviceCore) -> Result<i32, BackendError> {
    let raw = RawDevice::at(device.context.library(), device.listed.ordinal)?;
    if raw.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
        return Err(BackendError::unsupported("allocating in the order of a stream"));
    }
    Ok(raw.handle())
}
