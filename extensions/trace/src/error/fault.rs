//! Faults of traces, fitted classes, outputs and replays, each with the action to take.

use super::bounds::{HEADER, MAX_CLASSES, MAX_LINE_BYTES, MAX_STREAMS};
use super::contradiction::Contradiction;
use super::shown::shown;
use std::io;
use std::path::PathBuf;
use vrampool::Error;

/// A fault of a trace, of fitted classes, of an output or of a replay. The text of each states the action to take.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFault {
    /// The file cannot be opened.
    #[error("the file cannot be opened; check the path and its permissions")]
    Open(#[source] io::Error),
    /// The file cannot be read.
    #[error("the file cannot be read; check that it is a regular file and that its disk has no errors")]
    Read(#[source] io::Error),
    /// The compressed data is damaged, or followed by something else.
    #[error("the gzip data is damaged; copy or record it again")]
    Gzip(#[source] io::Error),
    /// The content is not as its format requires, or is not what was asked for; the text states what was found and the
    /// action to take.
    #[error("{0}")]
    Invalid(Box<str>),
    /// A line is too long to be an event.
    #[error(
        "the line is longer than {MAX_LINE_BYTES} bytes; write the five fields `{HEADER}` and nothing else"
    )]
    LineTooLong,
    /// A field is not there.
    #[error("the field is missing; write the five fields `{HEADER}`")]
    Missing,
    /// There are more fields than there should be.
    #[error("more fields follow the last one; write only the five fields `{HEADER}`")]
    Extra,
    /// More streams than any program has.
    #[error(
        "stream {0} exceeds the maximum of {MAX_STREAMS} streams; check that the field numbers streams, not events"
    )]
    TooManyStreams(u64),
    /// More events than this limit.
    #[error("the trace has more than {0} events; shorten it, or raise `max_events` if you trust it")]
    TooManyEvents(u32),
    /// The file is cut, at this place.
    #[error("the file ends early, {0}; copy or write it again")]
    CutOff(&'static str),
    /// Something follows the end.
    #[error("data follows the end; write each trace, and each set of classes, to its own file")]
    Trailing,
    /// Something contradicts itself, and the reader is strict.
    #[error("{1}; or read the trace without `strict`")]
    Contradiction(Contradiction, Box<str>),
    /// A pickle's instructions do not fit each other.
    #[error("the pickle is damaged: its instructions contradict each other; copy or write it again")]
    NotPickled,
    /// A snapshot has more in it than this limit, bytes.
    #[error("reading the file needs more than {0} bytes of memory; raise `max_events` if you trust it")]
    TooMuchData(u64),
    /// A small pickle takes much memory.
    #[error(
        "{read} bytes of the pickle need more than {max} bytes of memory, unlike any PyTorch snapshot; write it with \
         `torch.cuda.memory._dump_snapshot`"
    )]
    #[non_exhaustive]
    Exploding {
        /// Bytes that were read.
        read: u64,
        /// The limit for as many, bytes.
        max: u64,
    },
    /// The system has no memory for this number of bytes.
    #[error(
        "reading the file needs {0} more bytes of memory than the system can provide; lower `max_events`"
    )]
    OutOfMemory(u64),
    /// A snapshot is not as snapshots are: the expected value.
    #[error(
        "the file is not a PyTorch memory snapshot: {0}; write it with `torch.cuda.memory._dump_snapshot`"
    )]
    Shape(&'static str),
    /// A snapshot of a pool is not as pools write it.
    #[error(
        "the file is not a snapshot of a pool; write the whole JSON of `vrampool_snapshot` or `Pool.snapshot`"
    )]
    Snapshot(#[source] io::Error),
    /// There are more classes than allowed.
    #[error("the file has more than {MAX_CLASSES} sizes; fit fewer classes")]
    TooManyClasses,
    /// An output cannot be created.
    #[error("the file cannot be created; check the path, its folder and their permissions")]
    Create(#[source] io::Error),
    /// The path of an output is a folder.
    #[error("the path is a folder; name a file in it")]
    Folder,
    /// The output is this file that is read.
    #[error("the output is also the input {}; write to another file", shown(.0))]
    IsInput(PathBuf),
    /// An output cannot be written.
    #[error(
        "the file cannot be written; check that its disk has room. The previous file, if any, is unchanged"
    )]
    Write(#[source] io::Error),
    /// The writer of the caller refused a trace.
    #[error("the trace cannot be written; check the writer")]
    Writer(#[from] io::Error),
    /// The written file fails to read back.
    #[error("the written file fails to read back: {0}; check the disk, or write another format")]
    ReadBack(Box<Self>),
    /// The pool refused an event of a replay. The pool is as if the buffers that were live had been dropped.
    #[error("the pool refused it")]
    Pool(#[source] Error),
    /// The work of a replay that writes or verifies memory failed, or could not be enqueued.
    #[error("writing or verifying memory failed")]
    Touch(#[source] Error),
    /// The device has no stream for each stream of the trace.
    #[error(
        "the trace needs {streams} streams, but only {made} could be created; replay fewer traces at a time"
    )]
    #[non_exhaustive]
    Streams {
        /// Streams of the trace.
        streams: u32,
        /// Streams that could be created.
        made: u32,
        /// The device's error.
        source: Error,
    },
}

impl TraceFault {
    /// Content that is not as its format requires.
    pub(crate) fn invalid(text: impl Into<Box<str>>) -> Self {
        Self::Invalid(text.into())
    }

    /// A first line that is not one of the headers.
    pub(crate) fn header(found: &str, headers: &str) -> Self {
        Self::invalid(format!(
            "`{found}` is not the header; the first line must be {headers} in a file without a last line `end`"
        ))
    }

    /// A last line that does not match the content. `uncounted` is the header of a file without a last line.
    pub(crate) fn altered(found: &str, expected: &str, uncounted: &str) -> Self {
        Self::invalid(format!(
            "the file is altered: its last line is `{found}`, but its content requires `{expected}`; copy or write it again. To edit \
             it by hand, make the first line `{uncounted}` and remove the last one"
        ))
    }

    /// Live bytes that do not fit 64 bits.
    pub(crate) fn too_much_live(live: u64, size: u64) -> Self {
        Self::invalid(format!("{live} live bytes and {size} more exceed 2^64 - 1; check the sizes"))
    }

    /// Of so many more items.
    pub(crate) fn out_of_memory<T>(items: usize) -> Self {
        Self::OutOfMemory((items as u64).saturating_mul(size_of::<T>() as u64))
    }
}
