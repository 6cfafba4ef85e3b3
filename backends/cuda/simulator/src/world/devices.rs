//! Attributes of devices, and accounts of their memory.

use super::World;
use crate::code::{Answer, Code};
use crate::objects::device::Device;
use std::ffi::c_int;

impl World {
    pub(crate) fn device(&mut self, number: c_int) -> Answer<&mut Device> {
        let number = usize::try_from(number).map_err(|_| Code::INVALID_DEVICE)?;
        self.devices.get_mut(number).ok_or(Code::INVALID_DEVICE)
    }

    /// By the numbers of `CUdevice_attribute`.
    pub(crate) fn attribute(&self, attribute: c_int) -> Answer<c_int> {
        let settings = &self.settings;
        Ok(match attribute {
            // Threads of a block, in all and by dimension; blocks of a grid by dimension.
            1..=3 => 1024,
            4 => 64,
            5 => i32::MAX,
            6 | 7 => 65_535,
            // Warp size, multiprocessors, overlap of copies, threads of a multiprocessor.
            10 => 32,
            16 => 4,
            15 | 40 => 1,
            39 => 2048,
            18 => c_int::from(settings.integrated),
            // Mapped host memory, concurrent kernels, unified addressing, priorities, managed memory.
            19 | 31 | 41 | 78 | 83 => 1,
            // Compute capability.
            75 => 9,
            76 => 0,
            // Concurrent managed access.
            89 => 1,
            102 => c_int::from(settings.virtual_memory),
            // Handles as file descriptors; network cards with virtual memory.
            103 | 110 => c_int::from(settings.virtual_memory),
            115 => c_int::from(settings.pools),
            116 => 1,
            // Handle types of pools: file descriptors.
            119 => 1,
            _ if (1..=160).contains(&attribute) => 0,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    pub(crate) fn free_bytes(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |device| self.settings.memory.saturating_sub(device.used))
    }

    /// Takes memory of a device.
    pub(crate) fn charge(&mut self, device: usize, bytes: u64) -> Answer {
        self.collect_exports();
        if bytes > self.free_bytes(device) {
            return Err(Code::OUT_OF_MEMORY);
        }
        if let Some(device) = self.devices.get_mut(device) {
            device.used += bytes;
        }
        Ok(())
    }

    pub(crate) fn discharge(&mut self, device: usize, bytes: u64) {
        if let Some(device) = self.devices.get_mut(device) {
            device.used = device.used.saturating_sub(bytes);
        }
    }
}
