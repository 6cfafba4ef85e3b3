//! A batch on its way through the device: a thread for each stream, and chunk after chunk on each.

use super::commit::InRun;
use super::course::{Course, Failure, Piece, Rows};
use super::plan::{Data, Way};
use super::request::Role;
use super::slot::{Chunk, Slot, unknown};
use super::state::{Demand, Grant, Held, Rounding, Shared};
use super::transfer::{Mover, Side};
use super::{ArrayId, BrokerError, Footprint, Stage, Warning};
use parking_lot::Mutex;
use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
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

type ProgressHook<'a> = dyn Fn(&Progress) + Sync + 'a;
type Panic = Box<dyn Any + Send>;

/// What the threads of a run share.
struct Session<'a, B: Backend, F> {
    shared: &'a Shared<B>,
    group: &'a str,
    grant: &'a Grant,
    rounding: Rounding,
    sides: &'a [Side<'a, B>],
    course: &'a Course<'a>,
    common: &'a [Option<Held<B>>],
    work: &'a F,
    progress: Option<&'a ProgressHook<'a>>,
    start: Instant,
    is_timed: bool,
    spans: Mutex<Vec<Span>>,
    copied: Mutex<u64>,
    watching: Mutex<()>,
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
    let InRun { grant, streams, memory } = shared.begin(group)?;
    let (mut slots, mut common) = sort(&grant, &streams, memory);
    let ordered = hand_over(&mut slots, &mut common);
    shared.staging.ask_again();
    let mut has_shrunk = false;
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
            spans: Mutex::new(Vec::new()),
            copied: Mutex::new(0),
            watching: Mutex::new(()),
        };
        let stream = slots[0].stream.clone();
        let ends = session.whole_arrays(&stream, &mut whole, Role::is_uploaded).and_then(|()| {
            panic = session.drive_all(&mut slots);
            // After a failure nobody wants them.
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
        match course.take_failure() {
            Some(Failure { chunk, range, stage, error }) => {
                Err(BrokerError::Run { chunk, range, stage, source: Box::new(error) })
            }
            None => ends.map(|()| report),
        }
    });
    let memory = slots.into_iter().flat_map(|slot| slot.memory).chain(common).flatten().collect();
    let failed = outcome.is_err() || panic.is_some();
    shared.finish(group, InRun { grant, streams, memory }, has_shrunk, failed);
    match panic {
        Some(panic) => resume_unwind(panic),
        None => outcome,
    }
}

