//! A batch on its way through the device.

use super::bind::{bound, hand_over, rows, sort};
use super::commit::InRun;
use super::course::{Course, Failure};
use super::plan::{Data, Way};
use super::request::Role;
use super::session::{ProgressHook, Session};
use super::slot::Chunk;
use super::state::Shared;
use super::transfer::Side;
use super::{ArrayId, BrokerError, Stage};
use std::ops::Range;
use std::panic::resume_unwind;
use std::time::{Duration, Instant};
use vrampool_backend::Backend;

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

pub(crate) fn run<'a, B, F>(
    shared: &'a Shared<B>,
    group: &'a str,
    data: Vec<(ArrayId, Way, Data<'a, B>)>,
    progress: Option<&ProgressHook<'_>>,
    is_timed: bool,
    work: &F,
) -> Result<RunReport, BrokerError>
where
    B: Backend,
    F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
{
    let InRun { grant, streams, memory, clients } = shared.begin(group)?;
    let (mut slots, mut common) = sort(&grant, &streams, memory);
    let ordered = hand_over(&mut slots, &mut common);
    shared.staging.ask_again();
    let (mut has_shrunk, mut has_failed) = (false, false);
    let mut panic = None;
    let outcome = ordered.and_then(|()| bound(&grant, data)).and_then(|mut data| {
        let (rows, mut whole) = rows(&grant, &mut data);
        let sides: Vec<_> = data.iter().map(|data| data.as_ref().map_or(Side::None, Side::of)).collect();
        let course = Course::new(grant.partition.runs(), grant.partition.chunk_len(), slots.len(), rows);
        let session = Session {
            shared,
            group,
            grant: &grant,
            rounding: shared.rounding(),
            sides: &sides,
            course: &course,
            common: &common,
            work,
            progress,
            start: Instant::now(),
            is_timed,
            spans: Default::default(),
            copied: Default::default(),
            watching: Default::default(),
        };
        let stream = slots[0].stream.clone();
        let ends = session.whole_arrays(&stream, &mut whole, Role::is_uploaded).and_then(|()| {
            panic = session.drive_all(&mut slots);
            // After a failure nobody wants them.
            if course.is_stopped() {
                return Ok(());
            }
            session.whole_arrays(&stream, &mut whole, Role::is_downloaded)
        });
        let reached = course.reached();
        has_shrunk = reached.shrinks > 0;
        let report = RunReport {
            chunks: reached.done_chunks,
            runs: reached.runs,
            chunk_len: reached.len,
            streams: slots.len(),
            shrinks: reached.shrinks,
            bytes_copied: *session.copied.lock(),
            elapsed: session.start.elapsed(),
            spans: std::mem::take(&mut *session.spans.lock()),
        };
        let failure = course.take_failure();
        has_failed = failure.is_some() || ends.is_err() || panic.is_some();
        match failure {
            Some(Failure { chunk, range, stage, error }) => {
                Err(BrokerError::Run { chunk, range, stage, source: Box::new(error) })
            }
            None => ends.map(|()| report),
        }
    });
    let memory = slots.into_iter().flat_map(|slot| slot.memory).chain(common).flatten().collect();
    shared.finish(group, InRun { grant, streams, memory, clients }, has_shrunk, has_failed);
    match panic {
        Some(panic) => resume_unwind(panic),
        None => outcome,
    }
}
