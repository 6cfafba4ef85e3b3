//! Devices and programs that a test needs and a machine may lack.

use std::fmt::Display;
use std::path::PathBuf;
use std::sync::Once;
use vrampool_backend::{Backend, BackendError};

/// Opens the device of a backend. Without one, the test is skipped as [`skip`] describes.
///
/// # Panics
///
/// If the backend is available and `open` fails.
pub fn require<T>(backend: &str, open: impl FnOnce() -> Result<T, BackendError>) -> Option<T> {
    match open() {
        Ok(device) => Some(device),
        Err(error) if error.is_unavailable() => {
            skip(backend, error);
            None
        }
        Err(error) => panic!("{backend} is available, and its device fails to open: {error}"),
    }
}

/// Reports whether a device has virtual memory. Without it, what a test does with it is skipped as [`skip`]
/// describes, once in a process.
#[must_use]
pub fn has_virtual_memory<B: Backend>(device: &B) -> bool {
    static SKIPPED: Once = Once::new();
    let has = device.virtual_memory().is_some();
    if !has {
        SKIPPED.call_once(|| skip("virtual_memory", "the device has no virtual memory on this system"));
    }
    has
}

/// Finds a program in `PATH`. Without it, the test is skipped as [`skip`] describes.
#[must_use]
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
    if found.is_none() {
        skip(name, format_args!("{name} is not installed"));
    }
    found
}

/// Reports that a test is skipped because `name` is missing.
///
/// # Panics
///
/// If the environment variable `VRAMPOOL_REQUIRE`, a list separated by commas, contains `name`.
pub fn skip(name: &str, reason: impl Display) {
    let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|required| required == name);
    assert!(!is_required, "VRAMPOOL_REQUIRE lists {name}, which is unavailable: {reason}");
    eprintln!("skipped: {reason}");
}
