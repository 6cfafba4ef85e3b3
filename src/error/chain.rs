//! An error and its causes as one line.

use std::fmt;

/// Returns an error's text and those of its causes, as one line: `error: cause: cause of the cause`.
///
/// No error of this crate includes its [`source`](std::error::Error::source) in its own text. So a program
/// that reports an error prints the whole chain.
///
/// ```
/// use std::{error::Error, fmt, io};
/// use vrampool::errors::chain;
///
/// #[derive(Debug)]
/// struct Unreadable(io::Error);
///
/// impl Error for Unreadable {
///     fn source(&self) -> Option<&(dyn Error + 'static)> {
///         Some(&self.0)
///     }
/// }
/// # impl fmt::Display for Unreadable {
/// #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
/// #         f.write_str("the model cannot be read")
/// #     }
/// # }
///
/// let error = Unreadable(io::ErrorKind::NotFound.into());
/// assert_eq!(chain(&error).to_string(), "the model cannot be read: entity not found");
/// ```
#[must_use]
pub fn chain<'a>(error: &'a (dyn std::error::Error + 'static)) -> Chain<'a> {
    Chain(error)
}

/// An error and its causes, for display: the result of [`chain`].
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(&'a (dyn std::error::Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut error = self.0;
        while let Some(cause) = error.source() {
            write!(f, ": {cause}")?;
            error = cause;
        }
        Ok(())
    }
}
