//! A run: the memory of its clients, a thread for each stream that processes chunk after chunk within bounds that may
//! fall meanwhile, and the report.

use crate::chunk::{Batch, StreamSlot, Work, bound};
use crate::chunk_order::{Piece, RemainingChunks};
use crate::data::{HostData, HostPart};
use crate::error::{BrokerError, Stage};
use crate::footprint::Demand;
use crate::id::{ArrayId, ClientId};
use crate::partition::{Footprint, highest};
use crate::progress::{Instant, Progress, ProgressHook, RunReport};
use crate::request::Role;
use crate::state::{BrokerCore, Grant, Held, trim};
use crate::stats::BrokerCounts;
use parking_lot::Mutex;
use std::any::Any;
use std::mem::take;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use vrampool::figures::Group;
use vrampool_backend::spi::start_thread;
use vrampool_backend::{Backend, logging};

pub(crate) fn run<'a, B, F>(
    core: &'a BrokerCore<B>,
    group: &'a str,
    data: Vec<(ArrayId, Role, HostData<'a, B>)>,
    progress: Option<&'a ProgressHook<'a>>,
    is_timed: bool,
    work: &F,
) -> Result<RunReport, BrokerError>
where
    B: Backend,
    F: Work<B>,
{
    let mut running = Running::begin(core, group)?;
    let grant = Arc::clone(&running.grant);
    let ordered = running.order_memory();
    core.staging.blocks().is_refused = false;
    ordered?;
    let [cut, mut whole] = bound(&grant, data)?;
    let (partition, streams) = (grant.partition, running.slots.len());
    let batch = Batch {
        core,
        group,
        grant: &grant,
        common: &running.common,
        course: Mutex::new(RemainingChunks::new(partition.runs(), partition.chunk_len(), streams, cut)),
        progress,
        watching: Mutex::default(),
        start: Instant::now(),
        is_timed,
        spans: Mutex::default(),
        copied: Mutex::default(),
    };
    let (ends, panic) = batch.drive_batch(&mut running.slots, &mut whole, work);
    let mut course = batch.course.into_inner();
    let failure = course.take_failure();
    let report = RunReport {
        chunks: course.done_chunks,
        runs: course.runs,
        chunk_len: course.len,
        streams,
        shrinks: course.shrinks,
        copied_bytes: batch.copied.into_inner(),
        elapsed: batch.start.elapsed(),
        spans: batch.spans.into_inner(),
    };
    let has_failed = failure.is_some() || ends.is_err() || panic.is_some();
    running.counts = BrokerCounts {
        runs: u64::from(!has_failed),
        failed_runs: has_failed.into(),
        chunks: report.chunks,
        shrinks: report.shrinks,
        copied_bytes: report.copied_bytes,
        ..BrokerCounts::default()
    };
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    failure.map_or(ends, Err).map(|()| report)
}

/// A pending run. Its end, for any reason, returns its memory to the clients, and the group may run again.
struct Running<'a, B: Backend> {
    core: &'a BrokerCore<B>,
    group: &'a str,
    grant: Arc<Grant>,
    clients: Vec<ClientId>,
    slots: Vec<StreamSlot<B>>,
    /// Memory that all streams share.
    common: Vec<Held<B>>,
    /// What the run adds to the broker's counts: nothing if its data did not match its arrays.
    counts: BrokerCounts,
}

impl<'a, B: Backend> Running<'a, B> {
    /// Grants the requests of a group and takes the memory for a run, under one lock of `turn`, so that no
    /// other commit can evict it in between.
    fn begin(core: &'a BrokerCore<B>, group: &'a str) -> Result<Self, BrokerError> {
        let _turn = core.take_turn()?;
        let grant = core.commit(group)?;
        // New streams replace failed ones.
        let streams = core.streams(group, grant.slots)?;
        let len = grant.partition.chunk_len();
        let slot = |(index, stream)| StreamSlot { index, stream, len, memory: Vec::new() };
        let mut slots: Vec<_> = streams.into_iter().take(grant.slots).enumerate().map(slot).collect();
        let (mut common, mut clients, mut unwanted) = (Vec::new(), Vec::new(), Vec::new());
        let mut state = core.state.lock();
        state.clock += 1;
        let clock = state.clock;
        for (&client, entry) in state.clients.iter_mut().filter(|(_, entry)| entry.client.group == group) {
            clients.push(client);
            unwanted.append(&mut entry.release(|held| grant.has_place(held)));
            for held in entry.memory.drain(..) {
                held.slot.map_or(&mut common, |slot| &mut slots[slot].memory).push(held);
            }
            entry.last_work = clock;
        }
        state.groups.entry(group.to_owned()).or_default().is_running = true;
        drop(state);
        drop(unwanted);
        Ok(Self { core, group, grant, clients, slots, common, counts: BrokerCounts::default() })
    }

