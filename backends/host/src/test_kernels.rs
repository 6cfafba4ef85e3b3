//! Kernels for tests: writing a pattern and counting mismatches.

use crate::memory::HostMemory;
use crate::stream::HostStream;
use vrampool_backend::{BackendError, Region, RegionMut};

/// Kernels that verify memory and the order of streams. Tests use them, and so does `vrampool replay --touch`.
///
/// Each enqueues its work on `stream` and returns.
///
/// ```
/// use vrampool_host::{AllocationRequest, Backend, HostDevice, Placement, Region, RegionMut, TestKernels};
/// # fn main() -> Result<(), vrampool_host::BackendError> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let memory = |bytes| device.allocate(&AllocationRequest::new(bytes, Placement::Device));
/// let (bytes, count) = (memory(1000)?, memory(8)?);
/// device.fill(&stream, RegionMut::whole(&count, &stream), 0)?;
/// TestKernels.write_pattern(&stream, RegionMut::whole(&bytes, &stream), 7)?;
/// TestKernels.count_mismatches(&stream, Region::whole(&bytes, &stream), 7, RegionMut::whole(&count, &stream))?;
/// let mut mismatches = [1; 8];
/// device.download(&stream, Region::whole(&count, &stream), &mut mismatches)?;
/// assert_eq!(mismatches, [0; 8]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct TestKernels;

impl TestKernels {
    /// Writes bytes that show which `seed` wrote them, and where.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a region of another stream or device.
    pub fn write_pattern(
        self,
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

    /// Adds to the little-endian `u64` in `count` how many of `bytes` are not as
    /// [`write_pattern`](Self::write_pattern) writes them.
    ///
    /// # Errors
    /// As [`write_pattern`](Self::write_pattern), and for regions that overlap.
    pub fn count_mismatches(
        self,
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

/// Bytes that show which seed wrote them, and where.
fn word(seed: u64, index: usize) -> [u8; 8] {
    let mixed = seed.wrapping_add(index as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 32)).to_le_bytes()
}
