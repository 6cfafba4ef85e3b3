//! The chunks of a run on the device: each stream's memory, the view that the caller's work gets, and the copies and the work of one
//! chunk.

use crate::chunk_order::{Piece, Rows};
use crate::data::{Data, Side};
use crate::error::{BrokerError, Stage};
use crate::footprint::Rounding;
use crate::id::ArrayId;
use crate::progress::{Instant, StageSpan};
use crate::request::Role;
use crate::state::{BrokerCore, Grant, Held};
use crate::transfer::Mover;
use parking_lot::Mutex;
use std::fmt;
use std::ops::Range;
use std::time::Duration;
use vrampool_backend::{Backend, Region, RegionMut};

/// A stream, and memory for chunks of up to `len` runs.
#[derive(Debug)]
pub(crate) struct StreamSlot<B: Backend> {
    pub(crate) index: usize,
    pub(crate) stream: B::Stream,
    pub(crate) len: u64,
    /// By array of the grant; `None` for arrays that all streams share.
    pub(crate) memory: Vec<Option<Held<B>>>,
}

/// A part of a batch on the device, passed to the caller's work of a [run](crate::Execution::run).
pub struct Chunk<'a, B: Backend> {
    pub(crate) index: u64,
    pub(crate) range: Range<u64>,
    pub(crate) slot: usize,
    pub(crate) stream: &'a B::Stream,
    pub(crate) grant: &'a Grant,
    /// By array. They prevent moves of the memory while the chunk exists.
    pub(crate) regions: Vec<Region<'a, B::Memory>>,
}

impl<'a, B: Backend> Chunk<'a, B> {
    /// Returns its number, from 0.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Returns its runs.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Returns the number of runs.
    #[must_use]
    pub fn runs(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Returns the index of its stream within the run.
    #[must_use]
    pub fn stream_index(&self) -> usize {
        self.slot
    }

    /// Returns an array's part for reading on the chunk's stream.
    ///
    /// The part is dense, with the array's shape and [`runs`](Self::runs) along the chunk axis; for an array
    /// that is not cut it is the whole array.
    ///
    /// # Errors
    /// [`BrokerError::Request`] for an array of another plan.
    pub fn region(&self, array: ArrayId) -> Result<Region<'a, B::Memory>, BrokerError> {
        let at = self.position(array)?;
        let bytes = self.grant.arrays[at].layout.chunk_bytes(self.runs());
        Ok(self.regions[at].slice(..bytes)?)
    }

    /// Returns the same part for writing. Uses of a part are ordered by the chunk's single stream.
    ///
    /// # Errors
    /// As [`region`](Self::region); [`BrokerError::Request`] also for an input that is not cut, because other
    /// streams read it.
    pub fn region_mut(&self, array: ArrayId) -> Result<RegionMut<'a, B::Memory>, BrokerError> {
        let at = self.position(array)?;
        let found = &self.grant.arrays[at];
        if found.is_shared() && !found.is_sole() {
            let reason = "it is an input that is not cut: all streams read it, and none writes it".into();
            return Err(BrokerError::Request { label: found.label.clone(), reason });
        }
        Ok(self.region(array)?.assume_exclusive())
    }

    fn position(&self, array: ArrayId) -> Result<usize, BrokerError> {
        let found = self.grant.arrays.iter().position(|own| own.id == array);
        found.ok_or_else(|| unknown(array))
    }
}

pub(crate) fn unknown(array: ArrayId) -> BrokerError {
    let reason = "it is none of the plan's: commit after it is queued, and use what was queued last".into();
    BrokerError::Request { label: format!("number {}", array.0), reason }
}

impl<B: Backend> fmt::Debug for Chunk<'_, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunk")
            .field("index", &self.index)
            .field("range", &self.range)
            .field("stream", &self.slot)
            .finish_non_exhaustive()
    }
}

/// The caller's work on one chunk.
pub(crate) trait Work<B: Backend>:
    Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync
{
}

impl<B: Backend, F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync> Work<B> for F {}

/// What the chunks of a run have in common, and what they measure.
pub(crate) struct Batch<'a, B: Backend> {
    pub(crate) core: &'a BrokerCore<B>,
    pub(crate) grant: &'a Grant,
    pub(crate) rounding: Rounding<B>,
    pub(crate) sides: &'a [Side<'a, B>],
    /// Memory of arrays that all streams share, by array.
    pub(crate) common: &'a [Option<Held<B>>],
    pub(crate) start: Instant,
    pub(crate) is_timed: bool,
    pub(crate) spans: Mutex<Vec<StageSpan>>,
    pub(crate) copied: Mutex<u64>,
}

