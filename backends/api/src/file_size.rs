//! The process's limit on the size of files (`ulimit -f`).

use std::io;

/// Checks that a file may have `bytes` bytes. A write or an extension over the limit is not an error but a signal,
/// SIGXFSZ, which ends the process.
///
/// ```
/// assert!(vrampool_backend::spi::check_file_size(0).is_ok());
/// ```
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`].
pub fn check_file_size(bytes: u64) -> io::Result<()> {
    #[cfg(unix)]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    // Other systems have none.
    #[cfg(not(unix))]
    let limit = None;
    match limit {
        Some(limit) if bytes > limit => {
            let reason = format!(
                "{bytes} bytes are over the limit of {limit} on the size of files; raise it (ulimit -f)"
            );
            Err(io::Error::new(io::ErrorKind::FileTooLarge, reason))
        }
        _ => Ok(()),
    }
}
