//! Listing of platforms and devices by the driver.

use super::handle::Handle;
use super::library::{Library, unavailable};
use crate::error::{DEVICE_NOT_FOUND, PLATFORM_NOT_FOUND, check};
use opencl_sys as cl;
use parking_lot::Mutex;
use std::ffi::c_void;
use vrampool_backend::BackendError;

/// A device that the driver lists, open or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawDevice {
    library: &'static Library,
    platform: Handle,
    device: Handle,
}

/// The bytes of one answer. `ask` is given the size and place of a buffer, and a place for the answer's own
/// size.
pub(super) fn info(
    call: &'static str,
    mut ask: impl FnMut(usize, *mut c_void, *mut usize) -> cl::cl_int,
) -> Result<Vec<u8>, BackendError> {
    let mut size = 0;
    check(call, ask(0, std::ptr::null_mut(), &raw mut size))?;
    let mut bytes = vec![0u8; size];
    check(call, ask(bytes.len(), bytes.as_mut_ptr().cast(), std::ptr::null_mut()))?;
    Ok(bytes)
}

/// The number that `bytes` are, in this machine's order, or 0 where they are none.
pub(super) fn number(bytes: &[u8]) -> u64 {
    match bytes.len() {
        4 => bytes.try_into().map_or(0, |bytes| u64::from(u32::from_ne_bytes(bytes))),
        8 => bytes.try_into().map_or(0, u64::from_ne_bytes),
        _ => 0,
    }
}

/// Each handle of an array of them.
pub(super) fn handles(bytes: &[u8]) -> impl Iterator<Item = Handle> + '_ {
    bytes.chunks_exact(size_of::<usize>()).map(|bytes| Handle(number(bytes) as usize))
}

fn text(bytes: Vec<u8>) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

impl RawDevice {
    /// Every device of every platform, in the driver's order.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without a platform or a device; else errors of the driver.
    pub(crate) fn all(library: &'static Library) -> Result<Vec<Self>, BackendError> {
        // PoCL 3.1 reports that it has no device if a second thread lists devices during the first listing.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock();
        let mut devices = Vec::new();
        for platform in platforms(library)? {
            let list = |count, place, found| {
                // SAFETY: the platform is one that the driver listed; the call writes as many handles to
                // `place` as it is passed, and one number to `found`.
                unsafe {
                    (library.core.clGetDeviceIDs)(platform.raw(), cl::CL_DEVICE_TYPE_ALL, count, place, found)
                }
            };
            let found = listed("clGetDeviceIDs", DEVICE_NOT_FOUND, list)?;
            devices.extend(found.into_iter().map(|device| Self { library, platform, device }));
        }
        if devices.is_empty() {
            return Err(unavailable("no OpenCL platform has a device; is its driver for this machine?"));
        }
        Ok(devices)
    }

    /// # Safety
    /// `device` is one that exists for as long as the result is used.
    pub(super) unsafe fn of(library: &'static Library, device: Handle) -> Result<Self, BackendError> {
        let unknown = Self { library, platform: Handle(0), device };
        let platform = Handle(unknown.number(cl::CL_DEVICE_PLATFORM)? as usize);
        Ok(Self { platform, ..unknown })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.device
    }

    pub(super) fn platform(&self) -> Handle {
        self.platform
    }

    fn info(&self, what: cl::cl_device_info) -> Result<Vec<u8>, BackendError> {
        info("clGetDeviceInfo", |size, place, written| {
            // SAFETY: the device exists; the call writes at most `size` bytes to `place`, and one number to
            // `written`.
            unsafe { (self.library.core.clGetDeviceInfo)(self.device.raw(), what, size, place, written) }
        })
    }

    /// A parameter that is one number of 4 or 8 bytes.
    pub(crate) fn info_number(&self, what: cl::cl_device_info) -> Result<u64, BackendError> {
        match self.info(what)? {
            bytes if [4, 8].contains(&bytes.len()) => Ok(number(&bytes)),
            bytes => {
                let reason = format!("{what:#x} has {} bytes, which are not one number", bytes.len());
                Err(BackendError::invalid("parameter", reason))
            }
        }
    }

    pub(crate) fn number(&self, what: cl::cl_device_info) -> Result<u64, BackendError> {
        self.info(what).map(|bytes| number(&bytes))
    }

    pub(crate) fn text(&self, what: cl::cl_device_info) -> Result<String, BackendError> {
        self.info(what).map(text)
    }

    /// Bytes that are free on the device, all processes counted, where AMD's extension reports them.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let bytes = self.info(cl::CL_DEVICE_GLOBAL_FREE_MEMORY_AMD).ok()?;
        // In KiB: all of it, and the largest piece.
        handles(&bytes).next().map(|Handle(free)| free as u64 * 1024).filter(|&free| free > 0)
    }

    pub(crate) fn platform_text(&self, what: cl::cl_platform_info) -> Result<String, BackendError> {
        info("clGetPlatformInfo", |size, place, written| {
            // SAFETY: as in `info`, of the platform that the driver says the device is of.
            unsafe { (self.library.core.clGetPlatformInfo)(self.platform.raw(), what, size, place, written) }
        })
        .map(text)
    }
}

fn platforms(library: &'static Library) -> Result<Vec<Handle>, BackendError> {
    let list = |count, place, found| {
        // SAFETY: the call writes as many handles to `place` as it is passed, and one number
        // to `found`.
        unsafe { (library.core.clGetPlatformIDs)(count, place, found) }
    };
    match listed("clGetPlatformIDs", PLATFORM_NOT_FOUND, list) {
        Ok(platforms) if platforms.is_empty() => {
            Err(unavailable("the OpenCL loader knows no platform; install a driver (an ICD) for the device"))
        }
        Ok(platforms) => Ok(platforms),
        Err(error) => Err(unavailable(error.to_string())),
    }
}

/// A list of the driver, which returns the code `none` for an empty one.
fn listed(
    call: &'static str,
    none: cl::cl_int,
    list: impl Fn(cl::cl_uint, *mut *mut c_void, *mut cl::cl_uint) -> cl::cl_int,
) -> Result<Vec<Handle>, BackendError> {
    let mut count = 0;
    match list(0, std::ptr::null_mut(), &raw mut count) {
        code if code == none => return Ok(Vec::new()),
        code => check(call, code)?,
    }
    let mut found = vec![std::ptr::null_mut(); count as usize];
    if count > 0 {
        check(call, list(count, found.as_mut_ptr(), &raw mut count))?;
    }
    Ok(found.into_iter().take(count as usize).map(Handle::of).collect())
}
