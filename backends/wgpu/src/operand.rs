//! What kernels are given, checked before they are, and how many threads they get.

use crate::memory::{GRANULARITY, WgpuMemory};
use crate::stream::WgpuStream;
use vrampool_backend::{BackendError, Region};
use wgpu::BufferUsages;

/// As `kernels.wgsl` has them.
pub(crate) const TILE: u32 = 16;
pub(crate) const THREADS: u32 = 256;
/// More than any device runs at once; each thread goes on to the next elements.
const MOST_GROUPS: u64 = 4096;
/// Bytes of a word, of which everything is made that kernels are given.
const WORD: u64 = 4;

/// A matrix to be read, perhaps as its own transpose.
#[derive(Debug, Clone)]
pub struct Factor<'a> {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// How many elements the next row and the next column are away.
    pub strides: (usize, usize),
    /// Where its elements are.
    pub region: Region<'a, WgpuMemory>,
}

/// The numbers of one step of Adam.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adam {
    /// How far to go, corrections included.
    pub rate: f32,
    /// The decay of the first moment.
    pub beta_1: f32,
    /// The decay of the second moment.
    pub beta_2: f32,
    /// What keeps the divisor from 0.
    pub epsilon: f32,
}

/// A region as a storage binding, which begins at an aligned offset, and the number of the region's first word there.
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
        stream.check_regions(Some(region), None)?;
        let refused = |reason: String| Err(BackendError::invalid("region", reason));
        let (buffer, limits) = (region.memory().buffer(), stream.shared().limits());
        if !buffer.usage().contains(BufferUsages::STORAGE) {
            return refused(format!("its memory was allocated for {:?}, without STORAGE", buffer.usage()));
        }
        if !region.offset().is_multiple_of(GRANULARITY) {
            return refused(format!("its offset, {}, is no multiple of {WORD}", region.offset()));
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

impl Factor<'_> {
    /// Refuses one whose elements leave its region. Answers it with its strides.
    pub(crate) fn operand(&self, stream: &WgpuStream) -> Result<(Operand<'_>, [u32; 2]), BackendError> {
        let operand = Operand::new(stream, &self.region)?;
        let far = |count: usize, stride: usize| count.checked_sub(1)?.checked_mul(stride);
        let last = far(self.rows, self.strides.0).zip(far(self.columns, self.strides.1));
        let fits = match last.map(|(row, column)| row.checked_add(column)) {
            // No elements at all.
            None => self.rows == 0 || self.columns == 0,
            Some(last) => last.is_some_and(|last| last < operand.words as usize),
        };
        // A stride that is never gone may be any number.
        let stride = |stride: usize, count| if count > 1 { u32::try_from(stride).ok() } else { Some(0) };
        match (stride(self.strides.0, self.rows), stride(self.strides.1, self.columns)) {
            (Some(row), Some(column)) if fits => Ok((operand, [row, column])),
            _ => Err(BackendError::invalid(
                "factor",
                format!("{} x {} elements leave a region of {}", self.rows, self.columns, operand.words),
            )),
        }
    }
}

/// Refuses a written region that overlaps another one.
pub(crate) fn apart(
    read: &[&Region<'_, WgpuMemory>],
    written: &[&Region<'_, WgpuMemory>],
) -> Result<(), BackendError> {
    let others = |nth| read.iter().chain(&written[..nth]);
    if written.iter().enumerate().any(|(nth, region)| others(nth).any(|other| region.overlaps(other))) {
        return Err(BackendError::invalid("region", "a written range overlaps another one of the same call"));
    }
    Ok(())
}

/// As many threads as elements, or fewer, which take several in turn.
pub(crate) fn elements(count: u32) -> (u32, u32) {
    (u64::from(count).div_ceil(u64::from(THREADS)).clamp(1, MOST_GROUPS) as u32, 1)
}
