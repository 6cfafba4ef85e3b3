//! A growing arena gives memory back.

use super::backing::{Extent, Partial, Piece};
use super::state::State;
use super::unsettled::{Streams, add};
use super::{DeviceArena, Shared};
use crate::arena::{ArenaError, Block};
use crate::error::Error;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError};

/// Pieces on their way back to the device, held by the engine.
#[derive(Debug)]
struct Leaving<B: Backend> {
    held: Vec<(Extent, Block)>,
    /// Who used their bytes, and so must be waited for.
    users: Streams<B::Stream>,
    /// Stitched ranges with such pieces, and what is mapped in each. Those that no buffer has go as a whole.
    ranges: Vec<Range<B>>,
    range: Arc<B::Memory>,
}

#[derive(Debug)]
struct Range<B: Backend> {
    memory: Arc<B::Memory>,
    mapped: Vec<(u64, Extent)>,
}

impl<B: Backend> DeviceArena<B> {
    /// Gives free memory of a [growing](super::ArenaBuilder::growing) arena back to the device, piece by piece, until at most
    /// `spare_bytes` more than what is live are mapped, or no more piece is free as a whole. Waits on the host for the work
    /// that used it. Answers how many bytes that were; 0 for an arena that does not grow.
    ///
    /// # Errors
    /// [`Error::Backend`] when the device refuses; what it did not unmap is the arena's as before.
    pub fn release(&self, spare_bytes: u64) -> Result<u64, Error> {
        let shared = &self.shared;
        let _alone = shared.changing.lock();
        let Some(mut leaving) = shared.begin_release(spare_bytes)? else { return Ok(0) };
        let mut unmapped = 0;
        let outcome = shared.unmap(&mut leaving, &mut unmapped);
        let released = shared.end_release(leaving, unmapped);
        outcome?;
        log::debug!("arena on {}: {released} bytes given back", shared.id);
        Ok(released)
    }

    /// As [`release`](Self::release), of what was not needed since the last call of this: for calling once in a while, say
    /// every few steps of a loop, so that a peak that is over is not kept for ever. The first call gives nothing back.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn decay(&self) -> Result<u64, Error> {
        let mut state = self.shared.state.lock();
        let State { engine, backing: Some(backing), .. } = &mut *state else { return Ok(0) };
        let (used, peak) = (engine.used(), engine.peak_used());
        engine.reset_peak();
        let was_begun = std::mem::replace(&mut backing.decays, true);
        drop(state);
        if was_begun { self.release(peak - used) } else { Ok(0) }
    }

    /// Sets the most bytes of physical memory that a growing arena may have.
    pub(super) fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        let Some(backing) = &mut state.backing else { return Ok(()) };
        let limit = bytes - bytes % backing.granularity;
        if limit < backing.mapped {
            return Err(ArenaError::CapacityInUse { capacity: bytes, needed: backing.mapped }.into());
        }
        backing.limit = limit;
        Ok(())
    }
}

impl<B: Backend> Shared<B> {
    /// Takes free pieces out of the arena, the last ones first.
    fn begin_release(&self, spare_bytes: u64) -> Result<Option<Leaving<B>>, Error> {
        let mut state = self.state.lock();
        let range = Arc::clone(&state.range);
        let State { engine, unsettled, backing: Some(backing), .. } = &mut *state else { return Ok(None) };
        let held: u64 = backing.gaps.iter().map(|&gap| engine.extent(gap).1).sum();
        let mut surplus = backing.mapped.saturating_sub((engine.used() - held).saturating_add(spare_bytes));
        let mut leaving = Leaving { held: Vec::new(), users: Streams::new(), ranges: Vec::new(), range };
        for piece in backing.pieces.iter().rev() {
            let extent = piece.extent;
            if extent.bytes > surplus {
                continue;
            }
            let Ok(block) = engine.allocate_at(extent.start, extent.bytes) else { continue };
            surplus -= extent.bytes;
            leaving.held.push((extent, block));
            for user in &unsettled.take(extent.start..extent.end()) {
                add(&mut leaving.users, user);
            }
        }
        if leaving.held.is_empty() {
            return Ok(None);
        }
        let leaves = |piece: &Extent| leaving.held.iter().any(|(extent, _)| extent == piece);
        for stitched in backing.stitched.extract_if(.., |stitched| stitched.pieces.iter().any(leaves)) {
            let mapped = stitched.mapped().collect();
            leaving.ranges.push(Range { memory: stitched.memory, mapped });
        }
        for partial in backing.partial.drain(..) {
            // Else no buffer has it any more.
            if let Some(memory) = partial.memory.upgrade() {
                leaving.ranges.push(Range { memory, mapped: partial.mapped });
            }
        }
        Ok(Some(leaving))
    }

    /// Waits for the users of what leaves, and unmaps it everywhere; counts the pieces that are gone.
    fn unmap(&self, leaving: &mut Leaving<B>, gone: &mut usize) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        leaving.users.iter().try_for_each(|user| self.device.synchronize(user))?;
        for Range { memory, mapped } in &mut leaving.ranges {
            let leaves = |(_, piece): &(u64, Extent)| leaving.held.iter().any(|(extent, _)| extent == piece);
            while let Some(at) = mapped.iter().position(leaves) {
                let (offset, piece) = mapped[at];
                self.timed(|| device.unmap(memory, offset, piece.bytes))?;
                mapped.remove(at);
            }
        }
        for (extent, _) in &leaving.held {
            self.timed(|| device.unmap(&leaving.range, extent.start, extent.bytes))?;
            *gone += 1;
        }
        Ok(())
    }

    /// Settles the books: the first so many pieces are gone, the others free again. Answers the bytes that are gone.
    fn end_release(&self, leaving: Leaving<B>, gone: usize) -> u64 {
        let Leaving { held, users, ranges, range } = leaving;
        let mut state = self.state.lock();
        let State { engine, unsettled, backing: Some(backing), .. } = &mut *state else { return 0 };
        let mut pieces: Vec<Piece> = Vec::with_capacity(gone);
        for (index, (extent, block)) in held.into_iter().enumerate() {
            if index < gone {
                pieces.extend(backing.remove(extent));
                backing.gaps.push(block);
            } else if engine.free(block).is_ok() {
                // It was held here alone, so nobody was put there since.
                let _nobody = unsettled.put(extent.start..extent.end(), users.clone());
            }
        }
        backing.cut_gaps(engine);
        // What buffers have of those is unmapped with what leaves later.
        for Range { memory, mapped } in &ranges {
            backing.partial.push(Partial { memory: Arc::downgrade(memory), mapped: mapped.clone() });
        }
        drop(state);
        let released = pieces.iter().map(|piece| piece.extent.bytes).sum();
        self.give_allowance(released);
        // Whatever calls the device goes without the lock.
        drop((pieces, ranges, users, range));
        released
    }
}
