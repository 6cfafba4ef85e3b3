//! Checks of kernel operands before a launch, and the number of threads.

use crate::gpu::GRANULARITY;
use crate::memory::WgpuMemory;
use crate::stream::WgpuStream;
use vrampool_backend::{BackendError, Region};
use wgpu::BufferUsages;

/// Threads of a group of this crate's own kernels.
const THREADS: u32 = 256;
/// More than any device runs at once; each thread goes on to the next elements.
const MOST_GROUPS: u64 = 4096;
/// Bytes of a word, of which everything is made that kernels are given.
const WORD: u64 = 4;

/// A region as a storage binding, which begins at an aligned offset, and the number of the region's first
/// word there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operand<'a> {
    pub(crate) buffer: &'a wgpu::Buffer,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) at: u32,
    /// Words of the region; the last one may be less than whole.
    pub(crate) words: u32,
}

impl<'a> Operand<'a> {
    /// `region`, made for `stream`, of any number of bytes from a whole word on.
    pub(crate) fn bytes(
        stream: &WgpuStream,
        region: &'a Region<'_, WgpuMemory>,
    ) -> Result<Self, BackendError> {
        stream.check_regions(&[region], &[])?;
        let refused = |reason: String| Err(BackendError::invalid("region", reason));
        let (buffer, limits) = (region.memory().buffer(), &stream.device.limits);
        if !buffer.usage().contains(BufferUsages::STORAGE) {
            return refused(format!("its memory was allocated for {:?}, without STORAGE", buffer.usage()));
        }
        if !region.offset().is_multiple_of(GRANULARITY) {
            return refused(format!("its offset, {}, is not a multiple of {WORD}", region.offset()));
        }
        let alignment = u64::from(limits.min_storage_buffer_offset_alignment);
        let offset = region.offset() / alignment * alignment;
        let words = region.len().div_ceil(WORD);
        let at = (region.offset() - offset) / WORD;
        let size = (at + words) * WORD;
        match (u32::try_from(at), u32::try_from(words)) {
            (Ok(at), Ok(words)) if size <= limits.max_storage_buffer_binding_size => {
                Ok(Self { buffer, offset, size, at, words })
            }
            _ => refused(format!(
                "{} bytes are more than the {} that this device binds",
                region.len(),
                limits.max_storage_buffer_binding_size
            )),
        }
    }

    /// `region` as floats, or other words.
    pub(crate) fn new(stream: &WgpuStream, region: &'a Region<'_, WgpuMemory>) -> Result<Self, BackendError> {
        if !region.len().is_multiple_of(WORD) {
            let reason = format!("{} bytes are not a whole number of elements", region.len());
            return Err(BackendError::invalid("region", reason));
        }
        Self::bytes(stream, region)
    }

    /// As [`new`](Self::new), and it has `words` elements.
    pub(crate) fn of_length(
        stream: &WgpuStream,
        region: &'a Region<'_, WgpuMemory>,
        words: u32,
    ) -> Result<Self, BackendError> {
        let operand = Self::new(stream, region)?;
        match operand.words == words {
            true => Ok(operand),
            false => Err(BackendError::invalid(
                "region",
                format!("it has {} elements, not {words}", operand.words),
            )),
        }
    }
}

/// As many threads as elements, or fewer, which take several in turn.
pub(crate) fn elements(count: u32) -> (u32, u32) {
    (u64::from(count).div_ceil(u64::from(THREADS)).clamp(1, MOST_GROUPS) as u32, 1)
}
