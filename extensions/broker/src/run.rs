//! A run: the memory of its clients, a thread for each stream that processes chunk after chunk within bounds that may fall
//! meanwhile, and the report.

use crate::chunk::{Batch, StreamSlot, Work, bound, hand_over, rows, sort};
use crate::chunk_order::{Failure, Piece, RemainingChunks};
use crate::commit::{Ended, InRun};
use crate::data::{Data, Side};
use crate::error::{BrokerError, BrokerWarning, Stage};
use crate::footprint::Demand;
use crate::id::{ArrayId, ClientId};
use crate::partition::Footprint;
use crate::progress::{Instant, Progress, ProgressHook, RunReport};
use crate::request::Role;
use crate::state::{BrokerCore, Grant, Held};
use parking_lot::Mutex;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use vrampool_backend::spi::start_thread;
use vrampool_backend::{Backend, logging};

pub(crate) fn run<'a, B, F>(
    core: &'a BrokerCore<B>,
    group: &'a str,
    data: Vec<(ArrayId, Role, Data<'a, B>)>,
    progress: Option<&ProgressHook<'_>>,
    is_timed: bool,
    work: &F,
) -> Result<RunReport, BrokerError>
where
    B: Backend,
    F: Work<B>,
{
    let mut running = Running::begin(core, group)?;
    let grant = Arc::clone(&running.grant);
    let ordered = hand_over(&mut running.slots, &mut running.common);
    core.staging.ask_again();
    ordered?;
    let mut data = bound(&grant, data)?;
    let (rows, mut whole) = rows(&grant, &mut data);
    let sides: Vec<_> = data.iter().map(|data| data.as_ref().map_or(Side::None, |data| data.side)).collect();
    let course =
        RemainingChunks::new(grant.partition.runs(), grant.partition.chunk_len(), running.slots.len(), rows);
    let batch = Batch {
        core,
        grant: &grant,
        rounding: core.rounding(),
        sides: &sides,
        common: &running.common,
        start: Instant::now(),
        is_timed,
        spans: Default::default(),
        copied: Default::default(),
    };
    let session = Session { batch, group, course: &course, work, progress, watching: Mutex::default() };
    let (ends, panic) = session.drive_batch(&mut running.slots, &mut whole);
    let report = session.into_report(running.slots.len());
    let failure = course.take_failure();
    running.ended = Ended {
        has_begun: true,
        chunks: report.chunks,
        shrinks: report.shrinks,
        bytes_copied: report.copied_bytes,
        has_failed: failure.is_some() || ends.is_err() || panic.is_some(),
    };
    match (panic, failure) {
        (Some(panic), _) => resume_unwind(panic),
        (None, Some(Failure { chunk, range, stage, error })) => {
            Err(BrokerError::Run { chunk, range, stage, source: Box::new(error) })
        }
        (None, None) => ends.map(|()| report),
    }
}

/// A pending run. Its end, for any reason, returns its memory to the clients, and the group may run again.
struct Running<'a, B: Backend> {
    core: &'a BrokerCore<B>,
    group: &'a str,
    grant: Arc<Grant>,
    clients: Vec<ClientId>,
    slots: Vec<StreamSlot<B>>,
    common: Vec<Option<Held<B>>>,
    ended: Ended,
}

impl<'a, B: Backend> Running<'a, B> {
    fn begin(core: &'a BrokerCore<B>, group: &'a str) -> Result<Self, BrokerError> {
        let InRun { grant, streams, memory, clients } = core.begin(group)?;
        let (slots, common) = sort(&grant, &streams, memory);
        Ok(Self { core, group, grant, clients, slots, common, ended: Ended::default() })
    }
}

impl<B: Backend> Drop for Running<'_, B> {
    fn drop(&mut self) {
        let own = self.slots.drain(..).flat_map(|slot| slot.memory);
        let memory = own.chain(self.common.drain(..)).flatten().collect();
        let clients = std::mem::take(&mut self.clients);
        let has_failed = self.ended.has_failed || std::thread::panicking();
        self.core.finish(self.group, &self.grant, clients, memory, Ended { has_failed, ..self.ended });
    }
}

