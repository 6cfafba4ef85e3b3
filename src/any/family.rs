//! The compiled-in backends: names of their devices, listing and opening.

use super::available::{Absent, Devices, HOST};
use crate::any::DeviceFamily;
#[cfg(feature = "host")]
use std::sync::LazyLock;
use vrampool_backend::BackendError;
#[cfg(feature = "host")]
use vrampool_backend::{Backend, DeviceKind, DeviceListing};

/// The functions of a backend that lists its devices by number, if its feature is enabled.
macro_rules! compiled {
    ($name:literal, $backend:ident::$Device:ident) => {{
        #[cfg(feature = $name)]
        let compiled = Some(super::Compiled {
            list: $backend::list,
            open: |name| Ok($backend::$Device::open_by_name(name)?.into()),
        });
        #[cfg(not(feature = $name))]
        let compiled = None;
        DeviceFamily { name: $name, forms: &[$name, concat!($name, ":NUMBER")], compiled }
    }};
}

/// The best first.
pub(super) static FAMILIES: [DeviceFamily; 4] = [
    DeviceFamily {
        forms: &["cuda", "cuda:NUMBER", "cuda:UUID"],
        ..compiled!("cuda", vrampool_cuda::CudaDevice)
    },
    compiled!("opencl", vrampool_opencl::OpenClDevice),
    compiled!("wgpu", vrampool_wgpu::WgpuDevice),
    DeviceFamily {
        name: HOST,
        forms: &[HOST],
        #[cfg(feature = "host")]
        compiled: Some(HOST_MEMORY),
        #[cfg(not(feature = "host"))]
        compiled: None,
    },
];

impl DeviceFamily {
    /// Whether a name of its says which of several devices.
    pub(super) fn has_several(&self) -> bool {
        self.forms.len() > 1
    }

    /// Returns the error for a backend that is not compiled in.
    pub(super) fn not_compiled(&self) -> BackendError {
        let reason = format!("this program was built without the feature `{}`", self.name);
        BackendError::unavailable(self.name, reason)
    }
}

/// Lists the devices of every backend without opening them. The duration depends on the drivers.
///
/// ```
/// for device in vrampool::any::devices().there {
///     let bytes = device.total_bytes.map_or("unknown".into(), |bytes| bytes.to_string());
///     println!("{}: {}, {bytes} bytes", device.name, device.device);
/// }
/// ```
#[must_use]
pub fn devices() -> Devices {
    let mut devices = Devices::default();
    for family in &FAMILIES {
        let listed = match &family.compiled {
            Some(compiled) => (compiled.list)(),
            None => Err(family.not_compiled()),
        };
        let reason = match listed {
            Ok(listed) if listed.is_empty() => BackendError::unavailable(family.name, "it has no device"),
            Ok(listed) => {
                devices.there.extend(listed);
                continue;
            }
            Err(reason) => reason,
        };
        devices.absent.push(Absent { backend: family.name, reason });
    }
    devices
}

/// The host's device, one for the process: a device that is opened again is the same.
#[cfg(feature = "host")]
static HOST_DEVICE: LazyLock<vrampool_host::HostDevice> = LazyLock::new(vrampool_host::HostDevice::new);

#[cfg(feature = "host")]
const HOST_MEMORY: super::Compiled = super::Compiled {
    list: || {
        let properties = HOST_DEVICE.properties();
        let mut listed = DeviceListing::new(HOST, 0, properties.name.clone());
        (listed.name, listed.kind) = (HOST.into(), DeviceKind::Cpu);
        listed.total_bytes = Some(properties.total_bytes);
        Ok(vec![listed])
    },
    open: |_| Ok(HOST_DEVICE.clone().into()),
};
