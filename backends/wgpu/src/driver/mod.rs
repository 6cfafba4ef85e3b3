//! What interfaces of wgpu have beyond its public API, and the backend does without where they have not: how much
//! memory there is, and the mapping of a buffer that is in use. Everything that goes below wgpu is here.

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
    vulkan::heap(device)
}
