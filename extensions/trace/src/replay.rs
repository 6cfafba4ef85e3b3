//! Replaying a trace through a pool, and measuring it.

use super::file::reader::Trace;
use super::program::Program;
use super::report::Pass;
use super::touch::Touch;
use super::worker::{Halt, Worker};
use crate::error::place::Place;
use crate::error::{TraceError, TraceFault};
use std::ops::ControlFlow;
use std::time::Instant;
use vrampool::Error;
use vrampool::Pool;
use vrampool::backend::Backend;

/// Drives a pool with a [`Trace`].
///
/// * The trace is compiled first, so that what is timed is the pool, and one read or write of a table for
///   each event.
/// * A free by the stream of its allocation drops the buffer. A free by another stream says that this stream
///   used the buffer last: [`Buffer::record_stream`](vrampool::Buffer::record_stream) comes before the drop, as
///   it came in the program. (PyTorch's own recordings name the allocation's stream in every free, so they
///   show no such use.)
/// * Buffers that the trace does not free are dropped after each pass, outside what is timed and counted.
/// * Memory is never touched and no work is enqueued but what the pool itself enqueues, unless a [`Touch`] is
///   [given](Self::run_touching), which writes every buffer on the stream of its allocation, and verifies it
///   on the stream of its free, before that. Its time is part of the pass.
/// * It runs on the caller's thread. Several threads may replay through one pool, each by a replay of its own; the
///   figures of a pass are then those of all of them.
///
/// ```
/// use std::ops::ControlFlow;
/// use vrampool_trace::{Replay, Trace};
/// use vrampool::{Pool, host::HostDevice};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let trace = Trace::parse("op,id,size,stream,t_us\na,0,4096,0,0\nf,0,4096,0,9\n".as_bytes())?;
/// let pool = Pool::builder(&HostDevice::new()).build()?;
/// Replay::new(&trace).passes(3).run_with(&pool, |pass| {
///     println!("{} ns, {} driver calls", pass.ns_per_op(), pass.driver_calls);
///     if pass.driver_calls == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
/// })?;
/// assert_eq!(pool.stats().live_buffers, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Replay {
    trace: String,
    pub(crate) program: Program,
    passes: u32,
}

impl Replay {
    /// A replay of `trace`: one pass.
    pub fn new(trace: &Trace) -> Self {
        Self { trace: trace.name().into(), program: Program::new(trace), passes: 1 }
    }

    /// Sets the number of consecutive passes. Default: 1.
    pub fn passes(mut self, passes: u32) -> Self {
        self.passes = passes;
        self
    }

    /// Replays, and answers one [`Pass`] for each.
    ///
    /// # Errors
    /// [`TraceError`]; the buffers that were live are dropped.
    pub fn run<B: Backend>(&self, pool: &Pool<B>) -> Result<Vec<Pass>, TraceError> {
        let mut passes = Vec::new();
        self.run_with(pool, |pass| {
            passes.push(pass.clone());
            ControlFlow::Continue(())
        })?;
        Ok(passes)
    }

    /// As [`run`](Self::run), and calls `on_pass` after each pass, until it breaks.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_with<B: Backend>(
        &self,
        pool: &Pool<B>,
        on_pass: impl FnMut(&Pass) -> ControlFlow<()>,
    ) -> Result<(), TraceError> {
        self.run_by(pool, None, on_pass)
    }

    /// As [`run_with`](Self::run_with), and every buffer is written and verified.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_touching<B: Backend>(
        &self,
        pool: &Pool<B>,
        touch: &impl Touch<B>,
        on_pass: impl FnMut(&Pass) -> ControlFlow<()>,
    ) -> Result<(), TraceError> {
        self.run_by(pool, Some(touch), on_pass)
    }

    fn run_by<B: Backend>(
        &self,
        pool: &Pool<B>,
        touch: Option<&dyn Touch<B>>,
        mut on_pass: impl FnMut(&Pass) -> ControlFlow<()>,
    ) -> Result<(), TraceError> {
        let worker = Worker::new(&self.program, pool, self.streams(pool)?, touch);
        let mut worker = worker.map_err(|source| self.untouched(0, source))?;
        for index in 0..self.passes {
            if on_pass(&self.pass(index, pool, &mut worker)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn streams<B: Backend>(&self, pool: &Pool<B>) -> Result<Vec<B::Stream>, TraceError> {
        let mut streams = Vec::with_capacity(self.program.streams);
        for _ in 0..self.program.streams {
            let stream = pool.device().create_stream().map_err(|source| {
                let (needed, made) = (self.program.streams as u32, streams.len() as u32);
                let fault = TraceFault::Streams { streams: needed, made, source: source.into() };
                Place::default().error(&*self.trace, fault)
            })?;
            streams.push(stream);
        }
        Ok(streams)
    }

    fn pass<B: Backend>(
        &self,
        index: u32,
        pool: &Pool<B>,
        worker: &mut Worker<'_, B>,
    ) -> Result<Pass, TraceError> {
        pool.reset_peaks();
        let before = pool.stats();
        let began = Instant::now();
        let outcome = worker.run();
        let elapsed = began.elapsed();
        let after = pool.stats();
        let cleared = worker.clear();
        outcome.map_err(|halt| self.halted(index, halt))?;
        let corrupt_bytes = cleared.map_err(|source| self.untouched(index, source))?;
        let served = after.served.since(&before.served);
        Ok(Pass {
            index,
            ops: self.program.steps.len() as u64,
            elapsed,
            peak_requested_bytes: after.peak.requested_bytes,
            peak_live_bytes: after.peak.live_bytes,
            peak_held_bytes: after.peak.held_bytes,
            peak_reserved_bytes: after.peak.limit_bytes,
            peak_needed_bytes: after.peak.needed_bytes,
            hit_rate: served.hit_rate(),
            bucket_hit_rate: served.bucket_hit_rate(),
            driver_calls: after.driver_calls() - before.driver_calls(),
            mapping_time: after.mapping.time.saturating_sub(before.mapping.time),
            stream_waits: after.stream_waits - before.stream_waits,
            reuse_waits: after.reuse_waits - before.reuse_waits,
            corrupt_bytes,
        })
    }

    pub(crate) fn halted(&self, pass: u32, Halt { event, source }: Halt) -> TraceError {
        let place = Place { event: u32::try_from(event).ok(), pass: Some(pass), ..Place::default() };
        place.error(&*self.trace, TraceFault::Pool(source))
    }

    pub(crate) fn untouched(&self, pass: u32, source: Error) -> TraceError {
        let place = Place { pass: Some(pass), ..Place::default() };
        place.error(&*self.trace, TraceFault::Touch(source))
    }
}
