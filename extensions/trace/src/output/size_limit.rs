//! The process's limit on the size of files (`ulimit -f`).
//!
//! A write or an extension over the limit is not an error but a signal, SIGXFSZ, which ends the process. So
//! it is checked before.

use std::io;

/// Checks that a file may have `bytes` bytes.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`].
pub(crate) fn check(bytes: u64) -> io::Result<()> {
    match limit() {
        Some(limit) if bytes > limit => {
            let reason = format!(
                "{bytes} bytes are over the limit of {limit} on the size of files; raise it (ulimit -f)"
            );
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        _ => Ok(()),
    }
}

#[cfg(unix)]
fn limit() -> Option<u64> {
    use rustix::process::{Resource, getrlimit};
    getrlimit(Resource::Fsize).current
}

/// Other systems have none.
#[cfg(not(unix))]
fn limit() -> Option<u64> {
    None
}
