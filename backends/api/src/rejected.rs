//! An argument that a failed call returns.

use crate::BackendError;
use std::error::Error;
use std::fmt;

/// Why a call that takes a value over has failed, and the value as it was. `?` turns it into the error alone.
///
/// ```
/// use vrampool_backend::{BackendError, Rejected};
/// fn give(name: String) -> Result<(), Rejected<String>> {
///     Err(Rejected::new(BackendError::invalid("name", "it is in use"), name))
/// }
/// fn give_any(name: String) -> Result<(), BackendError> {
///     Ok(give(name)?)
/// }
/// assert_eq!(give("a".into()).unwrap_err().value, "a");
/// assert_eq!(give_any("a".into()).unwrap_err().to_string(), "invalid name: it is in use");
/// ```
#[non_exhaustive]
pub struct Rejected<T> {
    /// Why the call failed.
    pub error: BackendError,
    /// The argument.
    pub value: T,
}

impl<T> Rejected<T> {
    /// `value` returned because of `error`.
    #[must_use]
    pub fn new(error: BackendError, value: T) -> Self {
        Self { error, value }
    }
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rejected").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> Error for Rejected<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.error.source()
    }
}

impl<T> From<Rejected<T>> for BackendError {
    fn from(rejected: Rejected<T>) -> Self {
        rejected.error
    }
}