/// State that the threads of a run share.
struct Session<'a, B: Backend, F> {
    batch: Batch<'a, B>,
    group: &'a str,
    course: &'a RemainingChunks<'a>,
    work: &'a F,
    progress: Option<&'a ProgressHook<'a>>,
    watching: Mutex<()>,
}

impl<B: Backend, F: Work<B>> Session<'_, B, F> {
    /// Copies the arrays that are not cut, and runs the course in between. Returns the outcome of the copies,
    /// and the panic of a thread.
    fn drive_batch(
        &self,
        slots: &mut [StreamSlot<B>],
        whole: &mut Piece<'_>,
    ) -> (Result<(), BrokerError>, Option<Box<dyn Any + Send>>) {
        let stream = slots[0].stream.clone();
        if let Err(error) = self.batch.whole_arrays(&stream, whole, Role::is_uploaded) {
            return (Err(error), None);
        }
        let panic = self.drive_all(slots);
        // After a failure outputs are not copied.
        let ends = match self.course.is_stopped() {
            true => Ok(()),
            false => self.batch.whole_arrays(&stream, whole, Role::is_downloaded),
        };
        (ends, panic)
    }

    /// Returns the report of a batch that ran on so many streams.
    fn into_report(self, streams: usize) -> RunReport {
        let reached = self.course.reached();
        RunReport {
            chunks: reached.done_chunks,
            runs: reached.runs,
            chunk_len: reached.len,
            streams,
            shrinks: reached.shrinks,
            copied_bytes: self.batch.copied.into_inner(),
            elapsed: self.batch.start.elapsed(),
            spans: self.batch.spans.into_inner(),
        }
    }

    /// Runs the course on all streams: the first on this thread, each other on its own thread. Returns the
    /// panic of a thread.
    fn drive_all(&self, slots: &mut [StreamSlot<B>]) -> Option<Box<dyn Any + Send>> {
        let guarded = |slot: &mut StreamSlot<B>| {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                self.drive(slot);
                self.end(slot);
            }));
            outcome.inspect_err(|_| self.course.stop()).err()
        };
        let (first, others) = slots.split_first_mut()?;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for slot in others {
                // Without the group's name, because a thread's name must not contain NUL.
                let (index, name) = (slot.index, format!("broker stream {}", slot.index));
                let thread = std::thread::Builder::new().name(name);
                let spawn = || thread.spawn_scoped(scope, || guarded(slot));
                match start_thread(spawn) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        logging::warn!(
                            "broker: stream {index} has no thread, so others do its work: {error}"
                        );
                        self.course.set_slot(index, 0);
                    }
                }
            }
            let mut panic = guarded(first);
            for thread in threads {
                let theirs = thread.join().unwrap_or_else(Some);
                panic = panic.or(theirs);
            }
            panic
        })
    }

    /// Runs chunks on one stream until none is left.
    fn drive(&self, slot: &mut StreamSlot<B>) {
        // When all chunks are taken, no memory needs to be refitted.
        while !self.course.is_finished() {
            if self.watch(slot) {
                return;
            }
            match self.refit(slot) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let (chunk, range) = self.course.upcoming();
                    return self.course.fail(Failure { chunk, range, stage: Stage::Allocate, error });
                }
            }
            let Some(mut piece) = self.course.take(slot.len) else { return };
            if let Err((stage, error)) = self.batch.execute(slot, &mut piece, self.work) {
                let Piece { index: chunk, range, .. } = piece;
                return self.course.fail(Failure { chunk, range, stage, error });
            }
            let reached = self.course.done(piece.range.end - piece.range.start);
            if let Some(progress) = self.progress {
                progress(&Progress {
                    chunk: piece.index,
                    range: piece.range,
                    chunks_done: reached.done_chunks,
                    runs_done: reached.done_runs,
                    runs: reached.runs,
                    chunk_len: reached.len,
                });
            }
        }
    }

    /// Fits a stream's memory to the current chunk length. Returns false if memory is insufficient and the
    /// other streams continue with what it released.
    fn refit(&self, slot: &mut StreamSlot<B>) -> Result<bool, BrokerError> {
        loop {
            let len = self.course.len();
            if slot.len <= len {
                return Ok(true);
            }
            for (array, memory) in self.batch.grant.arrays.iter().zip(&mut slot.memory) {
                if let Some(held) = memory.take_if(|held| held.layout.is_cut) {
                    self.batch.core.release(array.client, held);
                }
            }
            self.batch.core.trim_pool();
            let mut outcome = Ok(());
            for (array, memory) in self.batch.grant.arrays.iter().zip(&mut slot.memory) {
                if array.layout.is_cut {
                    match self.batch.core.allocate(array, Some(slot.index), len, &slot.stream) {
                        Ok(held) => *memory = Some(held),
                        Err(error) => {
                            outcome = Err(error);
                            break;
                        }
                    }
                }
            }
            match outcome {
                Ok(()) => {
                    slot.len = len;
                    self.course.set_slot(slot.index, len);
                    return Ok(true);
                }
                Err(error) if error.is_out_of_memory() && len > 1 => {
                    self.shorten(len / 2);
                }
                Err(error) => {
                    let others = self.leave(slot);
                    return if error.is_out_of_memory() && others > 0 { Ok(false) } else { Err(error) };
                }
            }
        }
    }

    /// Releases a stream's memory, because the others do its work. Returns their number.
    fn leave(&self, slot: &mut StreamSlot<B>) -> usize {
        let others = self.course.set_slot(slot.index, 0);
        for (array, memory) in self.batch.grant.arrays.iter().zip(&mut slot.memory) {
            if let Some(held) = memory.take() {
                self.batch.core.release(array.client, held);
            }
        }
        others
    }

    fn shorten(&self, len: u64) {
        if self.course.shorten(len) {
            let group = self.group.to_owned();
            self.batch.core.warn(&BrokerWarning::Shrunk { group, chunk_len: len.max(1) });
        }
    }

    /// Shortens chunks to restore the reserve if others left less than half of it free, and to keep the group within its
    /// shares. Returns true if the stream released its memory, because the shares have no room for a run on each stream.
    fn watch(&self, slot: &mut StreamSlot<B>) -> bool {
        // One thread checks at a time, after all streams have followed the last change.
        let Some(_watching) = self.watching.try_lock() else { return false };
        let Some((len, streams)) = self.course.fitted() else { return false };
        let over_shares = self.batch.core.over_shares(self.group);
        if len == 1 {
            let leaves = over_shares > 0 && streams > 1;
            if leaves {
                self.leave(slot);
            }
            return leaves;
        }
        let missing = self.missing_of_reserve().max(over_shares);
        if missing == 0 {
            return false;
        }
        let demand = Demand { arrays: &self.batch.grant.arrays, rounding: self.batch.rounding.clone() };
        let now = demand.held(len, streams);
        let gives = |len: u64| now.saturating_sub(demand.held(len, streams)) >= missing;
        let (mut enough, mut too_long) = (1, len);
        while enough + 1 < too_long {
            let middle = enough + (too_long - enough) / 2;
            if gives(middle) { enough = middle } else { too_long = middle }
        }
        self.shorten(enough);
        false
    }

    /// Releases the memory of a stream without further chunks if the group is beyond its shares: other streams may work on
    /// for long.
    fn end(&self, slot: &mut StreamSlot<B>) {
        if self.batch.core.over_shares(self.group) > 0 {
            self.leave(slot);
        }
    }

    /// Returns what the reserve lacks, if others left less than half of it free.
    fn missing_of_reserve(&self) -> u64 {
        let (reserve, device) = (self.batch.core.settings.reserve, &self.batch.core.device);
        let free = || device.memory_info().map_or(u64::MAX, |info| info.free_bytes);
        if reserve == 0 || free() >= reserve / 2 {
            return 0;
        }
        self.batch.core.trim_pool();
        let missing = reserve.saturating_sub(free());
        if missing <= reserve / 2 { 0 } else { missing }
    }
}
