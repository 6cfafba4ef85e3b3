//! Errors of writing a trace.

use crate::file::error::TraceFault;
use crate::output::{OutputError, shown};
use std::io;
use std::path::PathBuf;

/// An error of writing a trace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The file cannot be created or written. The previous file is as it was.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The writer refused what was written.
    #[error("the trace cannot be written; check the writer")]
    Write(#[from] io::Error),
    /// The written file fails to read back.
    #[error("{path}: the written file fails to read back: {fault}; check the disk, or write another format", path = shown(.path))]
    #[non_exhaustive]
    ReadBack {
        /// The file.
        path: PathBuf,
        /// The fault.
        fault: TraceFault,
    },
    /// More is live at once than there are addresses.
    #[error(
        "event {event}: no addresses are left for {size} bytes: more than {max} bytes are live; write the trace as csv"
    )]
    #[non_exhaustive]
    TooLarge {
        /// The event, from 0.
        event: u64,
        /// Requested bytes.
        size: u64,
        /// Bytes that have addresses.
        max: u64,
    },
}
