//! Available devices.

use crate::driver::{BACKEND, Library, RawDevice};
use opencl_sys as cl;
use vrampool_backend::{BackendError, DeviceKind, DeviceListing, fork};

/// Every device of every platform. Reading the list opens no device.
///
/// # Errors
/// [`BackendError::Unavailable`] without a library, a platform or a device; else errors of the driver.
pub fn list() -> Result<Vec<DeviceListing>, BackendError> {
    fork::check()?;
    RawDevice::all(Library::get()?)?
        .iter()
        .enumerate()
        .map(|(ordinal, device)| describe(ordinal, device))
        .collect()
}

pub(crate) fn describe(ordinal: usize, device: &RawDevice) -> Result<DeviceListing, BackendError> {
    let device_type = device.number(cl::CL_DEVICE_TYPE)?;
    // Deprecated since OpenCL 2.0, so a driver may have left it out.
    let unified = device.number(cl::CL_DEVICE_HOST_UNIFIED_MEMORY).is_ok_and(|unified| unified != 0);
    let mut listed = DeviceListing::new(BACKEND, ordinal, device.text(cl::CL_DEVICE_NAME)?);
    listed.kind = if device_type & cl::CL_DEVICE_TYPE_CPU != 0 {
        DeviceKind::Cpu
    } else if unified {
        DeviceKind::Integrated
    } else {
        DeviceKind::Discrete
    };
    listed.total_bytes = Some(device.number(cl::CL_DEVICE_GLOBAL_MEM_SIZE)?);
    listed.interface = device.platform_text(cl::CL_PLATFORM_NAME)?;
    Ok(listed)
}
