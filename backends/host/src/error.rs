//! Conversion of the system's errors to errors of the contract.

use rustix::io::Errno;
use std::io;
use vrampool_backend::{BackendError, Scarce};

/// What the system said: no memory, which addresses and the table of mappings are too, or something else.
pub(crate) fn no_memory_or(call: &'static str, error: Errno, requested: u64, scarce: Scarce) -> BackendError {
    match error {
        Errno::NOMEM => BackendError::lacks(requested, scarce),
        error => driver_error(call, error),
    }
}

/// What the system said.
pub(crate) fn driver_error(call: &'static str, error: Errno) -> BackendError {
    BackendError::driver(call, error.raw_os_error().into(), error.to_string())
}

/// As [`driver_error`], of a call of the standard library's.
pub(crate) fn failed(call: &'static str, error: &io::Error) -> BackendError {
    let code = error.raw_os_error().map_or(-1, i64::from);
    BackendError::driver(call, code, error.to_string())
}
