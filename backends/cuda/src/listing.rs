//! Available devices and their names.

use crate::driver::{Library, RawDevice};
use cudarc::driver::sys::CUdevice_attribute;
use std::fmt;
use vrampool_backend::BackendError;

/// A device that the driver lists. Reading the list opens no device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CudaListing {
    /// Its number among the devices this process sees.
    pub ordinal: usize,
    /// Its name, for people.
    pub name: String,
    /// The device's unique identifier, in the form of `nvidia-smi`.
    pub uuid: Uuid,
    /// Memory in all, bytes.
    pub total_bytes: u64,
    /// Whether it shares the host's memory.
    pub integrated: bool,
    /// Its generation, as major and minor.
    pub compute_capability: (u32, u32),
}

/// A device's UUID. Shown as `GPU-01234567-89ab-cdef-0123-456789abcdef`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl Uuid {
    /// Whether `name`, such as `GPU-01234567`, begins this UUID. `MIG-` in front of it will do as well.
    fn begins_with(self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let digits = name.strip_prefix("gpu-").or_else(|| name.strip_prefix("mig-"));
        digits
            .is_some_and(|digits| !digits.is_empty() && self.to_string()["GPU-".len()..].starts_with(digits))
    }
}

/// Every device that the driver lists.
///
/// # Errors
/// [`BackendError::Unavailable`] without a driver or a device; else errors of the driver.
pub fn list() -> Result<Vec<CudaListing>, BackendError> {
    let library = Library::get()?;
    (0..RawDevice::count(library)?).map(|ordinal| describe(library, ordinal)).collect()
}

pub(crate) fn describe(library: &'static Library, ordinal: usize) -> Result<CudaListing, BackendError> {
    let device = RawDevice::at(library, ordinal)?;
    let number = |attribute| Ok::<_, BackendError>(u32::try_from(device.attribute(attribute)?).unwrap_or(0));
    Ok(CudaListing {
        ordinal,
        name: device.name()?,
        uuid: Uuid(device.uuid()?),
        total_bytes: device.total_bytes()?,
        integrated: device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0,
        compute_capability: (
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            number(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
    })
}

/// The number of the one device that `name` names: `cuda`, `cuda:1`, `1`, or a UUID or the beginning of one,
/// behind `cuda:` or not.
pub(crate) fn find(name: &str, devices: &[CudaListing]) -> Result<usize, BackendError> {
    let number = if name == "cuda" { "0" } else { name.strip_prefix("cuda:").unwrap_or(name) };
    let by_number = number.parse().ok().filter(|&ordinal: &usize| ordinal < devices.len());
    if let Some(ordinal) = by_number {
        return Ok(ordinal);
    }
    let mut named = devices.iter().filter(|device| device.uuid.begins_with(number));
    if let (Some(device), None) = (named.next(), named.next()) {
        return Ok(device.ordinal);
    }
    let there: Vec<_> =
        devices.iter().map(|d| format!("cuda:{} ({}, {})", d.ordinal, d.uuid, d.name)).collect();
    Err(BackendError::invalid("device", format!("{name:?} names none, or several, of {}", there.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use vrampool_backend::DeviceId;

    fn device(ordinal: usize, uuid: [u8; 16]) -> CudaListing {
        let name = format!("Test {ordinal}");
        let (total_bytes, integrated, compute_capability) = (1, false, (9, 0));
        CudaListing { ordinal, name, uuid: Uuid(uuid), total_bytes, integrated, compute_capability }
    }

    #[test]
    fn a_uuid_is_written_as_the_tools_write_it() {
        let uuid = Uuid([1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF, 0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(uuid.to_string(), "GPU-01234567-89ab-cdef-0001-020304050607");
    }

    #[test]
    fn devices_are_found_by_number_and_by_the_beginning_of_a_uuid() {
        let devices = [device(0, [0x11; 16]), device(1, [0x12; 16])];
        for (name, ordinal) in [
            ("cuda", 0),
            ("cuda:1", 1),
            ("1", 1),
            ("GPU-1111", 0),
            ("gpu-12121212-1212", 1),
            ("MIG-12", 1),
            ("cuda:GPU-12", 1),
            // The text of its `DeviceId`.
            (&DeviceId::new("cuda", u128::from_be_bytes([0x12; 16])).to_string(), 1),
        ] {
            assert_eq!(find(name, &devices).expect(name), ordinal, "{name}");
        }
        for name in [
            "",
            "2",
            "cuda:2",
            "cuda:",
            "cuda:-1",
            "GPU-",
            "GPU-1",
            "GPU-13",
            "cuda:GPU-1",
            "1111",
            "opencl:0",
        ] {
            let error = find(name, &devices).expect_err(name).to_string();
            assert!(error.contains("cuda:0 (GPU-11111111") && error.contains("Test 1"), "{error}");
        }
    }
}
