//! The threads of a run: one per stream, each processing chunk after chunk.

use crate::chunk_order::{Failure, Piece, RemainingChunks};
use crate::data::Side;
use crate::error::{BrokerError, BrokerWarning, Stage};
use crate::footprint::Rounding;
use crate::progress::{Instant, Progress, ProgressHook, RunReport, StageSpan};
use crate::request::Role;
use crate::slot::{Chunk, StreamSlot, unknown};
use crate::state::{BrokerCore, Grant, Held};
use crate::transfer::Mover;
use parking_lot::Mutex;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use vrampool_backend::spi::start_thread;
use vrampool_backend::{Backend, logging};

/// State that the threads of a run share.
pub(super) struct Session<'a, B: Backend, F> {
    pub(super) core: &'a BrokerCore<B>,
    pub(super) group: &'a str,
    pub(super) grant: &'a Grant,
    pub(super) rounding: Rounding<B>,
    pub(super) sides: &'a [Side<'a, B>],
    pub(super) course: &'a RemainingChunks<'a>,
    pub(super) common: &'a [Option<Held<B>>],
    pub(super) work: &'a F,
    pub(super) progress: Option<&'a ProgressHook<'a>>,
    pub(super) start: Instant,
    pub(super) is_timed: bool,
    pub(super) spans: Mutex<Vec<StageSpan>>,
    pub(super) copied: Mutex<u64>,
    pub(super) watching: Mutex<()>,
}

impl<'a, B, F> Session<'a, B, F>
where
    B: Backend,
    F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
{
    /// Copies the arrays that are not cut, and runs the course in between. Returns the outcome of the copies,
    /// and the panic of a thread.
    pub(super) fn drive_batch(
        &self,
        slots: &mut [StreamSlot<B>],
        whole: &mut Piece<'_>,
    ) -> (Result<(), BrokerError>, Option<Box<dyn Any + Send>>) {
        let stream = slots[0].stream.clone();
        if let Err(error) = self.whole_arrays(&stream, whole, Role::is_uploaded) {
            return (Err(error), None);
        }
        let panic = self.drive_all(slots);
        // After a failure outputs are not copied.
        let ends = match self.course.is_stopped() {
            true => Ok(()),
            false => self.whole_arrays(&stream, whole, Role::is_downloaded),
        };
        (ends, panic)
    }

    /// Returns the report of a batch that ran on so many streams.
    pub(super) fn into_report(self, streams: usize) -> RunReport {
        let reached = self.course.reached();
        RunReport {
            chunks: reached.done_chunks,
            runs: reached.runs,
            chunk_len: reached.len,
            streams,
            shrinks: reached.shrinks,
            copied_bytes: self.copied.into_inner(),
            elapsed: self.start.elapsed(),
            spans: self.spans.into_inner(),
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

    /// Runs one chunk: copies in, the caller's work, copies out.
    fn execute(&self, slot: &StreamSlot<B>, piece: &mut Piece<'_>) -> Result<(), (Stage, BrokerError)> {
        let stream = &slot.stream;
        let mut mover = Mover::new(&self.core.device, &self.core.staging, stream);
        let outcome = self.stages(slot, piece, &mut mover);
        if outcome.is_err() {
            // The caller's data are no longer in use when the error is returned.
            mover.abandon();
        }
        *self.copied.lock() += mover.bytes;
        outcome
    }

    fn stages(
        &self,
        slot: &StreamSlot<B>,
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

    /// Waits for a stage's end and records its times, in a timed run.
    fn note(
        &self,
        chunk: &Chunk<'_, B>,
        stage: Stage,
        since: &mut Duration,
    ) -> Result<(), (Stage, BrokerError)> {
        if !self.is_timed {
            return Ok(());
        }
        self.core.device.synchronize(chunk.stream).map_err(|error| (stage, error.into()))?;
        let (start, end) = (*since, self.start.elapsed());
        *since = end;
        let (range, stream) = (chunk.range.clone(), chunk.slot);
        self.spans.lock().push(StageSpan { chunk: chunk.index, range, stream, stage, start, end });
        Ok(())
    }

    /// Copies arrays that are not cut, before the first chunk or after the last.
    fn whole_arrays(
        &self,
        stream: &B::Stream,
        whole: &mut Piece<'_>,
        which: fn(Role) -> bool,
    ) -> Result<(), BrokerError> {
        let stage = if which(Role::Input) { Stage::Upload } else { Stage::Download };
        let mut mover = Mover::new(&self.core.device, &self.core.staging, stream);
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
        // Without copies there is nothing to wait for.
        let outcome = outcome.and_then(|()| match mover.bytes {
            0 => Ok(()),
            _ => mover.land(whole, self.sides),
        });
        *self.copied.lock() += mover.bytes;
        outcome.map_err(|error| {
            mover.abandon();
            let runs = self.grant.partition.runs();
            let chunk = if stage == Stage::Upload { 0 } else { self.grant.partition.chunks() - 1 };
            BrokerError::Run { chunk, range: 0..runs, stage, source: Box::new(error) }
        })
    }

    /// Fits a stream's memory to the current chunk length. Returns false if memory is insufficient and the
    /// other streams continue with what it released.
    fn refit(&self, slot: &mut StreamSlot<B>) -> Result<bool, BrokerError> {
        loop {
            let len = self.course.len();
            if slot.len <= len {
                return Ok(true);
            }
            for (array, memory) in self.grant.arrays.iter().zip(&mut slot.memory) {
                if let Some(held) = memory.take_if(|held| held.layout.is_cut) {
                    self.core.release(array.client, held);
                }
            }
            self.core.trim_pool();
            let mut outcome = Ok(());
            for (array, memory) in self.grant.arrays.iter().zip(&mut slot.memory) {
                if array.layout.is_cut {
                    match self.core.allocate(array, Some(slot.index), len, &slot.stream) {
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
    pub(super) fn leave(&self, slot: &mut StreamSlot<B>) -> usize {
        let others = self.course.set_slot(slot.index, 0);
        for (array, memory) in self.grant.arrays.iter().zip(&mut slot.memory) {
            if let Some(held) = memory.take() {
                self.core.release(array.client, held);
            }
        }
        others
    }

    pub(super) fn shorten(&self, len: u64) {
        if self.course.shorten(len) {
            let group = self.group.to_owned();
            self.core.warn(&BrokerWarning::Shrunk { group, chunk_len: len.max(1) });
        }
    }
}
