//! A growing arena gets memory: from what is mapped, or by mapping more.

use super::backing::{Backing, Extent, Growth, Piece, Way};
use super::state::{State, Taken};
use super::{ArenaBuffer, Shared};
use crate::arena::{ArenaError, Block, Region};
use crate::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;
use vrampool_backend::{Backend, BackendError, Physical, VirtualMemory};

/// What was made for a request, and is nobody's yet.
struct Made<B: Backend> {
    new: Vec<Physical>,
    stitched: Option<Arc<B::Memory>>,
}

impl<B: Backend> Shared<B> {
    /// A block of a growing arena.
    pub(super) fn allocate_growing(
        self: &Arc<Self>,
        bytes: u64,
        alignment: u64,
        stream: &B::Stream,
    ) -> Result<ArenaBuffer<B>, Error> {
        let mut state = self.state.lock();
        if state.is_awake()
            && let Some(taken) = state.take_mapped(bytes, alignment)?
        {
            return self.hand_out(state, taken, (bytes, alignment), stream);
        }
        drop(state);
        let _alone = self.changing.lock();
        // Whether the device has no more memory, as far as is known.
        let mut shortage = None;
        loop {
            let mut state = self.state.lock();
            if !state.is_awake() {
                return Err(state.asleep(bytes));
            }
            if let Some(taken) = state.take_mapped(bytes, alignment)? {
                return self.hand_out(state, taken, (bytes, alignment), stream);
            }
            let (growth, held) = match state.plan_growth(bytes, alignment, shortage.is_some()) {
                Ok(planned) => planned,
                Err(refusal) => return Err(shortage.map_or(refusal.into(), Error::Backend)),
            };
            let range = Arc::clone(&state.range);
            let mapped = growth.stitched.iter().flatten().filter_map(|&piece| {
                let physical = state.backing.as_ref()?.physical(piece)?;
                Some((piece, physical.clone()))
            });
            let mapped: Vec<_> = mapped.collect();
            drop(state);
            match self.make(&growth, &range, &mapped) {
                Ok(made) => {
                    let mut state = self.state.lock();
                    match state.commit(growth, made.new, made.stitched, held) {
                        Ok(Some(taken)) => return self.hand_out(state, taken, (bytes, alignment), stream),
                        Ok(None) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => {
                    self.state.lock().give_up(&held);
                    if !error.is_out_of_memory() || shortage.is_some() {
                        return Err(error.into());
                    }
                    shortage = Some(error);
                }
            }
        }
    }

    /// Makes the memory of a growth, all or nothing.
    fn make(
        &self,
        growth: &Growth,
        range: &Arc<B::Memory>,
        mapped: &[(Extent, Physical)],
    ) -> Result<Made<B>, BackendError> {
        let device = self.virtual_memory()?;
        let mut new = Vec::with_capacity(growth.new.len());
        let bytes = growth.new.iter().map(|extent| extent.bytes).sum();
        self.take_allowance(bytes)?;
        let made = growth.new.iter().try_for_each(|extent| {
            let physical = self.timed(|| device.create_physical(extent.bytes, self.kind))?;
            self.timed(|| device.map(range, extent.start, &physical))?;
            new.push(physical);
            Ok(())
        });
        let accessible = made.and_then(|()| match (growth.new.first(), growth.new.last()) {
            (Some(first), Some(last)) => {
                self.timed(|| device.set_access(range, first.start, last.end() - first.start, &[]))
            }
            _ => Ok(()),
        });
        let stitched = accessible.and_then(|()| match &growth.stitched {
            None => Ok(None),
            Some(pieces) => self.stitch(device, pieces, &growth.new, &new, mapped).map(Some),
        });
        match stitched {
            Ok(stitched) => Ok(Made { new, stitched: stitched.map(Arc::new) }),
            Err(error) => {
                self.give_allowance(bytes);
                if let (Some(first), Some(_)) = (growth.new.first(), new.last()) {
                    let bytes = growth.new.iter().take(new.len()).map(|extent| extent.bytes).sum();
                    // What cannot be unmapped stays mapped, and whoever maps there next is told so.
                    let _ = self.timed(|| device.unmap(range, first.start, bytes));
                }
                Err(error)
            }
        }
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

impl<B: Backend> State<B> {
    /// A block of what is mapped; none if nothing serves.
    fn take_mapped(&mut self, bytes: u64, alignment: u64) -> Result<Option<Taken<B>>, Error> {
        let Self { engine, backing, .. } = self;
        let plain = |block: Result<Block, ArenaError>| match block {
            Ok(block) => Ok(Some(Taken::plain(block))),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error.into()),
        };
        let Some(backing) = backing else {
            return plain(engine.allocate_aligned(bytes, alignment, Region::Dynamic));
        };
        if alignment > engine.alignment() {
            return plain(engine.allocate_aligned(bytes, alignment, Region::Dynamic));
        }
        let stitches = Backing::<B>::stitches(bytes);
        let served =
            if stitches { engine.allocate_in_hole(bytes) } else { engine.allocate(bytes, Region::Dynamic) };
        if let found @ (Ok(Some(_)) | Err(_)) = plain(served) {
            return found;
        }
        let size = bytes.next_multiple_of(engine.alignment());
        match backing.oldest(engine, size) {
            Way::Nothing => Ok(None),
            Way::End => plain(engine.allocate(bytes, Region::Dynamic)),
            Way::Stitched(memory, fit) => {
                let mut blocks = Vec::with_capacity(fit.extents.len());
                for extent in &fit.extents {
                    match engine.allocate_at(extent.start, extent.bytes) {
                        Ok(block) => blocks.push(block),
                        Err(error) => {
                            for block in blocks {
                                let _ = engine.free(block);
                            }
                            return Err(error.into());
                        }
                    }
                }
                Ok(Taken::stitched(blocks, memory, fit.offset))
            }
        }
    }

    /// What is to be made for a request, with the parts of it that are there, held.
    fn plan_growth(
        &mut self,
        bytes: u64,
        alignment: u64,
        no_more: bool,
    ) -> Result<(Growth, Vec<Option<Block>>), ArenaError> {
        let Self { engine, backing, .. } = self;
        // Wherever it comes to lie, an alignment above the arena's fits then.
        let padding = alignment.saturating_sub(engine.alignment());
        let size =
            bytes.checked_add(padding).and_then(|bytes| bytes.checked_next_multiple_of(engine.alignment()));
        let planned =
            size.zip(backing.as_ref()).and_then(|(size, backing)| backing.plan(engine, size, no_more));
        let is_stitched = |growth: &Growth| growth.stitched.is_some();
        let Some(growth) = planned.filter(|growth| padding == 0 || !is_stitched(growth)) else {
            return Err(match engine.allocate_aligned(bytes, alignment, Region::Dynamic) {
                Err(error) => error,
                Ok(block) => {
                    let _ = engine.free(block);
                    ArenaError::HostMemory
                }
            });
        };
        let mut held = Vec::new();
        for &extent in growth.fit.iter().flat_map(|fit| &fit.extents) {
            if growth.new.iter().any(|new| new.start <= extent.start && extent.start < new.end()) {
                held.push(None);
                continue;
            }
            match engine.allocate_at(extent.start, extent.bytes) {
                Ok(block) => held.push(Some(block)),
                Err(error) => {
                    self.give_up(&held);
                    return Err(error);
                }
            }
        }
        Ok((growth, held))
    }

    /// Frees what was held for a growth that is not to be.
    fn give_up(&mut self, held: &[Option<Block>]) {
        for &block in held.iter().flatten() {
            // Its own, and live.
            let _ = self.engine.free(block);
        }
    }

    /// Has what was made; of a stitched range, the block that it was made for.
    fn commit(
        &mut self,
        growth: Growth,
        made: Vec<Physical>,
        memory: Option<Arc<B::Memory>>,
        held: Vec<Option<Block>>,
    ) -> Result<Option<Taken<B>>, ArenaError> {
        let Self { engine, backing, .. } = self;
        let Some(backing) = backing else { return Ok(None) };
        if let (Some(first), Some(last)) = (growth.new.first(), growth.new.last()) {
            match growth.gap {
                None => engine.set_capacity(last.end())?,
                Some(gap) => {
                    let block = backing.gaps.swap_remove(gap);
                    let (start, bytes) = engine.extent(block);
                    engine.free(block)?;
                    if start + bytes > last.end() {
                        backing.gaps.push(engine.allocate_at(last.end(), start + bytes - last.end())?);
                    }
                    debug_assert_eq!(start, first.start);
                }
            }
            for (&extent, physical) in growth.new.iter().zip(made) {
                backing.add(Piece { extent, physical });
            }
        }
        let mut taken = None;
        if let (Some(pieces), Some(fit), Some(memory)) = (growth.stitched, growth.fit, memory) {
            backing.add_stitched(Arc::clone(&memory), pieces);
            let mut blocks = Vec::with_capacity(held.len());
            for (extent, block) in fit.extents.iter().zip(held) {
                blocks.push(match block {
                    Some(block) => block,
                    None => engine.allocate_at(extent.start, extent.bytes)?,
                });
            }
            taken = Taken::stitched(blocks, memory, fit.offset);
        }
        if growth.gap.is_none() && !growth.new.is_empty() {
            backing.ends_at(engine.capacity());
        }
        Ok(taken)
    }
}
