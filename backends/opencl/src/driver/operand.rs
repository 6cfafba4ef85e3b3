//! What kernels are given, checked before they are.

use crate::memory::OpenClMemory;
use crate::stream::OpenClStream;
use crate::view::{OpenClView, OpenClViewMut};
use vrampool_backend::{BackendError, Region, RegionMut};

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
    pub region: Region<'a, OpenClMemory>,
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
    pub(super) fn view(&self, stream: &OpenClStream) -> Result<OpenClView<'a, f32>, BackendError> {
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
    stream: &OpenClStream,
    region: RegionMut<'a, OpenClMemory>,
    count: Option<usize>,
) -> Result<OpenClViewMut<'a, f32>, BackendError> {
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

pub(super) fn aligned(region: &Region<'_, OpenClMemory>) -> Result<(), BackendError> {
    match region.offset().is_multiple_of(4) {
        true => Ok(()),
        false => Err(BackendError::invalid("region", "it does not begin at a multiple of 4")),
    }
}

/// Refuses a written region that overlaps another one.
pub(super) fn apart(
    read: &[&Region<'_, OpenClMemory>],
    written: &[&Region<'_, OpenClMemory>],
) -> Result<(), BackendError> {
    let others = |nth| read.iter().chain(&written[..nth]);
    if written.iter().enumerate().any(|(nth, region)| others(nth).any(|other| region.overlaps(other))) {
        return Err(BackendError::invalid("region", "a written range overlaps another one of the same call"));
    }
    Ok(())
}
