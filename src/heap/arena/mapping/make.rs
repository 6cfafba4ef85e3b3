//! Creates and maps physical memory and stitched ranges: either everything succeeds, or nothing changes.

use crate::heap::arena::ArenaCore;
use crate::heap::arena::mapping::{Growth, Lack, Made, MakeFailure};
use crate::heap::arena::panics::{Caught, caught};
use crate::heap::space::{Extent, runs};
use crate::sync::Instant;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool_backend::{AllocationRequest, Backend, BackendError, Physical, VirtualMemory};

thread_local! {
    /// Mapping calls by this thread, for any arena.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Mapping calls by this thread, for any arena. A difference shows whether a request called the driver.
pub(crate) fn calls_of_this_thread() -> u64 {
    CALLS.get()
}

impl MakeFailure {
    /// Returns the error, once the [unreleased](Self::unreleased) pieces are kept. Resumes a panic.
    pub(crate) fn into_error(self) -> BackendError {
        self.panic.go_on();
        self.error
    }
}

impl From<BackendError> for MakeFailure {
    /// A failure before anything was made.
    fn from(error: BackendError) -> Self {
        Self { error, lacks: Lack::Memory, unreleased: Vec::new(), panic: Caught::NONE }
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Makes the memory of a growth, all or nothing, even if the device panics.
    pub(crate) fn make(
        &self,
        growth: &Growth,
        range: &Arc<B::Memory>,
        mapped: &[(Extent, Physical)],
    ) -> Result<Made<B>, MakeFailure> {
        let device = self.virtual_memory()?;
        let mut new = Vec::with_capacity(growth.new.len());
        let bytes = growth.added();
        // Before several pieces are taken, so that none is taken in vain: other owners of the device's memory would be
        // refused meanwhile. Without an answer the device itself refuses what it does not have.
        if growth.new.len() > 1
            && let Ok(info) = self.device.memory_info()
            && info.free_bytes < bytes
        {
            return Err(BackendError::out_of_memory(bytes, Some(info.free_bytes)).into());
        }
        self.share.reserve(bytes)?;
        let mut lacks = Lack::Memory;
        let (made, panic) = caught(|| {
            for extent in &growth.new {
                lacks = Lack::Memory;
                let request = AllocationRequest::new(extent.bytes, self.kind);
                let physical = self.timed(|| device.create_physical(&request))?;
                lacks = Lack::Mappings;
                self.timed(|| device.map(range, extent.start, &physical))?;
                new.push(physical);
            }
            lacks = Lack::Mappings;
            for run in runs(&growth.new) {
                self.timed(|| device.set_access(range, run.start, run.bytes))?;
            }
            let stitch = |(pieces, _): &(Vec<Extent>, _)| self.stitch(pieces, &growth.new, &new, mapped);
            growth.stitched.as_ref().map(stitch).transpose()
        });
        match made {
            Ok(stitched) => Ok(Made { new, stitched: stitched.map(Arc::new) }),
            Err(error) => {
                let (unreleased, later) =
                    caught(|| Ok::<_, BackendError>(self.roll_back(growth, range, new)));
                let panic = panic.or(later);
                Err(MakeFailure { error, lacks, unreleased: unreleased.unwrap_or_default(), panic })
            }
        }
    }

    /// Unmaps the first pieces of a growth again. Returns those that stay mapped because the device refuses.
    fn roll_back(&self, growth: &Growth, range: &Arc<B::Memory>, made: Vec<Physical>) -> Vec<Physical> {
        // The last run first, so that the first pieces are those that remain.
        let (mapped, mut left) = (&growth.new[..made.len()], made);
        for run in runs(mapped).iter().rev() {
            let unmap = || {
                let device = self.virtual_memory()?;
                // No work has used it yet.
                self.timed(|| device.unmap(range, run.start, run.bytes))
            };
            if unmap().is_err() {
                break;
            }
            left.truncate(mapped.iter().position(|extent| extent.start == run.start).unwrap_or(0));
        }
        let kept: u64 = mapped[..left.len()].iter().map(|extent| extent.bytes).sum();
        drop(self.share.split(growth.added() - kept));
        left
    }

    /// Stitches a range of the given pieces, new and mapped before.
    fn stitch(
        &self,
        pieces: &[Extent],
        extents: &[Extent],
        new: &[Physical],
        mapped: &[(Extent, Physical)],
    ) -> Result<B::Memory, BackendError> {
        let mut bytes = 0;
        let place = |piece: &Extent| {
            let made = extents.iter().zip(new).find(|(extent, _)| *extent == piece).map(|(_, made)| made);
            let old = || mapped.iter().find(|(extent, _)| extent == piece).map(|(_, physical)| physical);
            let Some(physical) = made.or_else(old) else {
                return Err(BackendError::invalid("piece", "it is not mapped any more".to_owned()));
            };
            bytes += piece.bytes;
            Ok((Extent { start: bytes - piece.bytes, bytes: piece.bytes }, physical))
        };
        let places: Vec<_> = pieces.iter().map(place).collect::<Result<_, _>>()?;
        let memory = self.timed(|| self.virtual_memory()?.reserve(bytes))?;
        self.map_all(&memory, &places)?;
        Ok(memory)
    }

    /// Maps physical memory at extents of an empty range, all or nothing, and makes it accessible.
    pub(super) fn map_all(
        &self,
        memory: &B::Memory,
        places: &[(Extent, &Physical)],
    ) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        let extents: Vec<_> = places.iter().map(|(extent, _)| *extent).collect();
        let mut mapped = 0;
        let made = places.iter().try_for_each(|(extent, physical)| {
            self.timed(|| device.map(memory, extent.start, physical))?;
            mapped += 1;
            Ok(())
        });
        let allow = |run: &Extent| self.timed(|| device.set_access(memory, run.start, run.bytes));
        let made = made.and_then(|()| runs(&extents).iter().try_for_each(allow));
        if made.is_err() {
            // Dropping the range would also unmap it, but would wait for unrelated work.
            let unmap = |run: &Extent| self.timed(|| device.unmap(memory, run.start, run.bytes));
            let _ = runs(&extents[..mapped]).iter().try_for_each(unmap);
        }
        made
    }

    pub(crate) fn virtual_memory(&self) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
        virtual_memory(&self.device)
    }

    /// Makes a device call, and counts it and its duration.
    pub(crate) fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = call();
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.mapping.calls.fetch_add(1, Ordering::Relaxed);
        CALLS.set(CALLS.get().wrapping_add(1));
        self.mapping.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        answer
    }
}

/// The virtual memory of a device.
pub(crate) fn virtual_memory<B: Backend>(
    device: &B,
) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
    device.virtual_memory().ok_or(BackendError::unsupported("virtual memory"))
}