impl<B: Backend> Batch<'_, B> {
    /// Runs one chunk: copies in, the caller's work, copies out.
    pub(crate) fn execute<F: Work<B>>(
        &self,
        slot: &StreamSlot<B>,
        piece: &mut Piece<'_>,
        work: &F,
    ) -> Result<(), (Stage, BrokerError)> {
        let stream = &slot.stream;
        let mut mover = Mover::new(&self.core.device, &self.core.staging, stream);
        let outcome = self.stages(slot, piece, &mut mover, work);
        if outcome.is_err() {
            // The caller's data are no longer in use when the error is returned.
            mover.abandon();
        }
        *self.copied.lock() += mover.bytes;
        outcome
    }

    fn stages<F: Work<B>>(
        &self,
        slot: &StreamSlot<B>,
        piece: &mut Piece<'_>,
        mover: &mut Mover<'_, B>,
        work: &F,
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

        work(&chunk, stream).map_err(at(Stage::Compute))?;
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
    pub(crate) fn whole_arrays(
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
}

/// Splits a run's memory by stream, and returns the memory that all streams share.
pub(crate) fn sort<B: Backend>(
    grant: &Grant,
    streams: &[B::Stream],
    memory: Vec<Held<B>>,
) -> (Vec<StreamSlot<B>>, Vec<Option<Held<B>>>) {
    let none = || grant.arrays.iter().map(|_| None).collect::<Vec<_>>();
    let len = grant.partition.chunk_len();
    let slot = |(index, stream): (usize, &B::Stream)| StreamSlot {
        index,
        stream: stream.clone(),
        len,
        memory: none(),
    };
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

/// Orders memory after its earlier users: each stream's own on that stream, shared memory on the first.
pub(crate) fn hand_over<B: Backend>(
    slots: &mut [StreamSlot<B>],
    common: &mut [Option<Held<B>>],
) -> Result<(), BrokerError> {
    let Some(first) = slots.first().map(|slot| slot.stream.clone()) else { return Ok(()) };
    let own = slots.iter_mut().flat_map(|slot| {
        let stream = slot.stream.clone();
        slot.memory.iter_mut().flatten().map(move |held| (held, stream.clone()))
    });
    let common = common.iter_mut().flatten().map(|held| (held, first.clone()));
    for (held, stream) in own.chain(common) {
        held.buffer.reuse_on(&stream)?;
    }
    Ok(())
}

/// Returns the data of each array of a grant, checked against its role.
pub(crate) fn bound<'a, B: Backend>(
    grant: &Grant,
    data: Vec<(ArrayId, Role, Data<'a, B>)>,
) -> Result<Vec<Option<Data<'a, B>>>, BrokerError> {
    let mut found: Vec<_> = grant.arrays.iter().map(|_| None).collect();
    for (id, role, data) in data {
        let at = grant.arrays.iter().position(|array| array.id == id).ok_or_else(|| unknown(id))?;
        let array = &grant.arrays[at];
        let refused = |reason: &str| {
            Err(BrokerError::Request { label: array.label.clone(), reason: reason.to_owned() })
        };
        match array.role {
            own if own == role => {}
            Role::Input => return refused("it is an input: give its data to `upload`"),
            Role::Output => return refused("it is an output: give its place to `download`"),
            Role::InOut => return refused("it goes both ways: give its data to `exchange`"),
            Role::Scratch => return refused("it is scratch, which has no data of the host's"),
        }
        if data.len != array.layout.bytes() {
            let (label, bytes) = (array.label.clone(), array.layout.bytes());
            return Err(BrokerError::Length { label, array_bytes: bytes, data_bytes: data.len });
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

/// Takes the writable bytes out of the data: by rows for arrays that are cut, and as one piece for others.
pub(crate) fn rows<'a, B: Backend>(grant: &Grant, data: &mut [Option<Data<'a, B>>]) -> (Rows<'a>, Piece<'a>) {
    let mut whole = Vec::new();
    let mut cut = Vec::new();
    for (array, data) in grant.arrays.iter().zip(data) {
        let bytes = data.as_mut().and_then(|data| data.rows.take());
        let (to_cut, to_whole) = if array.layout.is_cut { (bytes, None) } else { (None, bytes) };
        let row = usize::try_from(array.layout.row_bytes(array.layout.runs)).unwrap_or(usize::MAX).max(1);
        cut.push(to_cut.map(|bytes| (array.layout, bytes.chunks_mut(row).collect())));
        whole.push(to_whole.map(|bytes| vec![bytes]));
    }
    (cut, Piece { index: 0, range: 0..grant.partition.runs(), rows: whole })
}
