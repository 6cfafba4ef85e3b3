//! The compiled-in backends: names of their devices, listing and opening.

use super::available::{DeviceListing, HOST};
use super::variants::AnyDevice;
#[cfg(feature = "host")]
use std::sync::LazyLock;
#[cfg(feature = "host")]
use vrampool_backend::Backend;
use vrampool_backend::BackendError;
#[cfg(any(feature = "cuda", feature = "host"))]
use vrampool_backend::DeviceKind;

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

/// The constant of a backend, if its feature is enabled.
macro_rules! compiled {
    ($feature:literal $compiled:ident) => {{
        #[cfg(feature = $feature)]
        let compiled = Some($compiled);
        #[cfg(not(feature = $feature))]
        let compiled = None;
        compiled
    }};
}

/// The best first.
pub(super) static FAMILIES: [Family; 4] = [
    Family { name: "cuda", forms: &["cuda", "cuda:NUMBER", "cuda:UUID"], compiled: compiled!("cuda" CUDA) },
    Family { name: "opencl", forms: &["opencl", "opencl:NUMBER"], compiled: compiled!("opencl" OPENCL) },
    Family { name: "wgpu", forms: &["wgpu", "wgpu:NUMBER"], compiled: compiled!("wgpu" WGPU) },
    Family { name: HOST, forms: &[HOST], compiled: compiled!("host" HOST_MEMORY) },
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
const CUDA: Compiled = Compiled {
    list: || {
        let devices = vrampool_cuda::list()?.into_iter().map(|device| DeviceListing {
            name: format!("cuda:{}", device.ordinal),
            backend: "cuda",
            device: device.name,
            kind: if device.integrated { DeviceKind::Integrated } else { DeviceKind::Discrete },
            total_bytes: Some(device.total_bytes),
        });
        Ok(devices.collect())
    },
    open: |name| Ok(vrampool_cuda::CudaDevice::open_by_name(name)?.into()),
};

#[cfg(feature = "opencl")]
const OPENCL: Compiled = Compiled {
    list: || {
        let devices = vrampool_opencl::list()?.into_iter().map(|device| DeviceListing {
            name: format!("opencl:{}", device.ordinal),
            backend: "opencl",
            device: device.name,
            kind: device.kind,
            total_bytes: Some(device.total_bytes),
        });
        Ok(devices.collect())
    },
    open: |name| Ok(vrampool_opencl::OpenClDevice::open_by_name(name)?.into()),
};

#[cfg(feature = "wgpu")]
const WGPU: Compiled = Compiled {
    list: || {
        let devices = vrampool_wgpu::list()?.into_iter().map(|device| DeviceListing {
            name: format!("wgpu:{}", device.ordinal),
            backend: "wgpu",
            device: device.name,
            kind: device.kind,
            total_bytes: None,
        });
        Ok(devices.collect())
    },
    open: |name| Ok(vrampool_wgpu::WgpuDevice::open_by_name(name)?.into()),
};

/// The host's device, one for the process: a device that is opened again is the same.
#[cfg(feature = "host")]
static HOST_DEVICE: LazyLock<vrampool_host::HostDevice> = LazyLock::new(vrampool_host::HostDevice::new);

#[cfg(feature = "host")]
const HOST_MEMORY: Compiled = Compiled {
    list: || {
        let properties = HOST_DEVICE.properties();
        Ok(vec![DeviceListing {
            name: HOST.into(),
            backend: HOST,
            device: properties.name.clone(),
            kind: DeviceKind::Cpu,
            total_bytes: Some(properties.total_bytes),
        }])
    },
    open: |_| Ok(HOST_DEVICE.clone().into()),
};
