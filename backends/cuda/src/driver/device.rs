//! Listing of devices by the driver.

use super::library::Library;
use cudarc::driver::sys;
use std::ffi::{c_char, c_int};
use vrampool_backend::BackendError;

/// A device that the driver lists, open or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawDevice {
    library: &'static Library,
    device: c_int,
}

impl RawDevice {
    pub(crate) fn count(library: &'static Library) -> Result<usize, BackendError> {
        let mut count = 0;
        // SAFETY: the driver is initialised (`Library::get` did it); the call writes one number to `count`.
        library.check("cuDeviceGetCount", unsafe { (library.cuDeviceGetCount)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    pub(crate) fn at(library: &'static Library, ordinal: usize) -> Result<Self, BackendError> {
        let count = Self::count(library)?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count).ok_or_else(|| {
            BackendError::invalid("device", format!("there is no device {ordinal}; there are {count}"))
        })?;
        let mut device = 0;
        // SAFETY: the driver is initialised; the call writes one number to `device`.
        library.check("cuDeviceGet", unsafe { (library.cuDeviceGet)(&raw mut device, number) })?;
        Ok(Self { library, device })
    }

    pub(crate) fn handle(self) -> c_int {
        self.device
    }

    pub(crate) fn name(self) -> Result<String, BackendError> {
        let mut text = [0u8; 256];
        let start = text.as_mut_ptr().cast::<c_char>();
        // SAFETY: the driver writes at most the number of bytes to `text` that it is passed.
        let code = unsafe { (self.library.cuDeviceGetName)(start, text.len() as c_int, self.device) };
        self.library.check("cuDeviceGetName", code)?;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Ok(String::from_utf8_lossy(&text[..end]).into_owned())
    }

    pub(crate) fn uuid(self) -> Result<[u8; 16], BackendError> {
        let mut uuid = [0; 16];
        // SAFETY: a `CUuuid` is 16 bytes, and the call writes one to `uuid`.
        let code = unsafe { (self.library.cuDeviceGetUuid_v2)(&raw mut uuid, self.device) };
        self.library.check("cuDeviceGetUuid", code)?;
        Ok(uuid)
    }

    pub(crate) fn total_bytes(self) -> Result<u64, BackendError> {
        let mut bytes = 0;
        // SAFETY: the call writes one size to `bytes`.
        let code = unsafe { (self.library.cuDeviceTotalMem_v2)(&raw mut bytes, self.device) };
        self.library.check("cuDeviceTotalMem", code)?;
        Ok(bytes as u64)
    }

    pub(crate) fn attribute(self, attribute: sys::CUdevice_attribute) -> Result<i32, BackendError> {
        self.attribute_numbered(attribute as c_int)
    }

    /// As [`attribute`](Self::attribute), for one that not all bindings have.
    pub(crate) fn attribute_numbered(self, attribute: c_int) -> Result<i32, BackendError> {
        let mut value = 0;
        // SAFETY: the call writes one number to `value`, and refuses an attribute that it does not know.
        let code = unsafe { (self.library.cuDeviceGetAttribute)(&raw mut value, attribute, self.device) };
        self.library.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }
}
