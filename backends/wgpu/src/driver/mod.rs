//! Functions of single interfaces beyond wgpu's public API, all of them optional: the size and use of memory,
//! and the mapping of a buffer in use. No other module goes below wgpu.

#[cfg(all(feature = "dx12", windows))]
mod dx12;
mod heap;
#[cfg(all(feature = "metal", target_vendor = "apple"))]
mod metal;
#[cfg_attr(
    not(all(
        feature = "vulkan",
        any(windows, target_os = "linux", target_os = "android", target_os = "freebsd")
    )),
    path = "none.rs"
)]
mod vulkan;

pub(crate) use heap::Heap;
pub(crate) use vulkan::{can_map, read, write};

/// The largest part of the device's own memory; `None` where the interface does not report it.
pub(crate) fn heap(device: &wgpu::Device) -> Option<Heap> {
    #[cfg(all(feature = "metal", target_vendor = "apple"))]
    if let Some(heap) = metal::heap(device) {
        return Some(heap);
    }
    #[cfg(all(feature = "dx12", windows))]
    if let Some(heap) = dx12::heap(device) {
        return Some(heap);
    }
    vulkan::heap(device)
}
