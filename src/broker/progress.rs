//! Progress and report of a run.

use super::Stage;
use std::ops::Range;
use std::time::Duration;

/// Progress of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The completed chunk.
    pub chunk: u64,
    /// Its runs.
    pub range: Range<u64>,
    /// Completed chunks.
    pub chunks_done: u64,
    /// Completed runs.
    pub runs_done: u64,
    /// Runs of the batch.
    pub runs: u64,
    /// Runs per chunk of chunks that begin now.
    pub chunk_len: u64,
}

/// The report of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport {
    /// Chunks.
    pub chunks: u64,
    /// Runs of the batch.
    pub runs: u64,
    /// Runs per chunk at the end.
    pub chunk_len: u64,
    /// Streams that ran chunks.
    pub streams: usize,
    /// Number of times that chunks became finer because others needed memory.
    pub shrinks: u64,
    /// Bytes copied to and from the device.
    pub bytes_copied: u64,
    /// Duration of the run.
    pub elapsed: Duration,
    /// Times of all stages of a [timed](super::Execution::timed) run, unordered.
    pub spans: Vec<Span>,
}

/// A stage of a chunk on a stream, as observed by the host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The chunk.
    pub chunk: u64,
    /// Its runs.
    pub range: Range<u64>,
    /// The index of the stream within the run.
    pub stream: usize,
    /// The stage.
    pub stage: Stage,
    /// Its start, since the beginning of the run.
    pub start: Duration,
    /// Its end, since the beginning of the run.
    pub end: Duration,
}

/// Called after each chunk.
pub(super) type ProgressHook<'a> = dyn Fn(&Progress) + Sync + 'a;
