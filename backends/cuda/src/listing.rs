//! Available devices.

use crate::driver::{BACKEND, Library, RawDevice};
use cudarc::driver::sys::CUdevice_attribute;
use vrampool_backend::{BackendError, DeviceKind, DeviceListing};

/// Every device that the driver lists. Reading the list opens no device.
///
/// # Errors
/// [`BackendError::Unavailable`] without a driver or a device; else errors of the driver.
pub fn list() -> Result<Vec<DeviceListing>, BackendError> {
    let library = Library::get()?;
    (0..RawDevice::count(library)?).map(|ordinal| describe(library, ordinal)).collect()
}

pub(crate) fn describe(library: &'static Library, ordinal: usize) -> Result<DeviceListing, BackendError> {
    let device = RawDevice::at(library, ordinal)?;
    let mut listed = DeviceListing::new(BACKEND, ordinal, device.name()?);
    listed.uuid = Some(u128::from_be_bytes(device.uuid()?));
    listed.total_bytes = Some(device.total_bytes()?);
    if device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0 {
        listed.kind = DeviceKind::Integrated;
    }
    Ok(listed)
}
