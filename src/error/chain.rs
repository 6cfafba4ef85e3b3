//! An error and its causes as one line.

use std::fmt;

/// Returns an error's text and those of its causes, as one line: `error: cause: cause of the cause`.
///
/// No error of this crate includes its [`source`](std::error::Error::source) in its own text. So a program
/// that reports an error prints the whole chain.
///
/// ```
/// use vrampool::{errors::chain, fitted::FittedClasses};
///
/// let error = FittedClasses::load("/no/such/file").unwrap_err();
/// println!("error: {}", chain(&error)); // …: the file cannot be opened; check …: No such file or directory
/// let text = error.to_string();
/// assert!(!text.contains("No such file") && chain(&error).to_string().starts_with(&text));
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
