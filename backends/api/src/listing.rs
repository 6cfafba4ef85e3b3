//! Devices that can be opened, and their names.

use crate::properties::uuid_text;
use crate::{BackendError, DeviceKind};

/// A device that can be opened. Listing it opens nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceListing {
    /// The name that opens it, such as `cuda:1`.
    pub name: String,
    /// The backend's name.
    pub backend: &'static str,
    /// Its number in the backend's list.
    pub ordinal: usize,
    /// The device's own name, for people.
    pub device: String,
    /// Discrete, integrated or a processor.
    pub kind: DeviceKind,
    /// Memory in all, bytes; `None` if the driver does not report it.
    pub total_bytes: Option<u64>,
    /// OpenCL's platform, or wgpu's interface, such as `vulkan`. Empty for other backends.
    pub interface: String,
    /// Its unique identifier, if the driver has one.
    pub uuid: Option<u128>,
}

impl DeviceListing {
    /// Lists the device of this number of a backend, with its name for people and the defaults of the other fields.
    #[must_use]
    pub fn new(backend: &'static str, ordinal: usize, device: impl Into<String>) -> Self {
        let (name, device, interface) = (format!("{backend}:{ordinal}"), device.into(), String::new());
        let kind = DeviceKind::default();
        Self { name, backend, ordinal, device, kind, total_bytes: None, interface, uuid: None }
    }

    /// Returns the unique identifier as the driver's tools write it: `GPU-01234567-89ab-cdef-0123-456789abcdef`.
    #[must_use]
    pub fn uuid_text(&self) -> Option<String> {
        self.uuid.map(uuid_text)
    }

    /// Whether `name`, such as `GPU-01234567` or `MIG-01234567`, begins its unique identifier.
    fn is_named_by(&self, name: &str) -> bool {
        let name = name.to_ascii_lowercase();
        let digits = name.strip_prefix("gpu-").or_else(|| name.strip_prefix("mig-"));
        let begins = |digits| self.uuid_text().is_some_and(|text| text["GPU-".len()..].starts_with(digits));
        digits.is_some_and(|digits| !digits.is_empty() && begins(digits))
    }
}

/// Finds the device of a backend that `name` names: `cuda` (the first one that is no processor, or where there is none
/// the first), `cuda:1`, `1`, or a unique identifier, or as much of its beginning as no other device has, behind
/// `cuda:` or not.
///
/// # Errors
/// [`BackendError::InvalidArgument`], which lists the devices.
pub fn find_device<'a>(
    backend: &str,
    name: &str,
    devices: &'a [DeviceListing],
) -> Result<&'a DeviceListing, BackendError> {
    let best = || devices.iter().find(|device| device.kind != DeviceKind::Cpu).or(devices.first());
    let number = name.strip_prefix(backend).and_then(|name| name.strip_prefix(':')).unwrap_or(name);
    let by_number = || number.parse().ok().and_then(|ordinal: usize| devices.get(ordinal));
    let mut named = devices.iter().filter(|device| device.is_named_by(number));
    let by_uuid = || named.next().filter(|_| named.next().is_none());
    let found = if name == backend { best() } else { by_number().or_else(by_uuid) };
    found.ok_or_else(|| {
        let there = devices.iter().map(|listed| {
            let text = listed.uuid_text().unwrap_or_else(|| listed.interface.clone());
            format!("{} ({}, {text})", listed.name, listed.device)
        });
        let there = there.collect::<Vec<_>>().join(", ");
        BackendError::invalid("device", format!("{name:?} names none, or several, of {there}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceId;

    fn listed(backend: &'static str, ordinal: usize, kind: DeviceKind) -> DeviceListing {
        let listed = DeviceListing::new(backend, ordinal, format!("Test {ordinal}"));
        DeviceListing { kind, interface: "vulkan".into(), ..listed }
    }

    #[test]
    fn devices_are_found_by_number_and_a_gpu_goes_first() {
        use DeviceKind::{Cpu, Discrete, Integrated};
        let devices = [listed("wgpu", 0, Cpu), listed("wgpu", 1, Integrated), listed("wgpu", 2, Discrete)];
        let find = |name: &str| find_device("wgpu", name, &devices).map(|found| found.ordinal);
        for (name, ordinal) in [("wgpu", 1), ("wgpu:0", 0), ("wgpu:2", 2), ("1", 1)] {
            assert_eq!(find(name), Ok(ordinal), "{name}");
        }
        assert_eq!(find_device("wgpu", "wgpu", &devices[..1]), Ok(&devices[0]), "there is no GPU");
        for name in ["", "3", "wgpu:3", "wgpu:", "wgpu:-1", "wgpu1", "cuda:0", "WGPU", "Test 0", "GPU-1"] {
            let error = find(name).expect_err(name).to_string();
            assert!(error.contains("wgpu:0 (Test 0, vulkan), wgpu:1 (Test 1"), "{error}");
        }
    }

    #[test]
    fn devices_are_found_by_the_beginning_of_a_uuid() {
        let devices = [[0x11; 16], [0x12; 16]].map(u128::from_be_bytes).map(|uuid| DeviceListing {
            uuid: Some(uuid),
            ..listed("cuda", usize::from(uuid as u8 == 0x12), DeviceKind::Discrete)
        });
        let find = |name: &str| find_device("cuda", name, &devices).map(|found| found.ordinal);
        // The text of its `DeviceId`.
        let id = DeviceId::new("cuda", u128::from_be_bytes([0x12; 16])).to_string();
        for (name, ordinal) in
            [("GPU-1111", 0), ("gpu-12121212-1212", 1), ("MIG-12", 1), ("cuda:GPU-12", 1), (&id, 1)]
        {
            assert_eq!(find(name), Ok(ordinal), "{name}");
        }
        for name in ["GPU-", "GPU-1", "GPU-13", "cuda:GPU-1", "1111"] {
            let error = find(name).expect_err(name).to_string();
            assert!(error.contains("cuda:0 (Test 0, GPU-11111111-1111-1111-1111-111111111111)"), "{error}");
        }
    }
}
