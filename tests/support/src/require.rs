//! Devices and programs that a test needs and a machine may lack.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
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

/// Checks that each answer of a process without devices is that, of this backend. Returns the texts.
///
/// # Panics
///
/// If one is another answer.
pub fn assert_unavailable(
    backend: &str,
    answers: impl IntoIterator<Item = Result<(), BackendError>>,
) -> Vec<String> {
    let text = |answer: Result<(), BackendError>| {
        let error = answer.expect_err("there is no device");
        assert!(error.is_unavailable() && !error.is_out_of_memory() && !error.is_device_lost(), "{error}");
        let BackendError::Unavailable { backend: of, reason, .. } = &error else { unreachable!() };
        assert!(*of == backend && !reason.is_empty(), "{error}");
        assert!(error.to_string().starts_with(&format!("{backend} is not available: ")), "{error}");
        error.to_string()
    };
    answers.into_iter().map(text).collect()
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
    assert_not_required(name, &reason);
    skipped(reason);
}

/// Reports, once in a process, that tests run without a backend that every device's tests look for. As [`skip`].
///
/// # Panics
///
/// If the environment variable `VRAMPOOL_REQUIRE` contains `backend`.
pub fn skip_backend(backend: &'static str, reason: impl Display) {
    static REPORTED: Mutex<Vec<&str>> = Mutex::new(Vec::new());
    assert_not_required(backend, &reason);
    let mut reported = REPORTED.lock().unwrap_or_else(PoisonError::into_inner);
    if !reported.contains(&backend) {
        reported.push(backend);
        print(format!("skipped: tests on {backend}: {reason}\n"));
    }
}

fn assert_not_required(name: &str, reason: &impl Display) {
    let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|required| required == name);
    assert!(!is_required, "VRAMPOOL_REQUIRE lists {name}, which is unavailable: {reason}");
}

/// Reports that the calling test, or a part of it, is skipped. The harness shows it although the test succeeds, which it
/// does not with `eprintln!`.
pub fn skipped(reason: impl Display) {
    let thread = thread::current();
    let test = thread.name().unwrap_or("a test");
    print(format!("skipped: {test}: {reason}\n"));
}

/// By one call, so that lines of several threads stay whole.
fn print(line: String) {
    let _ = io::stderr().write_all(line.as_bytes());
}
