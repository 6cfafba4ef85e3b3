//! Errors of reading and writing fitted classes.

use super::bounds::{HEADER, MAX_CLASSES, MAX_FILE_BYTES, OLD_HEADER};
use crate::output::{OutputFault, shown};
use std::fmt;
use std::io;

/// Why fitted classes could not be read or written, with the position and the action to take.
///
/// ```
/// use vrampool_trace::fitted::FittedClasses;
/// let error = "vrampool fitted classes 1\n512\n256\n".parse::<FittedClasses>().unwrap_err();
/// assert_eq!(error.line, Some(3));
/// assert_eq!(
///     error.to_string(),
///     "fitted classes, line 3: 256 is not larger than 512 in the previous line; write each size once, smallest first"
/// );
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct FittedError {
    /// The file's path, or `fitted classes`.
    pub file: String,
    /// The line, from 1; `None` if the fault is not in a line.
    pub line: Option<u64>,
    /// The fault.
    pub fault: FittedFault,
}

impl fmt::Display for FittedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.file))?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// Returns the cause of the fault; the fault itself is in the text.
impl std::error::Error for FittedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.fault)
    }
}

/// A fault of fitted classes. Each message includes the action to take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FittedFault {
    /// The file cannot be opened.
    #[error("the file cannot be opened; check the path and its permissions")]
    Open(#[source] io::Error),
    /// The file cannot be read.
    #[error("the file cannot be read; check that it is a regular file and that its disk has no errors")]
    Read(#[source] io::Error),
    /// The file cannot be created or written. The previous file is unchanged.
    #[error(transparent)]
    Output(OutputFault),
    /// The file is cut.
    #[error(
        "the file ends early; copy or write it again. Every line ends with a newline, and after the first line `{HEADER}` the last one is `end` with a count"
    )]
    CutOff,
    /// The last line does not match the sizes.
    #[error(
        "the file is altered: the last line is `{found}`, but these sizes require `{expected}`; copy or write it again. To edit \
         it by hand, make the first line `{OLD_HEADER}` and remove the last one"
    )]
    #[non_exhaustive]
    Altered {
        /// The last line.
        found: String,
        /// The expected line.
        expected: String,
    },
    /// Data follows the last line.
    #[error("data follows the last line `end`; write each set of classes to its own file")]
    Trailing,
    /// The first line is not the header.
    #[error(
        "`{found}` is not the header; the first line must be `{HEADER}`, or `{OLD_HEADER}` in a file without a last line `end`"
    )]
    #[non_exhaustive]
    Header {
        /// The first line, or its beginning.
        found: String,
    },
    /// The file is too long for a file of classes.
    #[error(
        "the file is longer than {MAX_FILE_BYTES} bytes; fitted classes are a header and one size per line"
    )]
    FileTooLong,
    /// A size is not a number.
    #[error("`{found}` is not a size; write a whole number of bytes from 1 to {max}", max = u64::MAX)]
    #[non_exhaustive]
    NotASize {
        /// The text, or its beginning.
        found: String,
    },
    /// A size of 0 bytes.
    #[error("a class of 0 bytes is invalid; write a whole number of bytes from 1 to {max}", max = u64::MAX)]
    Zero,
    /// A size is not larger than the previous one.
    #[error("{size} is not larger than {before} in the previous line; write each size once, smallest first")]
    #[non_exhaustive]
    Order {
        /// The size.
        size: u64,
        /// The previous size.
        before: u64,
    },
    /// There are more sizes than allowed.
    #[error("the file has more than {most} sizes; fit fewer classes", most = MAX_CLASSES)]
    TooManyClasses,
}
