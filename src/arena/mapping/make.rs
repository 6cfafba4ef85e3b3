//! Creates and maps physical memory and stitched ranges: either everything succeeds, or nothing changes.

use super::pages::{Extent, Growth, runs};
use crate::arena::core::ArenaCore;
use crate::sync::Instant;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool_backend::AllocationRequest;
use vrampool_backend::{Backend, BackendError, Physical, VirtualMemory};

thread_local! {
    /// Mapping calls by this thread, for any arena.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Mapping calls by this thread, for any arena. A difference shows whether a request called the driver.
pub(crate) fn calls_of_this_thread() -> u64 {
    CALLS.get()
}

/// New memory for a request, not yet part of the arena.
pub(in crate::arena) struct Made<B: Backend> {
    pub(in crate::arena) new: Vec<Physical>,
    pub(in crate::arena) stitched: Option<Arc<B::Memory>>,
}

/// A failure to make memory.
pub(in crate::arena) struct MakeFailure {
    error: BackendError,
    /// The scarce resource, if out of memory.
    pub(in crate::arena) lacks: Lack,
    /// The first pieces of the growth, which remain mapped because they could not be unmapped.
    pub(in crate::arena) unreleased: Vec<Physical>,
    /// The device's panic, to be resumed once the accounts are consistent.
    panic: Option<Box<dyn Any + Send>>,
}

/// The resource that an out-of-memory device lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::arena) enum Lack {
    /// Physical memory.
    Memory,
    /// Addresses, or room in its table of mappings.
    Mappings,
}

impl MakeFailure {
    fn of(lacks: Lack) -> impl Fn(BackendError) -> Self {
        move |error| Self { error, lacks, unreleased: Vec::new(), panic: None }
    }

    /// Returns the error, once the [unreleased](Self::unreleased) pieces are kept. Resumes a panic.
    pub(in crate::arena) fn into_error(self) -> BackendError {
        match self.panic {
            Some(panic) => resume_unwind(panic),
            None => self.error,
        }
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Makes the memory of a growth, all or nothing, even if the device panics.
    pub(in crate::arena) fn make(
        &self,
        growth: &Growth,
        range: &Arc<B::Memory>,
        mapped: &[(Extent, Physical)],
    ) -> Result<Made<B>, MakeFailure> {
        let device = self.virtual_memory().map_err(MakeFailure::of(Lack::Memory))?;
        let mut new = Vec::with_capacity(growth.new.len());
        let bytes = growth.new.iter().map(|extent| extent.bytes).sum();
        self.check_room(growth, bytes).map_err(MakeFailure::of(Lack::Memory))?;
        self.share.reserve(bytes).map_err(MakeFailure::of(Lack::Memory))?;
        let made = catch_unwind(AssertUnwindSafe(|| {
            growth.new.iter().try_for_each(|extent| {
                let physical =
                    self.timed(|| device.create_physical(&AllocationRequest::new(extent.bytes, self.kind)));
                let physical = physical.map_err(MakeFailure::of(Lack::Memory))?;
                self.timed(|| device.map(range, extent.start, &physical))
                    .map_err(MakeFailure::of(Lack::Mappings))?;
                new.push(physical);
                Ok(())
            })?;
            runs(&growth.new).iter().try_for_each(|run| {
                let allowed = self.timed(|| device.set_access(range, run.start, run.bytes, &[]));
                allowed.map_err(MakeFailure::of(Lack::Mappings))
            })?;
            let Some((pieces, _)) = &growth.stitched else { return Ok(None) };
            let stitched = self.stitch(device, pieces, &growth.new, &new, mapped);
            stitched.map(Some).map_err(MakeFailure::of(Lack::Mappings))
        }));
        match made {
            Ok(Ok(stitched)) => Ok(Made { new, stitched: stitched.map(Arc::new) }),
            Ok(Err(failure)) => {
                Err(MakeFailure { unreleased: self.roll_back(growth, range, new), ..failure })
            }
            Err(panic) => {
                let roll_back = AssertUnwindSafe(|| self.roll_back(growth, range, new));
                let unreleased = catch_unwind(roll_back).unwrap_or_default();
                let error = BackendError::unsupported("a call that panics");
                Err(MakeFailure { error, lacks: Lack::Memory, unreleased, panic: Some(panic) })
            }
        }
    }

    /// Checks that the device has room for all pieces, so that none is taken in vain: other owners of its memory would
    /// be refused meanwhile. A single piece is taken whole or not at all.
    fn check_room(&self, growth: &Growth, bytes: u64) -> Result<(), BackendError> {
        if growth.new.len() < 2 {
            return Ok(());
        }
        match self.device.memory_info() {
            Ok(info) if info.free_bytes < bytes => {
                Err(BackendError::out_of_memory(bytes, Some(info.free_bytes)))
            }
            // Without an answer the device itself refuses what it does not have.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Unmaps the first pieces of a growth again. Returns those that stay mapped because the device refuses.
    fn roll_back(&self, growth: &Growth, range: &Arc<B::Memory>, made: Vec<Physical>) -> Vec<Physical> {
        let all: u64 = growth.new.iter().map(|extent| extent.bytes).sum();
        // The last run first, so that the first pieces are those that remain.
        let (mapped, mut left) = (&growth.new[..made.len()], made);
        for run in runs(mapped).iter().rev() {
            let unmap = || {
                let device = self.virtual_memory()?;
                // No work has used it yet.
                self.timed(|| device.unmap_unused(range, run.start, run.bytes))
            };
            if unmap().is_err() {
                break;
            }
            left.truncate(mapped.iter().position(|extent| extent.start == run.start).unwrap_or(0));
        }
        let kept: u64 = mapped[..left.len()].iter().map(|extent| extent.bytes).sum();
        drop(self.share.split(all - kept));
        left
    }

    /// Stitches a range of the given pieces, new and mapped before.
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
        let mapped = pieces.iter().try_for_each(|piece| {
            let made = extents.iter().zip(new).find(|(extent, _)| *extent == piece).map(|(_, made)| made);
            let old = || mapped.iter().find(|(extent, _)| extent == piece).map(|(_, physical)| physical);
            let Some(physical) = made.or_else(old) else {
                return Err(BackendError::invalid("piece", "it is not mapped any more".to_owned()));
            };
            self.timed(|| device.map(&memory, offset, physical))?;
            offset += piece.bytes;
            Ok(())
        });
        let made = mapped.and_then(|()| self.timed(|| device.set_access(&memory, 0, bytes, &[])));
        if made.is_err() && offset > 0 {
            // Dropping it would also unmap it, but would wait for unrelated work.
            let _ = self.timed(|| device.unmap_unused(&memory, 0, offset));
        }
        made.map(|()| memory)
    }

    pub(in crate::arena) fn virtual_memory(
        &self,
    ) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
        virtual_memory(&self.device)
    }

    /// Makes a device call, and counts it and its duration.
    pub(in crate::arena) fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
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
pub(in crate::arena) fn virtual_memory<B: Backend>(
    device: &B,
) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
    device.virtual_memory().ok_or(BackendError::unsupported("virtual memory"))
}