    /// Orders memory after its earlier users: each stream's own on that stream, shared memory on the first.
    fn order_memory(&mut self) -> Result<(), BrokerError> {
        let first = self.slots[0].stream.clone();
        for StreamSlot { stream, memory, .. } in &mut self.slots {
            memory.iter_mut().try_for_each(|held| held.buffer.reuse_on(stream))?;
        }
        Ok(self.common.iter_mut().try_for_each(|held| held.buffer.reuse_on(&first))?)
    }
}

impl<B: Backend> Drop for Running<'_, B> {
    /// A run whose chunks became finer is planned again next time; a failed one gets new streams.
    fn drop(&mut self) {
        let has_shrunk = self.counts.shrinks > 0;
        let has_failed = self.counts.failed_runs > 0 || std::thread::panicking();
        let (mut unwanted, mut failed) = (Vec::new(), Vec::new());
        let mut state = self.core.state.lock();
        state.counts.count_on(&self.counts);
        state.clock += 1;
        let clock = state.clock;
        for client in &self.clients {
            if let Some(entry) = state.clients.get_mut(client) {
                entry.last_work = clock;
                entry.stats.chunks += self.counts.chunks;
            }
        }
        let own = self.slots.drain(..).flat_map(|slot| slot.memory);
        for held in own.chain(self.common.drain(..)) {
            match state.clients.get_mut(&held.client) {
                Some(entry) if has_shrunk && held.layout.is_cut => {
                    entry.stats.held_bytes -= held.footprint;
                    unwanted.push(held);
                }
                Some(entry) => entry.memory.push(held),
                None => unwanted.push(held),
            }
        }
        if let Some(entry) = state.groups.get_mut(self.group) {
            entry.is_running = false;
            if has_shrunk || take(&mut entry.is_stale) {
                entry.grant = None;
            }
            if has_failed {
                failed.append(&mut entry.streams);
            }
        }
        // The last client may have deregistered during the run.
        let emptied = state.take_empty(self.group);
        drop(state);
        // Without the lock: memory goes to the pool, and streams to the driver.
        drop((unwanted, failed, emptied));
        self.core.keep_reserve();
    }
}

