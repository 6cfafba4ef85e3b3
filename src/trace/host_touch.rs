//! Writing and verifying memory on the host device.

use super::touch::Touch;
use vrampool_backend::{BackendError, Region, RegionMut};
use vrampool_host::{HostDevice, HostMemory, HostStream};

/// Writes and verifies on the host device. (Other backends' own kernels do it there.)
#[derive(Debug, Clone, Copy, Default)]
pub struct HostTouch;

impl Touch<HostDevice> for HostTouch {
    fn write(
        &self,
        stream: &HostStream,
        bytes: RegionMut<'_, HostMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        stream.launch([], [bytes], move |[], [bytes]: [&mut [u8]; 1]| {
            for (index, chunk) in bytes.chunks_mut(8).enumerate() {
                chunk.copy_from_slice(&word(seed, index)[..chunk.len()]);
            }
        })
    }

    fn verify(
        &self,
        stream: &HostStream,
        bytes: Region<'_, HostMemory>,
        seed: u64,
        count: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        stream.launch([bytes], [count], move |[bytes], [count]: [&mut [u8]; 1]| {
            let chunks = bytes.chunks(8).enumerate();
            let wrong = chunks.map(|(index, chunk)| {
                chunk.iter().zip(word(seed, index)).filter(|(found, wanted)| **found != *wanted).count()
                    as u64
            });
            let before = count.first_chunk().map_or(0, |count| u64::from_le_bytes(*count));
            count.copy_from_slice(&(before + wrong.sum::<u64>()).to_le_bytes());
        })
    }
}

/// Bytes that say which seed wrote them, and where.
fn word(seed: u64, index: usize) -> [u8; 8] {
    let mixed = seed.wrapping_add(index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).to_le_bytes()
}
