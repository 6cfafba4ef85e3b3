//! Memory is made for a growing arena: physical memory created and mapped, ranges stitched; all or nothing.

use super::Shared;
use super::backing::{Extent, Growth, runs};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use vrampool_backend::{Backend, BackendError, Physical, VirtualMemory};

/// What was made for a request, and is nobody's yet.
pub(super) struct Made<B: Backend> {
    pub(super) new: Vec<Physical>,
    pub(super) stitched: Option<Arc<B::Memory>>,
}

/// Why it could not be made.
pub(super) struct Unmade {
    pub(super) error: BackendError,
    /// What it is short of, if it is out of memory.
    pub(super) lacks: Lack,
    /// What is mapped all the same, because it could not be unmapped: the first pieces of the growth.
    pub(super) stuck: Vec<Physical>,
}

/// What a device that is out of memory is short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lack {
    /// Physical memory.
    Memory,
    /// Addresses, or room in its table of mappings.
    Mappings,
}

impl Unmade {
    fn of(lacks: Lack) -> impl Fn(BackendError) -> Self {
        move |error| Self { error, lacks, stuck: Vec::new() }
    }
}

impl<B: Backend> Shared<B> {
    /// Makes the memory of a growth, all or nothing.
    pub(super) fn make(
        &self,
        growth: &Growth,
        range: &Arc<B::Memory>,
        mapped: &[(Extent, Physical)],
    ) -> Result<Made<B>, Unmade> {
        let device = self.virtual_memory().map_err(Unmade::of(Lack::Memory))?;
        let mut new = Vec::with_capacity(growth.new.len());
        let bytes = growth.new.iter().map(|extent| extent.bytes).sum();
        self.take_allowance(bytes).map_err(Unmade::of(Lack::Memory))?;
        let made = growth.new.iter().try_for_each(|extent| {
            let physical = self.timed(|| device.create_physical(extent.bytes, self.kind));
            let physical = physical.map_err(Unmade::of(Lack::Memory))?;
            self.timed(|| device.map(range, extent.start, &physical)).map_err(Unmade::of(Lack::Mappings))?;
            new.push(physical);
            Ok(())
        });
        let accessible = made.and_then(|()| {
            runs(&growth.new).iter().try_for_each(|run| {
                let allowed = self.timed(|| device.set_access(range, run.start, run.bytes, &[]));
                allowed.map_err(Unmade::of(Lack::Mappings))
            })
        });
        let stitched = accessible.and_then(|()| match &growth.stitched {
            None => Ok(None),
            Some(pieces) => {
                let stitched = self.stitch(device, pieces, &growth.new, &new, mapped);
                stitched.map(Some).map_err(Unmade::of(Lack::Mappings))
            }
        });
        match stitched {
            Ok(stitched) => Ok(Made { new, stitched: stitched.map(Arc::new) }),
            Err(unmade) => Err(Unmade { stuck: self.unmake(growth, range, new), ..unmade }),
        }
    }

    /// Unmaps the first pieces of a growth again. Answers what stays mapped because the device refuses.
    pub(super) fn unmake(
        &self,
        growth: &Growth,
        range: &Arc<B::Memory>,
        made: Vec<Physical>,
    ) -> Vec<Physical> {
        let all: u64 = growth.new.iter().map(|extent| extent.bytes).sum();
        // The last run first: what stays is then the first pieces.
        let (mapped, mut left) = (&growth.new[..made.len()], made);
        for run in runs(mapped).iter().rev() {
            let unmap = || {
                let device = self.virtual_memory()?;
                self.timed(|| device.unmap(range, run.start, run.bytes))
            };
            if unmap().is_err() {
                break;
            }
            left.truncate(mapped.iter().position(|extent| extent.start == run.start).unwrap_or(0));
        }
        let kept: u64 = mapped[..left.len()].iter().map(|extent| extent.bytes).sum();
        self.give_allowance(all - kept);
        left
    }

    /// A range of those pieces, the new ones and those mapped before.
    fn stitch(
        &self,
        device: &dyn VirtualMemory<Memory = B::Memory>,
        pieces: &[Extent],
        extents: &[Extent],
        new: &[Physical],
        mapped: &[(Extent, Physical)],
    ) -> Result<B::Memory, BackendError> {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let memory = self.timed(|| device.reserve(bytes))?;
        let mut offset = 0;
        for piece in pieces {
            let made = extents.iter().zip(new).find(|(extent, _)| *extent == piece).map(|(_, made)| made);
            let old = || mapped.iter().find(|(extent, _)| extent == piece).map(|(_, physical)| physical);
            let Some(physical) = made.or_else(old) else {
                return Err(BackendError::invalid("piece", "it is not mapped any more".to_owned()));
            };
            self.timed(|| device.map(&memory, offset, physical))?;
            offset += piece.bytes;
        }
        self.timed(|| device.set_access(&memory, 0, bytes, &[]))?;
        Ok(memory)
    }

    pub(super) fn virtual_memory(&self) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
        virtual_memory(&self.device)
    }

    /// Makes a call of the device, and counts it and its time.
    pub(super) fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = call();
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.mapping_calls.fetch_add(1, Ordering::Relaxed);
        self.mapping_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        answer
    }
}

/// What a device does that has virtual memory.
pub(super) fn virtual_memory<B: Backend>(
    device: &B,
) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
    device.virtual_memory().ok_or(BackendError::Unsupported { operation: "virtual memory" })
}
