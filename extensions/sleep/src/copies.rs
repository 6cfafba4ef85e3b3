//! Copies between device memory and host memory, in pieces, pipelined over two streams.
//!
//! A piece is enqueued on one stream while the one before it is copied on the other. Pageable host memory goes through a
//! pinned staging buffer for each stream: the host copies one piece while the device copies the other.

use crate::error::Error;
use crate::host_copy::{HostCopy, Place, can_pin};
use crate::progress::{OnProgress, Progress};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use vrampool::backend::AllocationRequest;
use vrampool::backend::spi::wait_out;
use vrampool::{Backend, Memory, Placement, Region, RegionMut};

/// Largest piece, and so the size of a staging buffer, bytes.
const PIECE: u64 = 32 << 20;

/// Copies memory of a device, each as a whole, to host memory of as many bytes, and waits. `host` returns that memory,
/// by the number of the memory, in order; earlier copies go on meanwhile. Work that uses the memory must be complete.
///
/// Copies are pipelined over two streams. `on_progress` is called after each piece.
///
/// ```
/// use vrampool::backend::AllocationRequest;
/// use vrampool::{Backend, Placement, host::HostDevice};
/// use vrampool_sleep::{Error, HostCopy, Offload, restore_contents, save_contents};
///
/// # fn main() -> Result<(), Error> {
/// let device = HostDevice::new();
/// let memory = device.allocate(&AllocationRequest::new(1 << 20, Placement::Device))?;
/// let mut saved = save_contents(&device, &[&memory], |_| HostCopy::new(&device, 1 << 20, Offload::Pinned), &|_| ())?;
/// assert_eq!(saved[0].as_slice(&device)?.len(), 1 << 20);
/// restore_contents(&device, &[(&saved[0], &memory)], &|_| ())?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of `host`; [`Error::Arena`] if the device fails. No copy is pending then.
pub fn save_contents<B: Backend>(
    device: &B,
    memories: &[&B::Memory],
    mut host: impl FnMut(usize) -> Result<HostCopy<B>, Error>,
    on_progress: OnProgress<'_>,
) -> Result<Vec<HostCopy<B>>, Error> {
    let total = memories.iter().map(|memory| memory.len()).sum();
    copying(device, &Progress::new(total, on_progress), total, |copies| {
        memories.iter().enumerate().try_for_each(|(nth, memory)| {
            copies.open(host(nth)?);
            copies.save(memory, 0, 0, memory.len())
        })
    })
}

/// Copies host memory to memory of a device, as a whole, and waits. As [`save_contents`], in the other direction.
///
/// # Errors
/// [`Error::Arena`] if the device fails. No copy is pending then; contents of the memory are undefined.
pub fn restore_contents<B: Backend>(
    device: &B,
    contents: &[(&HostCopy<B>, &B::Memory)],
    on_progress: OnProgress<'_>,
) -> Result<(), Error> {
    let total = contents.iter().map(|(host, _)| host.bytes()).sum();
    let restore = |copies: &mut Copies<'_, B>| {
        contents.iter().try_for_each(|(host, memory)| copies.restore(host, 0, memory, 0, host.bytes()))
    };
    copying(device, &Progress::new(total, on_progress), total, restore).map(drop)
}

/// Makes copies of `total` bytes in all, and waits until they are complete: also for those before one that fails or
/// panics, so that the caller may unmap or reuse their memory. Returns the host memory that was saved to.
pub(super) fn copying<B: Backend>(
    device: &B,
    progress: &Progress<'_>,
    total: u64,
    enqueue: impl FnOnce(&mut Copies<'_, B>) -> Result<(), Error>,
) -> Result<Vec<HostCopy<B>>, Error> {
    let lane = || Ok::<_, Error>(Lane { stream: device.create_stream()?, staging: None, pending: None });
    let mut copies = Copies {
        device,
        lanes: [lane()?, lane()?],
        next: 0,
        piece: total.clamp(1, PIECE),
        stages: can_pin(device),
        saved: Vec::new(),
        progress,
    };
    let copy = AssertUnwindSafe(|| enqueue(&mut copies).and_then(|()| copies.complete()));
    let done = catch_unwind(copy);
    if !matches!(done, Ok(Ok(()))) {
        for lane in &copies.lanes {
            // The first failure is reported.
            let _ = catch_unwind(AssertUnwindSafe(|| wait_out(device, &lane.stream)));
        }
    }
    done.unwrap_or_else(|panic| resume_unwind(panic))?;
    Ok(copies.saved)
}

/// Copies in one direction.
pub(super) struct Copies<'a, B: Backend> {
    device: &'a B,
    lanes: [Lane<B>; 2],
    /// The lane of the next piece.
    next: usize,
    /// Bytes of a piece at most.
    piece: u64,
    /// Whether pageable memory goes through staging buffers. Not any more once there is no pinned memory for them.
    stages: bool,
    /// The host memory of saves.
    saved: Vec<HostCopy<B>>,
    progress: &'a Progress<'a>,
}

