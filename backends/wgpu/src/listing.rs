//! Available adapters and their names.

use crate::error::now;
use crate::gpu::would_block;
use std::sync::OnceLock;
use vrampool_backend::{BackendError, DeviceKind, fork};

/// The name of this backend, which names of devices begin with.
pub(crate) const BACKEND: &str = "wgpu";

/// An adapter that wgpu lists. Reading the list opens no adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WgpuListing {
    /// Its number in the list, in which GPUs come before processors that act as one.
    pub ordinal: usize,
    /// Its name, for people.
    pub name: String,
    /// Discrete, integrated or the host's processor. An adapter whose kind wgpu does not know counts as discrete.
    pub kind: DeviceKind,
    /// The interface it is reached by, such as `vulkan`.
    pub api: String,
    /// The driver's name and version.
    pub driver: String,
}

impl WgpuListing {
    /// Whether it is a processor that acts as a GPU.
    #[must_use]
    pub fn is_cpu(&self) -> bool {
        self.kind == DeviceKind::Cpu
    }
}

/// Every adapter that wgpu lists by Vulkan, Metal or DirectX 12; where there is none, by OpenGL. wgpu's
/// environment variable `WGPU_BACKEND`, such as `gl` or `dx12,vulkan`, chooses others.
///
/// # Errors
/// [`BackendError::Unavailable`] without a driver or a device; [`BackendError::WouldBlock`] in a browser.
pub fn list() -> Result<Vec<WgpuListing>, BackendError> {
    fork::check()?;
    let adapters = adapters()?;
    Ok(adapters.iter().enumerate().map(|(ordinal, adapter)| describe(ordinal, &adapter.get_info())).collect())
}

/// In the order of their numbers; at least one.
pub(crate) fn adapters() -> Result<Vec<wgpu::Adapter>, BackendError> {
    now(request_adapters()).ok_or_else(|| would_block("listing devices"))?
}

/// As [`adapters`], as a future, which is ready at once outside a browser.
pub(crate) async fn request_adapters() -> Result<Vec<wgpu::Adapter>, BackendError> {
    static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
    // OpenGL only where it is asked for: wgpu's OpenGL panics where several threads list devices at once.
    let backends = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::PRIMARY);
    let instance = INSTANCE.get_or_init(|| new_instance(backends));
    let mut adapters = instance.enumerate_adapters(backends).await;
    if adapters.is_empty() {
        return Err(BackendError::unavailable(BACKEND, absent()));
    }
    adapters.sort_by_key(|adapter| adapter.get_info().device_type == wgpu::DeviceType::Cpu);
    Ok(adapters)
}

fn new_instance(backends: wgpu::Backends) -> wgpu::Instance {
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        // The same in every build; validation layers are asked for by wgpu's environment variables.
        flags: wgpu::InstanceFlags::empty().with_env(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

/// Why there is no adapter.
fn absent() -> String {
    if cfg!(target_arch = "wasm32") {
        return "the browser has no WebGPU, or no adapter for it".into();
    }
    let enabled = wgpu::Instance::enabled_backend_features();
    let asked = wgpu::Backends::from_env().unwrap_or(wgpu::Backends::PRIMARY) & enabled;
    let names = [
        (wgpu::Backends::VULKAN, "Vulkan"),
        (wgpu::Backends::METAL, "Metal"),
        (wgpu::Backends::DX12, "DirectX 12"),
        (wgpu::Backends::GL, "OpenGL"),
    ];
    let names: Vec<_> =
        names.into_iter().filter(|(backend, _)| asked.contains(*backend)).map(|(_, name)| name).collect();
    if names.is_empty() {
        return "no interface that this program was built with is asked for; see WGPU_BACKEND".into();
    }
    let help = if cfg!(target_os = "linux") {
        "; on Debian, `apt install mesa-vulkan-drivers` adds one on the processor"
    } else {
        ""
    };
    format!("no {} device was found{help}", names.join(" or "))
}

pub(crate) fn describe(ordinal: usize, info: &wgpu::AdapterInfo) -> WgpuListing {
    WgpuListing {
        ordinal,
        name: if info.name.is_empty() { "unnamed".into() } else { info.name.clone() },
        kind: match info.device_type {
            wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
            wgpu::DeviceType::Cpu => DeviceKind::Cpu,
            _ => DeviceKind::Discrete,
        },
        api: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
    }
}

/// The number of the device that `name` names: `wgpu`, `wgpu:1`, or `1`.
pub(crate) fn find(name: &str, devices: &[WgpuListing]) -> Result<usize, BackendError> {
    let number = if name == BACKEND { "0" } else { name.strip_prefix("wgpu:").unwrap_or(name) };
    let by_number = number.parse().ok().filter(|&ordinal: &usize| ordinal < devices.len());
    by_number.ok_or_else(|| {
        let there: Vec<_> =
            devices.iter().map(|d| format!("wgpu:{} ({}, {})", d.ordinal, d.name, d.api)).collect();
        BackendError::invalid("device", format!("{name:?} names none of {}", there.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_number() {
        let (_, api, driver) = ((), "vulkan".to_owned(), "test 1.0".to_owned());
        let device = |ordinal, kind| {
            let name = format!("Test {ordinal}");
            WgpuListing { ordinal, name, kind, api: api.clone(), driver: driver.clone() }
        };
        let devices = [device(0, DeviceKind::Discrete), device(1, DeviceKind::Cpu)];
        assert!(!devices[0].is_cpu() && devices[1].is_cpu());
        for (name, ordinal) in [("wgpu", 0), ("wgpu:0", 0), ("wgpu:1", 1), ("1", 1)] {
            assert_eq!(find(name, &devices).expect(name), ordinal, "{name}");
        }
        for name in ["", "2", "wgpu:2", "wgpu:", "wgpu:-1", "cuda:0", "Test 0"] {
            let error = find(name, &devices).expect_err(name).to_string();
            assert!(error.contains("wgpu:0 (Test 0, vulkan), wgpu:1 (Test 1"), "{error}");
        }
    }
}
