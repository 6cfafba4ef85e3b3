//! How far a run is, and what it did.

use super::Stage;
use std::ops::Range;
use std::time::Duration;

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The chunk that was finished.
    pub chunk: u64,
    /// Its runs.
    pub range: Range<u64>,
    /// Chunks that are finished.
    pub chunks_done: u64,
    /// Runs that are finished.
    pub runs_done: u64,
    /// Runs of the batch.
    pub runs: u64,
    /// Runs of a chunk, of those that begin now.
    pub chunk_len: u64,
}

/// What a run did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RunReport {
    /// Chunks.
    pub chunks: u64,
    /// Runs of the batch.
    pub runs: u64,
    /// Runs of a chunk in the end.
    pub chunk_len: u64,
    /// Streams that they were run on.
    pub streams: usize,
    /// How often chunks became finer on the way, because others needed memory.
    pub shrinks: u64,
    /// Bytes copied to the device and from it.
    pub bytes_copied: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// What was when, of a [timed](super::Execution::timed) run, in no order.
    pub spans: Vec<Span>,
}

/// A stage of a chunk on a stream, as the host saw it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The chunk.
    pub chunk: u64,
    /// Its runs.
    pub range: Range<u64>,
    /// The number of the stream among those of the run.
    pub stream: usize,
    /// What it was.
    pub stage: Stage,
    /// When it began, from the beginning of the run.
    pub start: Duration,
    /// When it was done.
    pub end: Duration,
}

/// Called after each chunk.
pub(super) type ProgressHook<'a> = dyn Fn(&Progress) + Sync + 'a;
