//! Figures of Metal beyond wgpu's public API: the memory that the process may use, and uses.

use super::heap::Heap;
use objc2_metal::MTLDevice as _;
use wgpu::hal::api::Metal;

/// The recommended working set, and what this process has not taken of it; `None` for a device that is none of
/// Metal's.
pub(crate) fn heap(device: &wgpu::Device) -> Option<Heap> {
    // SAFETY: the device is only asked for its figures, never destroyed.
    let device = unsafe { device.as_hal::<Metal>() }?;
    let device = device.raw_device();
    let total = device.recommendedMaxWorkingSetSize();
    let used = device.currentAllocatedSize() as u64;
    (total > 0).then(|| Heap { total, free: Some(total.saturating_sub(used)) })
}
