//! The compiled-in backends: names of their devices, listing and opening.

use super::available::{DeviceListing, HOST};
use super::variants::AnyDevice;
use vrampool_backend::BackendError;

/// A backend's devices.
#[derive(Debug)]
pub(super) struct Family {
    /// The backend's name, which is its feature's too.
    pub(super) name: &'static str,
    /// The naming scheme of its devices.
    pub(super) forms: &'static [&'static str],
    /// Its functions, if its feature is enabled.
    pub(super) compiled: Option<Compiled>,
}

#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) list: fn() -> Result<Vec<DeviceListing>, BackendError>,
    /// By a name that begins with the family's.
    pub(super) open: fn(&str) -> Result<AnyDevice, BackendError>,
}

/// The best first.
pub(super) static FAMILIES: [Family; 4] = [
    Family {
        name: "cuda",
        forms: &["cuda", "cuda:NUMBER", "cuda:UUID"],
        #[cfg(feature = "cuda")]
        compiled: Some(cuda::COMPILED),
        #[cfg(not(feature = "cuda"))]
        compiled: None,
    },
    Family {
        name: "opencl",
        forms: &["opencl", "opencl:NUMBER"],
        #[cfg(feature = "opencl")]
        compiled: Some(opencl::COMPILED),
        #[cfg(not(feature = "opencl"))]
        compiled: None,
    },
    Family {
        name: "wgpu",
        forms: &["wgpu", "wgpu:NUMBER"],
        #[cfg(feature = "wgpu")]
        compiled: Some(wgpu::COMPILED),
        #[cfg(not(feature = "wgpu"))]
        compiled: None,
    },
    Family {
        name: HOST,
        forms: &[HOST],
        #[cfg(feature = "host")]
        compiled: Some(host::COMPILED),
        #[cfg(not(feature = "host"))]
        compiled: None,
    },
];

impl Family {
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

#[cfg(feature = "cuda")]
mod cuda {
    use super::{Compiled, DeviceListing};
    use vrampool_backend::{BackendError, DeviceKind};
    use vrampool_cuda::CudaDevice;

    pub(super) const COMPILED: Compiled =
        Compiled { list, open: |name| Ok(CudaDevice::open_by_name(name)?.into()) };

    fn list() -> Result<Vec<DeviceListing>, BackendError> {
        let devices = vrampool_cuda::list()?.into_iter().map(|device| DeviceListing {
            name: format!("cuda:{}", device.ordinal),
            backend: "cuda",
            device: device.name,
            kind: if device.integrated { DeviceKind::Integrated } else { DeviceKind::Discrete },
            total_bytes: Some(device.total_bytes),
        });
        Ok(devices.collect())
    }
}

#[cfg(feature = "opencl")]
mod opencl {
    use super::{Compiled, DeviceListing};
    use vrampool_backend::BackendError;
    use vrampool_opencl::OpenClDevice;

    pub(super) const COMPILED: Compiled =
        Compiled { list, open: |name| Ok(OpenClDevice::open_by_name(name)?.into()) };

    fn list() -> Result<Vec<DeviceListing>, BackendError> {
        let devices = vrampool_opencl::list()?.into_iter().map(|device| DeviceListing {
            name: format!("opencl:{}", device.ordinal),
            backend: "opencl",
            device: device.name,
            kind: device.kind,
            total_bytes: Some(device.total_bytes),
        });
        Ok(devices.collect())
    }
}

#[cfg(feature = "wgpu")]
mod wgpu {
    use super::{Compiled, DeviceListing};
    use vrampool_backend::BackendError;
    use vrampool_wgpu::WgpuDevice;

    pub(super) const COMPILED: Compiled =
        Compiled { list, open: |name| Ok(WgpuDevice::open_by_name(name)?.into()) };

    fn list() -> Result<Vec<DeviceListing>, BackendError> {
        let devices = vrampool_wgpu::list()?.into_iter().map(|device| DeviceListing {
            name: format!("wgpu:{}", device.ordinal),
            backend: "wgpu",
            device: device.name,
            kind: device.kind,
            total_bytes: None,
        });
        Ok(devices.collect())
    }
}

#[cfg(feature = "host")]
mod host {
    use super::{Compiled, DeviceListing, HOST};
    use std::sync::LazyLock;
    use vrampool_backend::{Backend, BackendError, DeviceKind};
    use vrampool_host::HostDevice;

    pub(super) const COMPILED: Compiled = Compiled { list, open: |_| Ok(DEVICE.clone().into()) };

    /// One for the process: a device that is opened again is the same.
    static DEVICE: LazyLock<HostDevice> = LazyLock::new(HostDevice::new);

    fn list() -> Result<Vec<DeviceListing>, BackendError> {
        let properties = DEVICE.properties();
        Ok(vec![DeviceListing {
            name: HOST.into(),
            backend: HOST,
            device: properties.name.clone(),
            kind: DeviceKind::Cpu,
            total_bytes: Some(properties.total_bytes),
        }])
    }
}
