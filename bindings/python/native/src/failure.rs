//! Failures as exceptions of the package.

use crate::call::call;
use pyo3::prelude::*;
use vrampool_c::Status;

/// This thread's last failure, of this status, as an exception.
#[cold]
pub(crate) fn of_status(py: Python<'_>, status: Status) -> PyErr {
    let failure = || {
        let library = py.import("vrampool._library")?.getattr("LIBRARY")?;
        call(&library.getattr("failure")?, (status.0,))
    };
    failure().map_or_else(|error| error, PyErr::from_value)
}

/// An exception of `vrampool.errors`.
#[cold]
pub(crate) fn of_kind(py: Python<'_>, kind: &str, text: String) -> PyErr {
    let failure = || py.import("vrampool.errors")?.getattr(kind).and_then(|kind| call(&kind, (text,)));
    failure().map_or_else(|error| error, PyErr::from_value)
}

/// Whether an exception is one of `vrampool.errors`.
#[cold]
pub(crate) fn is_of_kind(py: Python<'_>, error: &PyErr, kind: &str) -> bool {
    let kind = py.import("vrampool.errors").and_then(|errors| errors.getattr(kind));
    kind.is_ok_and(|kind| error.is_instance(py, &kind))
}