/// A stream, its staging buffer, and the piece that it copies.
#[derive(Debug)]
struct Lane<B: Backend> {
    stream: B::Stream,
    staging: Option<B::Memory>,
    pending: Option<Pending>,
}

#[derive(Debug)]
struct Pending {
    bytes: u64,
    /// Where staged bytes go: a place in `saved`, and an offset.
    landing: Option<(usize, u64)>,
}

impl<B: Backend> Copies<'_, B> {
    /// Adds host memory, which saves go to from now on.
    pub(super) fn open(&mut self, host: HostCopy<B>) {
        self.saved.push(host);
    }

    /// Copies bytes of device memory from `start` on to the host memory that was opened last, from `at` on.
    pub(super) fn save(&mut self, memory: &B::Memory, start: u64, at: u64, bytes: u64) -> Result<(), Error> {
        let Some(last) = self.saved.len().checked_sub(1) else { return Ok(()) };
        for (offset, bytes) in pieces(bytes, self.piece) {
            let (nth, at) = (self.turn()?, at + offset);
            let is_staged = !self.saved[last].is_pinned() && self.stage(nth)?;
            let (device, lane) = (self.device, &mut self.lanes[nth]);
            let source = Region::new(memory, start + offset, bytes, &lane.stream)?;
            let mut landing = None;
            match (&mut self.saved[last].place, &lane.staging) {
                (Place::Pinned(host), _) => {
                    device.copy(&lane.stream, source, RegionMut::new(host, at, bytes, &lane.stream)?)?;
                }
                (Place::Pageable(_), Some(staging)) if is_staged => {
                    device.copy(&lane.stream, source, RegionMut::new(staging, 0, bytes, &lane.stream)?)?;
                    landing = Some((last, at));
                }
                (Place::Pageable(host), _) => {
                    device.download(&lane.stream, source, &mut host[at as usize..][..bytes as usize])?;
                }
            }
            lane.pending = Some(Pending { bytes, landing });
        }
        Ok(())
    }

    /// Copies bytes of host memory from `at` on to device memory, from `start` on.
    pub(super) fn restore(
        &mut self,
        host: &HostCopy<B>,
        at: u64,
        memory: &B::Memory,
        start: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        for (offset, bytes) in pieces(bytes, self.piece) {
            let (nth, at) = (self.turn()?, at + offset);
            let is_staged = !host.is_pinned() && self.stage(nth)?;
            let (device, lane) = (self.device, &mut self.lanes[nth]);
            let destination = RegionMut::new(memory, start + offset, bytes, &lane.stream)?;
            match (&host.place, &lane.staging) {
                (Place::Pinned(host), _) => {
                    device.copy(&lane.stream, Region::new(host, at, bytes, &lane.stream)?, destination)?;
                }
                (Place::Pageable(host), Some(staging)) if is_staged => {
                    device.write_mapped(staging, 0, &host[at as usize..][..bytes as usize])?;
                    device.copy(&lane.stream, Region::new(staging, 0, bytes, &lane.stream)?, destination)?;
                }
                (Place::Pageable(host), _) => {
                    device.upload(&lane.stream, &host[at as usize..][..bytes as usize], destination)?;
                }
            }
            lane.pending = Some(Pending { bytes, landing: None });
        }
        Ok(())
    }

    /// The lane of the next piece, after the piece that it copied before.
    fn turn(&mut self) -> Result<usize, Error> {
        let nth = self.next;
        self.next = 1 - nth;
        self.land(nth)?;
        Ok(nth)
    }

    /// Waits for the piece of a lane.
    fn land(&mut self, nth: usize) -> Result<(), Error> {
        let lane = &mut self.lanes[nth];
        let Some(Pending { bytes, landing }) = lane.pending.take() else { return Ok(()) };
        self.device.synchronize(&lane.stream)?;
        if let (Some((to, at)), Some(staging)) = (landing, &lane.staging)
            && let Place::Pageable(host) = &mut self.saved[to].place
        {
            self.device.read_mapped(staging, 0, &mut host[at as usize..][..bytes as usize])?;
        }
        self.progress.add(bytes);
        Ok(())
    }

    /// Waits for all pieces, the first one first.
    fn complete(&mut self) -> Result<(), Error> {
        self.turn()?;
        self.turn()?;
        Ok(())
    }

    /// Whether a lane has a staging buffer, which is allocated when it is used first.
    fn stage(&mut self, nth: usize) -> Result<bool, Error> {
        let staging = &mut self.lanes[nth].staging;
        if self.stages && staging.is_none() {
            match self.device.allocate(&AllocationRequest::new(self.piece, Placement::HostVisible)) {
                Ok(memory) => *staging = Some(memory),
                Err(error) if error.is_out_of_memory() => self.stages = false,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.stages)
    }
}

/// Offsets and lengths of pieces.
fn pieces(bytes: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..bytes.div_ceil(most)).map(move |nth| (nth * most, most.min(bytes - nth * most)))
}
