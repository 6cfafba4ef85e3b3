//! The place of an interface that is not compiled in, or does not exist on this platform.

use super::heap::Heap;
use vrampool_backend::BackendError;

pub(crate) fn heap(_: &wgpu::Device) -> Option<Heap> {
    None
}

pub(crate) fn can_map(_: &wgpu::Device) -> bool {
    false
}

pub(crate) fn write(_: &wgpu::Device, _: &wgpu::Buffer, _: u64, _: &[u8]) -> Result<(), BackendError> {
    Err(unsupported())
}

pub(crate) fn read(_: &wgpu::Device, _: &wgpu::Buffer, _: u64, _: &mut [u8]) -> Result<(), BackendError> {
    Err(unsupported())
}

fn unsupported() -> BackendError {
    BackendError::unsupported("mapping memory that is in use without Vulkan")
}
