//! The sizes of a kernel's operands, checked before a launch.
//!
//! Refused as [`BackendError::InvalidArgument`]: operands whose sizes do not fit each other, a matrix whose
//! elements leave its region, and a written region that overlaps another one. Kernels access elements without
//! a check of their own, so the unsafe launches of the backends rely on this module. Sizes are in elements of
//! 4 bytes.

use super::view::{View, ViewMut};
use vrampool::{BackendError, Memory, Region, RegionMut};

/// Bytes of an element.
const ELEMENT: u64 = 4;

/// The sizes of a product: `rows` × `inner` times `inner` × `columns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Product {
    pub(super) rows: u64,
    pub(super) inner: u64,
    pub(super) columns: u64,
}

pub(super) fn product<M: Memory>(
    left: &View<'_, M>,
    right: &View<'_, M>,
    product: &ViewMut<'_, M>,
) -> Result<Product, BackendError> {
    if left.columns != right.rows {
        let reason = format!("{} columns and {} rows are not compatible", left.columns, right.rows);
        return Err(BackendError::invalid("factors", reason));
    }
    check_disjoint(&[&left.region, &right.region], &[&product.region])?;
    within(left)?;
    within(right)?;
    let [rows, inner, columns] = [left.rows, left.columns, right.columns].map(|count| count as u64);
    let found = elements(&product.region.as_region())?;
    if rows.checked_mul(columns) != Some(found) {
        let reason = format!("it has {found} elements, not {rows} x {columns}");
        return Err(BackendError::invalid("product", reason));
    }
    Ok(Product { rows, inner, columns })
}

/// The columns of the bias, at least 1, and the number of values.
pub(super) fn bias<M: Memory>(
    bias: &Region<'_, M>,
    values: &RegionMut<'_, M>,
) -> Result<[u64; 2], BackendError> {
    check_disjoint(&[bias], &[values])?;
    match elements(bias)? {
        0 => Err(BackendError::invalid("bias", "it has no columns")),
        columns => Ok([columns, elements(&values.as_region())?]),
    }
}

/// The number of elements of `read` and of each written region.
pub(super) fn elementwise<M: Memory>(
    read: &Region<'_, M>,
    written: &[&RegionMut<'_, M>],
) -> Result<u64, BackendError> {
    check_disjoint(&[read], written)?;
    let count = elements(read)?;
    written.iter().try_for_each(|region| of_length("region", &region.as_region(), count))?;
    Ok(count)
}

/// The rows of `values` and the columns of `sums`. Values behind the last whole row are left out.
pub(super) fn sums<M: Memory>(
    values: &Region<'_, M>,
    sums: &RegionMut<'_, M>,
) -> Result<[u64; 2], BackendError> {
    check_disjoint(&[values], &[sums])?;
    let (values, columns) = (elements(values)?, elements(&sums.as_region())?);
    Ok([values.checked_div(columns).unwrap_or(0), columns])
}

/// The rows and the columns of the logits, at least 1 each.
pub(super) fn logits<M: Memory>(
    labels: &Region<'_, M>,
    logits: &RegionMut<'_, M>,
    tally: &RegionMut<'_, M>,
) -> Result<[u64; 2], BackendError> {
    check_disjoint(&[labels], &[logits, tally])?;
    of_length("tally", &tally.as_region(), 2)?;
    let (rows, logits) = (elements(labels)?, elements(&logits.as_region())?);
    match logits.checked_div(rows) {
        Some(columns) if columns > 0 && rows * columns == logits => Ok([rows, columns]),
        _ => Err(BackendError::invalid(
            "logits",
            format!("{logits} logits are not whole rows for {rows} labels"),
        )),
    }
}

/// The number of oscillators, at least 1, and the rows of states.
pub(super) fn oscillators<M: Memory>(
    parameters: &Region<'_, M>,
    states: &RegionMut<'_, M>,
) -> Result<[u64; 2], BackendError> {
    check_disjoint(&[parameters], &[states])?;
    let (parameters, states) = (elements(parameters)?, elements(&states.as_region())?);
    let runs = parameters / 3;
    if runs == 0 || !parameters.is_multiple_of(3) || !states.is_multiple_of(runs) {
        let reason = format!("{parameters} parameters have no rows of states among {states}");
        return Err(BackendError::invalid("states", reason));
    }
    Ok([runs, states / runs])
}

/// Refuses a written region that overlaps another one.
fn check_disjoint<M: Memory>(
    read: &[&Region<'_, M>],
    written: &[&RegionMut<'_, M>],
) -> Result<(), BackendError> {
    let written: Vec<_> = written.iter().map(|region| region.as_region()).collect();
    for (nth, region) in written.iter().enumerate() {
        if read.iter().copied().chain(&written[..nth]).any(|other| region.overlaps(other)) {
            let reason = "a written range overlaps another one of the same call";
            return Err(BackendError::invalid("region", reason));
        }
    }
    Ok(())
}

/// Refuses a matrix whose last element is outside of its region.
fn within<M: Memory>(view: &View<'_, M>) -> Result<(), BackendError> {
    let found = elements(&view.region)?;
    let distance = |count: usize, stride: usize| count.checked_sub(1)?.checked_mul(stride);
    let last = match distance(view.rows, view.strides.0).zip(distance(view.columns, view.strides.1)) {
        Some((row, column)) => row.checked_add(column),
        // A matrix without elements.
        None if view.rows == 0 || view.columns == 0 => return Ok(()),
        None => None,
    };
    if last.is_some_and(|last| (last as u64) < found) {
        return Ok(());
    }
    let reason = format!("{} x {} elements leave a region of {found}", view.rows, view.columns);
    Err(BackendError::invalid("factor", reason))
}

fn of_length<M: Memory>(
    argument: &'static str,
    region: &Region<'_, M>,
    count: u64,
) -> Result<(), BackendError> {
    match elements(region)? {
        found if found == count => Ok(()),
        found => Err(BackendError::invalid(argument, format!("it has {found} elements, not {count}"))),
    }
}

fn elements<M: Memory>(region: &Region<'_, M>) -> Result<u64, BackendError> {
    if region.len().is_multiple_of(ELEMENT) {
        return Ok(region.len() / ELEMENT);
    }
    let reason = format!("{} bytes are not a whole number of elements", region.len());
    Err(BackendError::invalid("region", reason))
}
