//! Why an output could not be written.

use super::identity::shown;
use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why an output could not be written: the path, the cause, and what to do. The previous file is as it was.
#[derive(Debug)]
#[non_exhaustive]
pub struct OutputError {
    /// The path as the caller named it.
    pub path: PathBuf,
    /// What went wrong.
    pub fault: OutputFault,
}

impl fmt::Display for OutputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown(&self.path), self.fault)
    }
}

/// The cause of the fault; the fault itself is in the text.
impl std::error::Error for OutputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.fault)
    }
}

/// What went wrong with an output. The text of each says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputFault {
    /// The file cannot be created.
    #[error("the file cannot be created; check the path, its folder and their permissions")]
    Create(#[source] io::Error),
    /// The path is a folder.
    #[error("the path is a folder; name a file in it")]
    Folder,
    /// The output is a file that is read.
    #[error("the output is also the input {}; write to another file", shown(.input))]
    #[non_exhaustive]
    IsInput {
        /// The input.
        input: PathBuf,
    },
    /// The content cannot be written.
    #[error(
        "the file cannot be written; check that its disk has room. The previous file, if any, is unchanged"
    )]
    Write(#[source] io::Error),
}
