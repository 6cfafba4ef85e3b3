//! The chunks of a run on the device: each stream's memory, the view that the caller's work gets, and the copies and
//! the work of one chunk.

use crate::chunk_order::{Piece, RemainingChunks};
use crate::data::{HostData, HostPart, Side};
use crate::error::{BrokerError, Stage};
use crate::id::ArrayId;
use crate::plan_array::PlanArray;
use crate::progress::{Instant, ProgressHook, StageSpan};
use crate::request::Role;
use crate::state::{BrokerCore, Grant, Held};
use crate::transfer::Mover;
use parking_lot::Mutex;
use std::ops::Range;
use std::time::Duration;
use vrampool_backend::{Backend, Region, RegionMut};

/// A stream, and memory for chunks of up to `len` runs.
#[derive(Debug)]
pub(crate) struct StreamSlot<B: Backend> {
    pub(crate) index: usize,
    pub(crate) stream: B::Stream,
    pub(crate) len: u64,
    /// Without the arrays that all streams share.
    pub(crate) memory: Vec<Held<B>>,
}

/// A part of a batch on the device, passed to the caller's work of a [run](crate::Execution::run).
#[derive(Debug)]
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
            return Err(
                found.refused("it is an input that is not cut: all streams read it, and none writes it")
            );
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

/// The caller's work on one chunk.
pub(crate) trait Work<B: Backend>:
    Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync
{
}

impl<B: Backend, F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync> Work<B> for F {}

/// State that the threads of a run share.
pub(crate) struct Batch<'a, B: Backend> {
    pub(crate) core: &'a BrokerCore<B>,
    pub(crate) group: &'a str,
    pub(crate) grant: &'a Grant,
    /// Memory of arrays that all streams share.
    pub(crate) common: &'a [Held<B>],
    pub(crate) course: Mutex<RemainingChunks<'a, B>>,
    pub(crate) progress: Option<&'a ProgressHook<'a>>,
    pub(crate) watching: Mutex<()>,
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
        piece: &mut Piece<'_, B>,
        work: &F,
    ) -> Result<(), (Stage, BrokerError)> {
        let mut mover = Mover::new(&self.core.device, &self.core.staging, &slot.stream);
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
        Piece { index, range, parts }: &mut Piece<'_, B>,
        mover: &mut Mover<'_, B>,
        work: &F,
    ) -> Result<(), (Stage, BrokerError)> {
        let stream = &slot.stream;
        let at = |stage| move |error| (stage, error);
        let memory = |array: &PlanArray| {
            let held = slot.memory.iter().chain(self.common).find(|held| held.array == array.id);
            let region = held.ok_or_else(|| unknown(array.id))?.buffer.on(stream)?;
            let bytes = self.core.request_bytes(array.layout.chunk_bytes(range.end - range.start));
            Ok(region.slice(..bytes.min(region.len()))?)
        };
        let cut = || self.grant.arrays.iter().enumerate().filter(|(_, array)| array.layout.is_cut);
        let regions = self.grant.arrays.iter().map(memory);
        let regions = regions.collect::<Result<_, _>>().map_err(at(Stage::Allocate))?;
        let (index, range, grant) = (*index, range.clone(), self.grant);
        let chunk = Chunk { index, range, slot: slot.index, stream, grant, regions };
        let mut since = self.start.elapsed();

        for (place, _) in cut().filter(|(_, array)| array.role.is_uploaded()) {
            mover.upload(&parts[place], &chunk.regions[place]).map_err(at(Stage::Upload))?;
        }
        self.note(&chunk, Stage::Upload, &mut since)?;

        work(&chunk, stream).map_err(at(Stage::Compute))?;
        self.note(&chunk, Stage::Compute, &mut since)?;

        for (place, _) in cut().filter(|(_, array)| array.role.is_downloaded()) {
            mover.download(parts, place, &chunk.regions[place]).map_err(at(Stage::Download))?;
        }
        mover.land(parts).map_err(at(Stage::Download))?;
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

    /// Copies arrays that are not cut: to the device before the first chunk, or to the host after the last.
    pub(crate) fn whole_arrays(
        &self,
        stream: &B::Stream,
        parts: &mut [HostPart<'_, B>],
        stage: Stage,
    ) -> Result<(), BrokerError> {
        let is_upload = stage == Stage::Upload;
        let is_copied = if is_upload { Role::is_uploaded } else { Role::is_downloaded };
        let mut mover = Mover::new(&self.core.device, &self.core.staging, stream);
        let copied = self.grant.arrays.iter().enumerate().try_for_each(|(place, array)| {
            let held = self.common.iter().find(|held| held.array == array.id);
            let Some(held) = held.filter(|_| is_copied(array.role)) else { return Ok(()) };
            let region = held.buffer.on(stream)?.slice(..self.core.request_bytes(array.layout.bytes()))?;
            match is_upload {
                true => mover.upload(&parts[place], &region),
                false => mover.download(parts, place, &region),
            }
        });
        // Without copies there is nothing to wait for.
        let outcome = copied.and_then(|()| if mover.bytes == 0 { Ok(()) } else { mover.land(parts) });
        *self.copied.lock() += mover.bytes;
        outcome.map_err(|error| {
            mover.abandon();
            let chunk = if is_upload { 0 } else { self.grant.partition.chunks() - 1 };
            let range = 0..self.grant.partition.runs();
            BrokerError::Run { chunk, range, stage, source: Box::new(error) }
        })
    }
}

/// The host's bytes of each array of a grant, checked against its role: of arrays that are cut, and of the others.
pub(crate) fn bound<'a, B: Backend>(
    grant: &Grant,
    data: Vec<(ArrayId, Role, HostData<'a, B>)>,
) -> Result<[Vec<HostPart<'a, B>>; 2], BrokerError> {
    let mut found: Vec<_> = grant.arrays.iter().map(|_| None).collect();
    for (id, role, data) in data {
        let at = grant.arrays.iter().position(|array| array.id == id).ok_or_else(|| unknown(id))?;
        let array = &grant.arrays[at];
        let refused = |reason: &str| Err(array.refused(reason));
        match array.role {
            own if own == role => {}
            Role::Input => return refused("it is an input: give its data to `upload`"),
            Role::Output => return refused("it is an output: give its place to `download`"),
            Role::InOut => return refused("it goes both ways: give its data to `exchange`"),
            Role::Scratch => return refused("it is scratch, which has no data of the host's"),
        }
        if data.len != array.layout.bytes() {
            let (bytes, found) = (array.layout.bytes(), data.len);
            return refused(&format!(
                "it has {bytes} bytes, but its data {found}; give data of the same length"
            ));
        }
        found[at] = Some(data.side);
    }
    let (mut cut, mut whole) = (Vec::new(), Vec::new());
    for (array, side) in grant.arrays.iter().zip(found) {
        if side.is_none() && array.role != Role::Scratch {
            return Err(array.refused("it has no data: bind some before the run, or ask for it as scratch"));
        }
        let side = side.unwrap_or(Side::None);
        let sides = if array.layout.is_cut { [side, Side::None] } else { [Side::None, side] };
        let [of_cut, of_whole] = sides.map(|side| HostPart::new(side, array.layout));
        cut.push(of_cut);
        whole.push(of_whole);
    }
    Ok([cut, whole])
}
