//! Creates and maps physical memory and stitched ranges: either everything succeeds, or nothing changes.

use super::pages::{Extent, Growth, runs};
use crate::arena::ArenaCore;
use crate::sync::Instant;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, BackendError, Physical, VirtualMemory};

thread_local! {
    /// Mapping calls that this thread made, for any arena.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// Mapping calls that this thread has made for any arena. A difference tells whether a request called the
/// driver.
pub(crate) fn mapping_calls_of_this_thread() -> u64 {
    CALLS.get()
}

/// What was made for a request, and is nobody's yet.
pub(in crate::arena) struct Made<B: Backend> {
    pub(in crate::arena) new: Vec<Physical>,
    pub(in crate::arena) stitched: Option<Arc<B::Memory>>,
}

/// Why it could not be made.
pub(in crate::arena) struct Unmade {
    error: BackendError,
    /// What it is short of, if it is out of memory.
    pub(in crate::arena) lacks: Lack,
    /// What is mapped all the same, because it could not be unmapped: the first pieces of the growth.
    pub(in crate::arena) stuck: Vec<Physical>,
    /// The device's panic, to go on once the books are right.
    panic: Option<Box<dyn Any + Send>>,
}

/// What a device that is out of memory is short of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::arena) enum Lack {
    /// Physical memory.
    Memory,
    /// Addresses, or room in its table of mappings.
    Mappings,
}

impl Unmade {
    fn of(lacks: Lack) -> impl Fn(BackendError) -> Self {
        move |error| Self { error, lacks, stuck: Vec::new(), panic: None }
    }

    /// The error, once what is [stuck](Self::stuck) is kept. A panic goes on.
    pub(in crate::arena) fn into_error(self) -> BackendError {
        match self.panic {
            Some(panic) => resume_unwind(panic),
            None => self.error,
        }
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Makes the memory of a growth, all or nothing, also when the device panics.
    pub(in crate::arena) fn make(
        &self,
        growth: &Growth,
        range: &Arc<B::Memory>,
        mapped: &[(Extent, Physical)],
    ) -> Result<Made<B>, Unmade> {
        let device = self.virtual_memory().map_err(Unmade::of(Lack::Memory))?;
        let mut new = Vec::with_capacity(growth.new.len());
        let bytes = growth.new.iter().map(|extent| extent.bytes).sum();
        self.take_allowance(bytes).map_err(Unmade::of(Lack::Memory))?;
        let made = catch_unwind(AssertUnwindSafe(|| {
            growth.new.iter().try_for_each(|extent| {
                let physical = self.timed(|| device.create_physical(extent.bytes, self.kind));
                let physical = physical.map_err(Unmade::of(Lack::Memory))?;
                self.timed(|| device.map(range, extent.start, &physical))
                    .map_err(Unmade::of(Lack::Mappings))?;
                new.push(physical);
                Ok(())
            })?;
            runs(&growth.new).iter().try_for_each(|run| {
                let allowed = self.timed(|| device.set_access(range, run.start, run.bytes, &[]));
                allowed.map_err(Unmade::of(Lack::Mappings))
            })?;
            let Some(pieces) = &growth.stitched else { return Ok(None) };
            let stitched = self.stitch(device, pieces, &growth.new, &new, mapped);
            stitched.map(Some).map_err(Unmade::of(Lack::Mappings))
        }));
        match made {
            Ok(Ok(stitched)) => Ok(Made { new, stitched: stitched.map(Arc::new) }),
            Ok(Err(unmade)) => Err(Unmade { stuck: self.unmake(growth, range, new), ..unmade }),
            Err(panic) => {
                let unmake = AssertUnwindSafe(|| self.unmake(growth, range, new));
                let stuck = catch_unwind(unmake).unwrap_or_default();
                let error = BackendError::Unsupported { operation: "a call that panics" };
                Err(Unmade { error, lacks: Lack::Memory, stuck, panic: Some(panic) })
            }
        }
    }

    /// Unmaps the first pieces of a growth again. Answers what stays mapped because the device refuses.
    pub(in crate::arena) fn unmake(
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
                // Nobody has used it yet.
                self.timed(|| device.unmap_settled(range, run.start, run.bytes))
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
            // A drop would do it too, but wait for work that has nothing to do with it.
            let _ = self.timed(|| device.unmap_settled(&memory, 0, offset));
        }
        made.map(|()| memory)
    }

    pub(in crate::arena) fn virtual_memory(
        &self,
    ) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
        virtual_memory(&self.device)
    }

    /// Makes a call of the device, and counts it and its time.
    pub(in crate::arena) fn timed<T>(&self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = call();
        let nanoseconds = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.mapping_calls.fetch_add(1, Ordering::Relaxed);
        CALLS.set(CALLS.get().wrapping_add(1));
        self.mapping_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        answer
    }
}

/// What a device does that has virtual memory.
pub(in crate::arena) fn virtual_memory<B: Backend>(
    device: &B,
) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
    device.virtual_memory().ok_or(BackendError::Unsupported { operation: "virtual memory" })
}
