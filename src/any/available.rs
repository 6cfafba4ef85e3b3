//! The available devices, and the error that lists them.

use std::fmt;
use vrampool_backend::{BackendError, DeviceKind, DeviceListing};

/// The family whose CPU does not pass for a GPU.
pub(super) const HOST: &str = "host";

/// A backend without a device here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Absent {
    /// The backend's name.
    pub backend: &'static str,
    /// Its feature is not compiled in, it found no driver or no device, or its driver failed.
    pub reason: BackendError,
}

/// All devices, the best backend's first, and the backends that have none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Devices {
    /// The available devices.
    pub there: Vec<DeviceListing>,
    /// The other backends.
    pub absent: Vec<Absent>,
}

/// An error for a device that was requested and not opened. Its text lists the devices that can be opened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotOpened {
    /// The name that was asked for.
    pub name: String,
    /// The reason.
    pub cause: BackendError,
    /// The available devices.
    pub devices: Devices,
}

impl Devices {
    /// Returns the device that `auto` opens if the environment variable is unset, if one is available.
    #[must_use]
    pub fn best(&self) -> Option<&DeviceListing> {
        self.by_preference().next()
    }

    /// Returns the devices that `auto` selects from, the best first. In each backend, devices with their own memory
    /// precede those that share the host's. CPUs are excluded, except the host itself.
    pub(super) fn by_preference(&self) -> impl Iterator<Item = &DeviceListing> {
        let eligible = |device: &&DeviceListing| device.kind != DeviceKind::Cpu || device.backend == HOST;
        self.there.chunk_by(|one, next| one.backend == next.backend).flat_map(move |devices| {
            let of = move |is_discrete| {
                let is_of =
                    move |device: &&DeviceListing| (device.kind == DeviceKind::Discrete) == is_discrete;
                devices.iter().filter(is_of).filter(eligible)
            };
            of(true).chain(of(false))
        })
    }
}

impl fmt::Display for NotOpened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cause, devices } = self;
        write!(f, "no device `{name}`: {cause}; ")?;
        let there: Vec<_> =
            devices.there.iter().map(|listed| format!("{} ({})", listed.name, listed.device)).collect();
        match there.is_empty() {
            true => f.write_str("there is no other")?,
            false => write!(f, "there is {}", there.join(", "))?,
        }
        devices
            .absent
            .iter()
            .filter(|absent| absent.reason != *cause)
            .try_for_each(|absent| write!(f, "; {}", absent.reason))
    }
}

/// The cause is in the text.
impl std::error::Error for NotOpened {}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(backend: &'static str, number: usize, kind: DeviceKind) -> DeviceListing {
        let mut listed = DeviceListing::new(backend, number, "Test");
        listed.kind = kind;
        listed
    }

    fn preferred(there: &[DeviceListing]) -> Vec<String> {
        let devices = Devices { there: there.to_vec(), absent: Vec::new() };
        devices.by_preference().map(|device| device.name.clone()).collect()
    }

    #[test]
    fn backends_come_in_order_and_a_cpu_does_not_pass_for_a_gpu() {
        use DeviceKind::{Cpu, Discrete, Integrated};
        let there = [
            listed("cuda", 0, Integrated),
            listed("cuda", 1, Discrete),
            listed("opencl", 0, Cpu),
            listed("opencl", 1, Discrete),
            listed("wgpu", 0, Cpu),
            listed("host", 0, Cpu),
        ];
        assert_eq!(preferred(&there), ["cuda:1", "cuda:0", "opencl:1", "host:0"]);
        assert_eq!(preferred(&there[2..]), ["opencl:1", "host:0"]);
        assert_eq!(preferred(&there[4..]), ["host:0"]);
        assert!(preferred(&there[4..5]).is_empty());
    }
}
