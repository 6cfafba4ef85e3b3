//! DirectX functions beyond wgpu's public API: the budget of video memory, and its use by this process.

use super::heap::Heap;
use wgpu::hal::api::Dx12;
use windows::Win32::Graphics::Dxgi::{
    CreateDXGIFactory1, DXGI_MEMORY_SEGMENT_GROUP_LOCAL, DXGI_QUERY_VIDEO_MEMORY_INFO, IDXGIAdapter3,
    IDXGIFactory4,
};

/// The adapter's budget for this process, and the part of it that the process has not taken. Returns `None`
/// for a device of another interface, and where the system does not report a budget.
pub(crate) fn heap(device: &wgpu::Device) -> Option<Heap> {
    // SAFETY: the device is only read, never destroyed.
    let device = unsafe { device.as_hal::<Dx12>() }?;
    // SAFETY: the guard keeps the device alive.
    let adapter = unsafe { device.raw_device().GetAdapterLuid() };
    // SAFETY: the call has no arguments, and its result is checked.
    let factory: IDXGIFactory4 = unsafe { CreateDXGIFactory1() }.ok()?;
    // SAFETY: the factory is alive; the number of a removed adapter is an error.
    let adapter: IDXGIAdapter3 = unsafe { factory.EnumAdapterByLuid(adapter) }.ok()?;
    let mut info = DXGI_QUERY_VIDEO_MEMORY_INFO::default();
    // SAFETY: the adapter is alive, node 0 always exists, and the struct outlives the call.
    unsafe { adapter.QueryVideoMemoryInfo(0, DXGI_MEMORY_SEGMENT_GROUP_LOCAL, &mut info) }.ok()?;
    let free = info.Budget.saturating_sub(info.CurrentUsage);
    (info.Budget > 0).then_some(Heap { total: info.Budget, free: Some(free) })
}
