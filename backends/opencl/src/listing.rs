//! Available devices and their names.

use crate::driver::{Library, RawDevice};
use opencl_sys as cl;
use vrampool_backend::{BackendError, DeviceKind, fork};

/// A device that the driver lists. Reading the list opens no device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenClListing {
    /// Its number among the devices of all platforms, in the driver's order.
    pub ordinal: usize,
    /// Its name, for people.
    pub name: String,
    /// The name of its platform, which is its vendor's driver.
    pub platform: String,
    /// How its memory relates to the host's: a processor is [`DeviceKind::Cpu`], a device with unified memory
    /// (`CL_DEVICE_HOST_UNIFIED_MEMORY`) integrated.
    pub kind: DeviceKind,
    /// Whether it says that it is a graphics processor (`CL_DEVICE_TYPE_GPU`).
    pub is_gpu: bool,
    /// Memory in all, bytes (`CL_DEVICE_GLOBAL_MEM_SIZE`).
    pub total_bytes: u64,
    /// The largest single allocation, bytes (`CL_DEVICE_MAX_MEM_ALLOC_SIZE`).
    pub max_allocation: u64,
    /// The version of OpenCL that it has, as the driver writes it.
    pub version: String,
    /// The version of its driver.
    pub driver_version: String,
}

/// Every device of every platform.
///
/// # Errors
/// [`BackendError::Unavailable`] without a library, a platform or a device; else errors of the driver.
pub fn list() -> Result<Vec<OpenClListing>, BackendError> {
    fork::check()?;
    RawDevice::all(Library::get()?)?
        .iter()
        .enumerate()
        .map(|(ordinal, device)| describe(ordinal, device))
        .collect()
}

pub(crate) fn describe(ordinal: usize, device: &RawDevice) -> Result<OpenClListing, BackendError> {
    let device_type = device.number(cl::CL_DEVICE_TYPE)?;
    // Deprecated since OpenCL 2.0, so a driver may have left it out.
    let unified = device.number(cl::CL_DEVICE_HOST_UNIFIED_MEMORY).is_ok_and(|unified| unified != 0);
    let kind = if device_type & cl::CL_DEVICE_TYPE_CPU != 0 {
        DeviceKind::Cpu
    } else if unified {
        DeviceKind::Integrated
    } else {
        DeviceKind::Discrete
    };
    Ok(OpenClListing {
        ordinal,
        name: device.text(cl::CL_DEVICE_NAME)?,
        platform: device.platform_text(cl::CL_PLATFORM_NAME)?,
        kind,
        is_gpu: device_type & cl::CL_DEVICE_TYPE_GPU != 0,
        total_bytes: device.number(cl::CL_DEVICE_GLOBAL_MEM_SIZE)?,
        max_allocation: device.number(cl::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
        version: device.text(cl::CL_DEVICE_VERSION)?,
        driver_version: device.text(cl::CL_DRIVER_VERSION)?,
    })
}

/// The number of the one device that `name` names: `opencl` (the first GPU, or where there is none the first
/// device), `opencl:1` or `1`.
pub(crate) fn find(name: &str, devices: &[OpenClListing]) -> Result<usize, BackendError> {
    if name == "opencl"
        && let Some(device) = devices.iter().find(|device| device.is_gpu).or(devices.first())
    {
        return Ok(device.ordinal);
    }
    let number = name.strip_prefix("opencl:").unwrap_or(name);
    if let Some(ordinal) = number.parse().ok().filter(|&ordinal: &usize| ordinal < devices.len()) {
        return Ok(ordinal);
    }
    let there: Vec<_> =
        devices.iter().map(|d| format!("opencl:{} ({}, {})", d.ordinal, d.name, d.platform)).collect();
    Err(BackendError::invalid("device", format!("{name:?} names none of {}", there.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(ordinal: usize, is_gpu: bool) -> OpenClListing {
        let (kind, total_bytes, max_allocation) = (DeviceKind::Discrete, 1, 1);
        let [name, platform, version, driver_version] =
            [format!("Test {ordinal}"), "Platform".into(), "OpenCL 3.0".into(), "1".into()];
        OpenClListing {
            ordinal,
            name,
            platform,
            kind,
            is_gpu,
            total_bytes,
            max_allocation,
            version,
            driver_version,
        }
    }

    #[test]
    fn devices_are_found_by_number_and_a_gpu_goes_first() {
        let devices = [device(0, false), device(1, true), device(2, true)];
        for (name, ordinal) in [("opencl", 1), ("opencl:0", 0), ("opencl:2", 2), ("1", 1)] {
            assert_eq!(find(name, &devices).expect(name), ordinal, "{name}");
        }
        assert_eq!(find("opencl", &devices[..1]).expect("there is one"), 0);
        for name in ["", "3", "opencl:3", "opencl:", "opencl:-1", "cuda:0", "OpenCL"] {
            let error = find(name, &devices).expect_err(name).to_string();
            assert!(error.contains("opencl:0 (Test 0, Platform)") && error.contains("Test 2"), "{error}");
        }
    }
}
