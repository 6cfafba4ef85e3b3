//! Vulkan functions beyond wgpu's public API: the mapping of a buffer that is in use, and memory heaps.

use super::heap::Heap;
use ash::vk;
use vrampool_backend::BackendError;
use wgpu::hal::{Device as _, api::Vulkan};

/// The largest heap of the device's own memory; `None` for a device that is none of Vulkan's. How much is free
/// is known where the driver has `VK_EXT_memory_budget`.
pub(crate) fn heap(device: &wgpu::Device) -> Option<Heap> {
    // SAFETY: what comes is only asked for its physical device, never destroyed.
    let device = unsafe { device.as_hal::<Vulkan>() }?;
    let instance = device.shared_instance();
    let has_budget = instance.instance_api_version() >= vk::API_VERSION_1_1
        && device.enabled_device_extensions().contains(&ash::ext::memory_budget::NAME);
    let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
    let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
    let physical = device.raw_physical_device();
    let memory = if has_budget {
        properties = properties.push_next(&mut budget);
        // SAFETY: the device is of this instance, which is one of Vulkan 1.1, and has the extension of the
        // chained struct.
        unsafe { instance.raw_instance().get_physical_device_memory_properties2(physical, &mut properties) };
        properties.memory_properties
    } else {
        // SAFETY: the device is of this instance, and both are alive.
        unsafe { instance.raw_instance().get_physical_device_memory_properties(physical) }
    };
    let own = memory.memory_heaps_as_slice().iter().enumerate();
    let own = own.filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL));
    let (index, heap) = own.max_by_key(|(_, heap)| heap.size)?;
    let free = budget.heap_budget[index].saturating_sub(budget.heap_usage[index]).min(heap.size);
    Some(Heap { total: heap.size, free: has_budget.then_some(free) })
}

/// Whether [`write`] and [`read`] work on buffers of this device.
pub(crate) fn can_map(device: &wgpu::Device) -> bool {
    // SAFETY: as in `heap`.
    let vulkan = unsafe { device.as_hal::<Vulkan>() }.is_some();
    vulkan && device.features().contains(wgpu::Features::MAPPABLE_PRIMARY_BUFFERS)
}

/// Copies `bytes` to `offset` of a buffer with the usage `MAP_WRITE`, in use or not.
pub(crate) fn write(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    offset: u64,
    bytes: &[u8],
) -> Result<(), BackendError> {
    mapped(device, buffer, offset, bytes.len(), |start| {
        // SAFETY: `mapped` promises as many bytes there; the host's slice is no memory of the device.
        unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    })
}

/// Copies from `offset` of a buffer with the usage `MAP_READ`, in use or not.
pub(crate) fn read(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    offset: u64,
    bytes: &mut [u8],
) -> Result<(), BackendError> {
    mapped(device, buffer, offset, bytes.len(), |start| {
        // SAFETY: as in `write`.
        unsafe { start.copy_to_nonoverlapping(bytes.as_mut_ptr(), bytes.len()) };
    })
}

/// Calls `copy` with the address of `offset`, behind which `len` bytes are mapped for as long as the call
/// takes.
///
/// wgpu's own mapping excludes work on *any* byte of the buffer. But the memory of a buffer with a mapped
/// usage is mapped all its life (wgpu-hal's `Device::map_buffer` only looks the address up), and it is
/// coherent.
fn mapped(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    offset: u64,
    len: usize,
    copy: impl FnOnce(*mut u8),
) -> Result<(), BackendError> {
    let usages = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE;
    match offset.checked_add(len as u64) {
        Some(end) if end <= buffer.size() && buffer.usage().contains(usages) => {}
        _ => return Err(BackendError::invalid("range", "it leaves the mapping")),
    }
    let destroyed = || BackendError::lost("the buffer was destroyed");
    // SAFETY: neither device nor buffer is destroyed by hand. The buffer's guard holds off all other code that
    // would: wgpu takes a buffer's memory away under the lock that the guard has.
    let hal_device = unsafe { device.as_hal::<Vulkan>() }.ok_or_else(destroyed)?;
    // SAFETY: as above.
    let hal_buffer = unsafe { buffer.as_hal::<Vulkan>() }.ok_or_else(destroyed)?;
    let range = offset..offset + len as u64;
    // SAFETY: wgpu made the buffer with a mapped usage, so that its memory is mapped; the range is in it.
    let mapping = unsafe { hal_device.map_buffer(&hal_buffer, range) };
    let mapping = mapping.map_err(|error| BackendError::driver("vkMapMemory", 0, error.to_string()))?;
    if !mapping.is_coherent {
        return Err(BackendError::unsupported("mapping memory that is not coherent"));
    }
    copy(mapping.ptr.as_ptr());
    Ok(())
}
