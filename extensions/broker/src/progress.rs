//! Progress and report of a run.

use crate::error::Stage;
use std::ops::Range;
use std::time::Duration;

/// The system's clock, or the browser's, where the standard library has none.
#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub(crate) use std::time::Instant;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub(crate) use web_time::Instant;

/// Progress of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
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
    pub copied_bytes: u64,
    /// Duration of the run.
    #[cfg_attr(feature = "serde", serde(rename = "elapsed_nanoseconds", serialize_with = "nanoseconds"))]
    pub elapsed: Duration,
    /// Times of all stages of a [timed](crate::Execution::timed) run, unordered.
    pub spans: Vec<StageSpan>,
}

/// A stage of a chunk on a stream, as observed by the host.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct StageSpan {
    /// The chunk.
    pub chunk: u64,
    /// Its runs.
    pub range: Range<u64>,
    /// The index of the stream within the run.
    pub stream: usize,
    /// The stage.
    pub stage: Stage,
    /// Its start, since the beginning of the run.
    #[cfg_attr(feature = "serde", serde(rename = "start_nanoseconds", serialize_with = "nanoseconds"))]
    pub start: Duration,
    /// Its end, since the beginning of the run.
    #[cfg_attr(feature = "serde", serde(rename = "end_nanoseconds", serialize_with = "nanoseconds"))]
    pub end: Duration,
}

/// Called after each chunk.
pub(super) type ProgressHook<'a> = dyn Fn(&Progress) + Sync + 'a;

/// Serializes a duration as whole nanoseconds.
#[cfg(feature = "serde")]
fn nanoseconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
