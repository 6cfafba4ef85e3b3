//! Sizes as text.

use crate::failure;
use pyo3::prelude::*;
use pyo3::types::PyString;
use vrampool_backend::Amount;

/// The bytes of a text such as `512MiB`, by the library's parser.
#[pyfunction]
pub(crate) fn size(text: &Bound<'_, PyString>, name: &str) -> PyResult<u64> {
    let given = text.to_string_lossy();
    Amount::parse_bytes(&given).map_err(|invalid| {
        let kind = if invalid.is_too_large() { "ArgumentOverflowError" } else { "InvalidArgumentError" };
        failure::of_kind(text.py(), kind, format!("{name}={given:?} is not a size: {invalid}"))
    })
}