impl<B: Backend> Batch<'_, B> {
    /// Copies the arrays that are not cut, and runs the course in between. Returns the outcome of the copies,
    /// and the panic of a thread.
    fn drive_batch<F: Work<B>>(
        &self,
        slots: &mut [StreamSlot<B>],
        whole: &mut [HostPart<'_, B>],
        work: &F,
    ) -> (Result<(), BrokerError>, Option<Box<dyn Any + Send>>) {
        let stream = slots[0].stream.clone();
        if let Err(error) = self.whole_arrays(&stream, whole, Stage::Upload) {
            return (Err(error), None);
        }
        let panic = self.drive_all(slots, work);
        // After a failure outputs are not copied.
        let is_stopped = self.course.lock().is_stopped;
        let ends = if is_stopped { Ok(()) } else { self.whole_arrays(&stream, whole, Stage::Download) };
        (ends, panic)
    }

    /// Runs the course on all streams: the first on this thread, each other on its own thread. Returns the
    /// panic of a thread.
    fn drive_all<F: Work<B>>(&self, slots: &mut [StreamSlot<B>], work: &F) -> Option<Box<dyn Any + Send>> {
        let guarded = |slot: &mut StreamSlot<B>| {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                self.drive(slot, work);
                // Memory beyond the group's shares is released now: other streams may work on for long.
                if self.core.over_shares(self.group) > 0 {
                    self.leave(slot);
                }
            }));
            outcome.inspect_err(|_| self.course.lock().is_stopped = true).err()
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
                        self.course.lock().set_slot(index, 0);
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
    fn drive<F: Work<B>>(&self, slot: &mut StreamSlot<B>, work: &F) {
        // When all chunks are taken, no memory needs to be refitted.
        while !self.course.lock().is_finished() {
            if self.watch(slot) {
                return;
            }
            match self.refit(slot) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let mut course = self.course.lock();
                    let (chunk, range) = course.upcoming();
                    return course.fail(chunk, range, Stage::Allocate, error);
                }
            }
            let Some(mut piece) = self.course.lock().take(slot.len) else { return };
            let outcome = self.execute(slot, &mut piece, work);
            let Piece { index: chunk, range, .. } = piece;
            let mut course = self.course.lock();
            if let Err((stage, error)) = outcome {
                return course.fail(chunk, range, stage, error);
            }
            course.done_runs += range.end - range.start;
            course.done_chunks += 1;
            let RemainingChunks {
                done_chunks: chunks_done, done_runs: runs_done, runs, len: chunk_len, ..
            } = *course;
            drop(course);
            if let Some(progress) = self.progress {
                progress(&Progress { chunk, range, chunks_done, runs_done, runs, chunk_len });
            }
        }
    }

    /// Fits a stream's memory to the current chunk length. Returns false if memory is insufficient and the
    /// other streams continue with what it released.
    fn refit(&self, slot: &mut StreamSlot<B>) -> Result<bool, BrokerError> {
        loop {
            let len = self.course.lock().len;
            if slot.len <= len {
                return Ok(true);
            }
            let cut = slot.memory.extract_if(.., |held| held.layout.is_cut);
            cut.for_each(|held| self.core.release(held));
            trim(&self.core.pool);
            let mut cut = self.grant.arrays.iter().filter(|array| array.layout.is_cut);
            let outcome: Result<(), BrokerError> = cut.try_for_each(|array| {
                slot.memory.push(self.core.allocate(array, Some(slot.index), len, &slot.stream)?);
                Ok(())
            });
            match outcome {
                Ok(()) => {
                    slot.len = len;
                    self.course.lock().set_slot(slot.index, len);
                    return Ok(true);
                }
                Err(error) if error.is_out_of_memory() && len > 1 => self.shorten(len / 2),
                Err(error) => {
                    let others = self.leave(slot);
                    return if error.is_out_of_memory() && others > 0 { Ok(false) } else { Err(error) };
                }
            }
        }
    }

    /// Releases a stream's memory, because the others do its work. Returns their number.
    fn leave(&self, slot: &mut StreamSlot<B>) -> usize {
        let others = self.course.lock().set_slot(slot.index, 0);
        slot.memory.drain(..).for_each(|held| self.core.release(held));
        others
    }

    fn shorten(&self, len: u64) {
        let is_shorter = self.course.lock().shorten(len);
        if is_shorter {
            self.core.warn(format_args!(
                "the group `{}` goes on with {} runs a chunk: others need memory, or its share shrank",
                self.group,
                len.max(1)
            ));
        }
    }

    /// Shortens chunks to restore the reserve if others left less than half of it free, and to keep the group within
    /// its shares. Returns true if the stream released its memory, because the shares have no room for a run on each
    /// stream.
    fn watch(&self, slot: &mut StreamSlot<B>) -> bool {
        // One thread checks at a time, after all streams have followed the last change.
        let Some(_watching) = self.watching.try_lock() else { return false };
        let Some((len, streams)) = self.course.lock().fitted() else { return false };
        let over_shares = self.core.over_shares(self.group);
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
        let demand = Demand { core: self.core, arrays: &self.grant.arrays };
        let now = demand.held(len, streams);
        let gives = |len: u64| now.saturating_sub(demand.held(len, streams)) >= missing;
        self.shorten(highest(len - 1, gives).max(1));
        false
    }

    /// Returns what the reserve lacks, if others left less than half of it free.
    fn missing_of_reserve(&self) -> u64 {
        let (reserve, device) = (self.core.settings.reserve, &self.core.device);
        let free = || device.memory_info().map_or(u64::MAX, |info| info.free_bytes);
        if reserve == 0 || free() >= reserve / 2 {
            return 0;
        }
        trim(&self.core.pool);
        let missing = reserve.saturating_sub(free());
        if missing <= reserve / 2 { 0 } else { missing }
    }
}
