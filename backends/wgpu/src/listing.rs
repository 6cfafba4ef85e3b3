//! Available adapters.

use crate::error::now;
use std::sync::OnceLock;
use vrampool_backend::{BackendError, DeviceKind, DeviceListing, fork};

/// The name of this backend, which names of devices begin with.
pub(crate) const BACKEND: &str = "wgpu";

/// Every adapter that wgpu lists by Vulkan, Metal or DirectX 12; where there is none, by OpenGL. wgpu's
/// environment variable `WGPU_BACKEND`, such as `gl` or `dx12,vulkan`, chooses others. GPUs come before processors that
/// act as one. Reading the list opens no adapter.
///
/// # Errors
/// [`BackendError::Unavailable`] without a driver or a device; [`BackendError::WouldBlock`] in a browser.
pub fn list() -> Result<Vec<DeviceListing>, BackendError> {
    fork::check()?;
    let adapters = adapters()?;
    Ok(adapters.iter().enumerate().map(|(ordinal, adapter)| describe(ordinal, &adapter.get_info())).collect())
}

/// In the order of their numbers; at least one.
pub(crate) fn adapters() -> Result<Vec<wgpu::Adapter>, BackendError> {
    now(request_adapters()).ok_or_else(|| BackendError::would_block("listing devices"))?
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

pub(crate) fn describe(ordinal: usize, info: &wgpu::AdapterInfo) -> DeviceListing {
    let name = if info.name.is_empty() { "unnamed" } else { &info.name };
    let mut listed = DeviceListing::new(BACKEND, ordinal, name);
    listed.kind = match info.device_type {
        wgpu::DeviceType::IntegratedGpu => DeviceKind::Integrated,
        wgpu::DeviceType::Cpu => DeviceKind::Cpu,
        _ => DeviceKind::Discrete,
    };
    listed.interface = info.backend.to_string();
    listed
}
