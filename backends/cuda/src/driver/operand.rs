//! What kernels are given, checked before they are, and how many threads they get.

use crate::memory::CudaMemory;
use crate::stream::CudaStream;
use crate::view::{CudaView, CudaViewMut};
use cudarc::driver::{DeviceSlice, LaunchConfig};
use vrampool_backend::{BackendError, Region, RegionMut};

/// As `kernels.cu` has them.
pub(super) const TILE: u64 = 16;
pub(super) const THREADS: u32 = 256;
/// More than any device runs at once; each thread goes on to the next elements.
const MOST_BLOCKS: u64 = 4096;

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
    pub region: Region<'a, CudaMemory>,
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

impl<'a> Factor<'a> {
    /// Refuses one whose elements leave its region.
    pub(super) fn view(&self, stream: &CudaStream) -> Result<CudaView<'a, f32>, BackendError> {
        let view = stream.view(self.region.clone())?;
        let far = |count: usize, stride: usize| count.checked_sub(1)?.checked_mul(stride);
        let last = far(self.rows, self.strides.0).zip(far(self.columns, self.strides.1));
        match last.map(|(row, column)| row.checked_add(column)) {
            // No elements at all.
            None if self.rows == 0 || self.columns == 0 => Ok(view),
            Some(Some(last)) if last < view.len() => Ok(view),
            _ => Err(BackendError::invalid(
                "factor",
                format!("{} x {} elements leave a region of {}", self.rows, self.columns, view.len()),
            )),
        }
    }
}

pub(super) fn floats<'a>(
    stream: &CudaStream,
    region: RegionMut<'a, CudaMemory>,
    count: Option<usize>,
) -> Result<CudaViewMut<'a, f32>, BackendError> {
    let view = stream.view_mut(region)?;
    of_length("region", view.len(), count.unwrap_or(view.len()))?;
    Ok(view)
}

pub(super) fn of_length(argument: &'static str, found: usize, wanted: usize) -> Result<(), BackendError> {
    match found == wanted {
        true => Ok(()),
        false => Err(BackendError::invalid(argument, format!("it has {found} elements, not {wanted}"))),
    }
}

pub(super) fn aligned(region: &Region<'_, CudaMemory>) -> Result<(), BackendError> {
    match region.address() {
        Some(address) if !address.is_multiple_of(4) => {
            Err(BackendError::invalid("region", "it does not begin at a multiple of 4"))
        }
        _ => Ok(()),
    }
}

/// Refuses a written region that overlaps another one.
pub(super) fn apart(
    read: &[&Region<'_, CudaMemory>],
    written: &[&Region<'_, CudaMemory>],
) -> Result<(), BackendError> {
    let others = |nth| read.iter().chain(&written[..nth]);
    if written.iter().enumerate().any(|(nth, region)| others(nth).any(|other| region.overlaps(other))) {
        return Err(BackendError::invalid("region", "a written range overlaps another one of the same call"));
    }
    Ok(())
}

pub(super) fn blocks(count: u64) -> Result<u32, BackendError> {
    let fits = u32::try_from(count).ok().filter(|&count| count <= i32::MAX as u32);
    fits.ok_or_else(|| BackendError::invalid("product", "it has more tiles than a launch has blocks"))
}

/// As many threads as elements, or fewer, which take several in turn.
pub(super) fn elements(count: u64) -> LaunchConfig {
    let blocks = count.div_ceil(u64::from(THREADS)).clamp(1, MOST_BLOCKS);
    LaunchConfig { grid_dim: (blocks as u32, 1, 1), block_dim: (THREADS, 1, 1), shared_mem_bytes: 0 }
}

pub(super) fn one_block(threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (1, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}