impl<'a, B, F> Session<'a, B, F>
where
    B: Backend,
    F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
{
    /// Runs the course on all streams: the first by this thread, each other one by a thread of its own. Answers what a thread threw.
    fn drive_all(&self, slots: &mut [Slot<B>]) -> Option<Panic> {
        let guarded = |slot: &mut Slot<B>| {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.drive(slot)));
            outcome.inspect_err(|_| self.course.stop()).err()
        };
        let (first, others) = slots.split_first_mut()?;
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for slot in others {
                let (index, name) = (slot.index, format!("broker {} {}", self.group, slot.index));
                let thread = std::thread::Builder::new().name(name);
                match thread.spawn_scoped(scope, || guarded(slot)) {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        log::warn!("broker: stream {index} has no thread, so others do its work: {error}");
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
    fn drive(&self, slot: &mut Slot<B>) {
        loop {
            self.watch();
            match self.refit(slot) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    let (chunk, range) = self.course.upcoming();
                    return self.course.fail(Failure { chunk, range, stage: Stage::Allocate, error });
                }
            }
            let Some(mut piece) = self.course.take(slot.len) else { return };
            if let Err((stage, error)) = self.execute(slot, &mut piece) {
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

    /// One chunk: to the device, through the caller's work, and back.
    fn execute(&self, slot: &Slot<B>, piece: &mut Piece<'_>) -> Result<(), (Stage, BrokerError)> {
        let stream = &slot.stream;
        let mut mover = Mover::new(&self.shared.device, &self.shared.staging, stream);
        let outcome = self.stages(slot, piece, &mut mover);
        if outcome.is_err() {
            // Nothing of the caller's is used any more when the error is known.
            mover.abandon();
        }
        *self.copied.lock() += mover.bytes;
        outcome
    }

    fn stages(
        &self,
        slot: &Slot<B>,
        piece: &mut Piece<'_>,
        mover: &mut Mover<'_, B>,
    ) -> Result<(), (Stage, BrokerError)> {
        let stream = &slot.stream;
        let at = |stage| move |error| (stage, error);
        let len = piece.range.end - piece.range.start;
        let mut regions = Vec::with_capacity(self.grant.arrays.len());
        for (array, own) in self.grant.arrays.iter().zip(&slot.memory).enumerate() {
            let held = own.1.as_ref().or(self.common[array].as_ref());
            let held = held.ok_or_else(|| (Stage::Allocate, unknown(own.0.id)))?;
            let bytes = self.rounding.request(own.0.layout.chunk_bytes(len));
            let region = held.buffer.on(stream).map_err(|error| (Stage::Allocate, error.into()))?;
            regions.push(
                region.slice(..bytes.min(region.len())).map_err(|error| (Stage::Allocate, error.into()))?,
            );
        }
        let chunk = Chunk {
            index: piece.index,
            range: piece.range.clone(),
            slot: slot.index,
            stream,
            grant: self.grant,
            regions,
        };
        let cut = || self.grant.arrays.iter().enumerate().filter(|(_, array)| array.layout.is_cut);
        let mut since = self.start.elapsed();

        for (index, array) in cut().filter(|(_, array)| array.role.is_uploaded()) {
            let side = self.sides[index];
            mover
                .upload(side, piece, index, array.layout, &chunk.regions[index])
                .map_err(at(Stage::Upload))?;
        }
        self.note(&chunk, Stage::Upload, &mut since)?;

        (self.work)(&chunk, stream).map_err(at(Stage::Compute))?;
        self.note(&chunk, Stage::Compute, &mut since)?;

        for (index, array) in cut().filter(|(_, array)| array.role.is_downloaded()) {
            let side = self.sides[index];
            mover
                .download(side, piece, index, array.layout, &chunk.regions[index], self.sides)
                .map_err(at(Stage::Download))?;
        }
        mover.land(piece, self.sides).map_err(at(Stage::Download))?;
        self.note(&chunk, Stage::Download, &mut since)
    }

    /// Waits for a stage's end and notes when it was, in a run that is timed.
    fn note(
        &self,
        chunk: &Chunk<'_, B>,
        stage: Stage,
        since: &mut Duration,
    ) -> Result<(), (Stage, BrokerError)> {
        if !self.is_timed {
            return Ok(());
        }
        self.shared.device.synchronize(chunk.stream).map_err(|error| (stage, error.into()))?;
        let (start, end) = (*since, self.start.elapsed());
        *since = end;
        let (range, stream) = (chunk.range.clone(), chunk.slot);
        self.spans.lock().push(Span { chunk: chunk.index, range, stream, stage, start, end });
        Ok(())
    }

    /// Copies arrays that are not cut, before the first chunk or behind the last.
    fn whole_arrays(
        &self,
        stream: &B::Stream,
        whole: &mut Piece<'_>,
        which: fn(Role) -> bool,
    ) -> Result<(), BrokerError> {
        let stage = if which(Role::Input) { Stage::Upload } else { Stage::Download };
        let mut mover = Mover::new(&self.shared.device, &self.shared.staging, stream);
        let mut outcome = Ok(());
        for (index, array) in self.grant.arrays.iter().enumerate() {
            let Some(held) = self.common[index].as_ref().filter(|_| which(array.role)) else { continue };
            let side = self.sides[index];
            let bytes = self.rounding.request(array.layout.bytes());
            outcome = held.buffer.on(stream).map_err(BrokerError::from).and_then(|region| {
                let region = region.slice(..bytes)?;
                match stage {
                    Stage::Upload => mover.upload(side, whole, index, array.layout, &region),
                    _ => mover.download(side, whole, index, array.layout, &region, self.sides),
                }
            });
            if outcome.is_err() {
                break;
            }
        }
        let outcome = outcome.and_then(|()| mover.land(whole, self.sides));
        *self.copied.lock() += mover.bytes;
        outcome.map_err(|error| {
            mover.abandon();
            let runs = self.grant.partition.runs();
            let chunk = if stage == Stage::Upload { 0 } else { self.grant.partition.chunks() - 1 };
            BrokerError::Run { chunk, range: 0..runs, stage, source: Box::new(error) }
        })
    }

    /// Has a stream's memory be as the course says; false: there is none, and others go on without it.
    fn refit(&self, slot: &mut Slot<B>) -> Result<bool, BrokerError> {
        loop {
            let len = self.course.len();
            if slot.len <= len {
                return Ok(true);
            }
            for (array, memory) in self.grant.arrays.iter().zip(&mut slot.memory) {
                if let Some(held) = memory.take_if(|held| held.layout.is_cut) {
                    self.shared.release(array.client, held);
                }
            }
            let pool = self.shared.pool().0;
            pool.trim();
            let mut outcome = Ok(());
            for (array, memory) in self.grant.arrays.iter().zip(&mut slot.memory) {
                if array.layout.is_cut {
                    match self.shared.allocate(array, Some(slot.index), len, &slot.stream) {
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
                    let others = self.course.set_slot(slot.index, 0);
                    return if error.is_out_of_memory() && others > 0 { Ok(false) } else { Err(error) };
                }
            }
        }
    }

    /// Shortens chunks where others left less free than half of the reserve, by as much as gives it back.
    fn watch(&self) {
        let (reserve, device) = (self.shared.settings.reserve, &self.shared.device);
        // One looks at a time, and not before everybody followed the last time.
        let Some(_watching) = self.watching.try_lock().filter(|_| reserve > 0) else { return };
        let Some((len, streams)) = self.course.settled().filter(|&(len, _)| len > 1) else { return };
        let free = || device.memory_info().map_or(u64::MAX, |info| info.free_bytes);
        if free() >= reserve / 2 {
            return;
        }
        self.shared.pool().0.trim();
        let missing = reserve.saturating_sub(free());
        if missing <= reserve / 2 {
            return;
        }
        let demand = Demand { arrays: &self.grant.arrays, rounding: self.rounding };
        let now = demand.held(len, streams);
        let gives = |len: u64| now.saturating_sub(demand.held(len, streams)) >= missing;
        let (mut enough, mut too_long) = (1, len);
        while enough + 1 < too_long {
            let middle = enough + (too_long - enough) / 2;
            if gives(middle) { enough = middle } else { too_long = middle }
        }
        self.shorten(enough);
    }

    fn shorten(&self, len: u64) {
        if self.course.shorten(len) {
            let group = self.group.to_owned();
            self.shared.warn(&Warning::Shrunk { group, chunk_len: len.max(1) });
        }
    }
}

/// A run's memory by streams, and what all of them share.
fn sort<B: Backend>(
    grant: &Grant,
    streams: &[B::Stream],
    memory: Vec<Held<B>>,
) -> (Vec<Slot<B>>, Vec<Option<Held<B>>>) {
    let none = || grant.arrays.iter().map(|_| None).collect::<Vec<_>>();
    let len = grant.partition.chunk_len();
    let slot =
        |(index, stream): (usize, &B::Stream)| Slot { index, stream: stream.clone(), len, memory: none() };
    let mut slots: Vec<_> = streams.iter().take(grant.slots).enumerate().map(slot).collect();
    let mut common = none();
    for held in memory {
        let Some(at) = grant.arrays.iter().position(|array| array.id == held.array) else { continue };
        match held.slot.map(|slot| slots.get_mut(slot)) {
            Some(Some(slot)) => slot.memory[at] = Some(held),
            Some(None) => {}
            None => common[at] = Some(held),
        }
    }
    (slots, common)
}

/// Orders memory behind whatever used it: each stream's own on that stream, what all share on the first.
fn hand_over<B: Backend>(slots: &mut [Slot<B>], common: &mut [Option<Held<B>>]) -> Result<(), BrokerError> {
    let Some(first) = slots.first().map(|slot| slot.stream.clone()) else { return Ok(()) };
    let own = slots.iter_mut().flat_map(|slot| {
        let stream = slot.stream.clone();
        slot.memory.iter_mut().flatten().map(move |held| (held, stream.clone()))
    });
    let common = common.iter_mut().flatten().map(|held| (held, first.clone()));
    for (held, stream) in own.chain(common) {
        held.buffer.on_mut(&stream)?;
    }
    Ok(())
}

/// The data of each array of a grant, as its role asks for them.
fn bound<'a, B: Backend>(
    grant: &Grant,
    data: Vec<(ArrayId, Way, Data<'a, B>)>,
) -> Result<Vec<Option<Data<'a, B>>>, BrokerError> {
    let mut found: Vec<_> = grant.arrays.iter().map(|_| None).collect();
    for (id, way, data) in data {
        let at = grant.arrays.iter().position(|array| array.id == id).ok_or_else(|| unknown(id))?;
        let array = &grant.arrays[at];
        let refused = |reason: &str| {
            Err(BrokerError::Request { label: array.label.clone(), reason: reason.to_owned() })
        };
        match (array.role, way) {
            (Role::Input, Way::Up) | (Role::Output, Way::Down) | (Role::InOut, Way::Both) => {}
            (Role::Input, _) => return refused("it is an input: give its data to `upload`"),
            (Role::Output, _) => return refused("it is an output: give its place to `download`"),
            (Role::InOut, _) => return refused("it goes both ways: give its data to `exchange`"),
            (Role::Scratch, _) => return refused("it is scratch, which has no data of the host's"),
        }
        if data.len() != array.layout.bytes() {
            let (label, bytes) = (array.label.clone(), array.layout.bytes());
            return Err(BrokerError::Length { label, array: bytes, data: data.len() });
        }
        found[at] = Some(data);
    }
    for (array, data) in grant.arrays.iter().zip(&found) {
        if data.is_none() && array.role != Role::Scratch {
            let reason = "it has no data: bind some before the run, or ask for it as scratch".into();
            return Err(BrokerError::Request { label: array.label.clone(), reason });
        }
    }
    Ok(found)
}

/// Takes the bytes that are written out of the data: those of arrays that are cut by rows, and of the others as one piece.
fn rows<'a, B: Backend>(grant: &Grant, data: &mut [Option<Data<'a, B>>]) -> (Rows<'a>, Piece<'a>) {
    let mut whole = Vec::new();
    let mut cut = Vec::new();
    for (array, data) in grant.arrays.iter().zip(data) {
        let bytes = match data {
            Some(Data::Write(bytes)) => Some(std::mem::take(bytes)),
            _ => None,
        };
        let (to_cut, to_whole) = if array.layout.is_cut { (bytes, None) } else { (None, bytes) };
        let row = usize::try_from(array.layout.row_bytes(array.layout.runs)).unwrap_or(usize::MAX).max(1);
        cut.push(to_cut.map(|bytes| (array.layout, bytes.chunks_mut(row).collect())));
        whole.push(to_whole.map(|bytes| vec![bytes]));
    }
    (cut, Piece { index: 0, range: 0..grant.partition.runs(), rows: whole })
}
