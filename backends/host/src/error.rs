//! Conversion of the system's errors to errors of the contract.

use rustix::io::Errno;
use vrampool_backend::{BackendError, Scarce};

/// Converts an error of the system: a lack of memory (also of addresses and mappings), or another error.
pub(crate) fn no_memory_or(call: &'static str, error: Errno, requested: u64, scarce: Scarce) -> BackendError {
    match error {
        Errno::NOMEM => BackendError::lacks(requested, scarce),
        error => driver_error(call, error),
    }
}

/// Converts an error of the system.
pub(crate) fn driver_error(call: &'static str, error: Errno) -> BackendError {
    BackendError::driver(call, error.raw_os_error().into(), error.to_string())
}
