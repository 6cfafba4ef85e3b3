//! Serves requests of a growing arena from mapped memory.

use super::pages::{Backing, Budget, Extent, Way};
use crate::arena::ArenaBuffer;
use crate::arena::core::ArenaCore;
use crate::arena::engine::{Arena, ArenaError, BlockId, Zone};
use crate::arena::hazards::placement::WaitPolicy;
use crate::arena::state::{State, Taken};
use crate::error::Error;
use std::sync::Arc;
use vrampool_backend::{Backend, Stream};

impl<B: Backend> ArenaCore<B> {
    /// Returns a buffer of mapped memory. Returns `None` if no memory serves with the allowed wait, or if
    /// making memory is better.
    pub(in crate::arena) fn serve_mapped(
        self: &Arc<Self>,
        request: (u64, u64),
        budget: Budget,
        waits: WaitPolicy,
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        let is_captured = Some(self.is_captured(stream));
        let mut state = self.attached(request.0, || self.lock_for_request(stream))?;
        // Before the search, which depends on it: the first request of a second stream waits for nobody either.
        state.uses.ticks.used_by(stream.id());
        let taken = match waits {
            WaitPolicy::Avoid if state.prefers_growth(request) => {
                state.take_without_wait(request, budget, stream)?
            }
            _ => state.take(request, budget, stream)?,
        };
        match taken {
            Some(taken) => self.finish_allocation((state, is_captured), taken, request, stream).map(Some),
            None => Ok(None),
        }
    }
}

impl<B: Backend> State<B> {
    /// As [`take_mapped`](Self::take_mapped). A large block prefers memory without a wait.
    pub(in crate::arena) fn take(
        &mut self,
        (bytes, alignment): (u64, u64),
        budget: Budget,
        stream: &B::Stream,
    ) -> Result<Option<Taken<B>>, Error> {
        if !self.markers.is_empty() && self.is_large(bytes) {
            let taken = self.take_without_wait((bytes, alignment), budget, stream)?;
            if taken.is_some() {
                return Ok(taken);
            }
        }
        self.take_mapped(bytes, alignment, budget)
    }

    /// Returns a block of mapped memory; `None` if none serves, or if making memory is better.
    pub(in crate::arena) fn take_mapped(
        &mut self,
        bytes: u64,
        alignment: u64,
        budget: Budget,
    ) -> Result<Option<Taken<B>>, Error> {
        let Self { engine, backing, .. } = self;
        let plain = |block: Result<BlockId, ArenaError>| match block {
            Ok(block) => Ok(Some(Taken::plain(block))),
            Err(error) if error.is_out_of_memory() => Ok(None),
            Err(error) => Err(error.into()),
        };
        let Some(backing) = backing else {
            return plain(engine.allocate_aligned(bytes, alignment, Zone::Dynamic));
        };
        let zone = backing.zone_of(bytes);
        let Some(size) = bytes.checked_next_multiple_of(engine.alignment()) else {
            return plain(engine.allocate(bytes, zone));
        };
        let is_plain = alignment > engine.alignment() || !alignment.is_power_of_two();
        let stitches = backing.stitches(size) && !is_plain;
        let served = match stitches {
            true => Ok(engine.allocate_in_hole(bytes).map(Taken::plain)),
            false => plain(engine.allocate_aligned(bytes, alignment, zone)),
        };
        if let found @ (Ok(Some(_)) | Err(_)) = served {
            return found;
        }
        // Memory that grows now would be found at the end the next time.
        if !stitches && backing.grows_for(engine, zone, (size, alignment), budget) {
            return Ok(None);
        }
        if zone == Zone::Stable
            && let found @ (Ok(Some(_)) | Err(_)) =
                plain(engine.allocate_aligned(bytes, alignment, Zone::Dynamic))
        {
            // There is room in the part for large requests.
            return found;
        }
        if is_plain {
            return Ok(None);
        }
        match backing.oldest(engine, size) {
            Way::Nothing => Ok(None),
            Way::End => Ok(engine.allocate_at_end(bytes).map(Taken::plain)),
            Way::Stitched(memory, fit) => {
                let blocks = take_extents(engine, backing, &fit.extents)?;
                Ok(Taken::stitched(blocks, memory, fit.offset))
            }
        }
    }
}

/// Allocates the extents of a [result](Backing::oldest), all or none.
fn take_extents<B: Backend>(
    engine: &mut Arena,
    backing: &Backing<B>,
    extents: &[Extent],
) -> Result<Vec<BlockId>, ArenaError> {
    let mut blocks = Vec::with_capacity(extents.len());
    for extent in extents {
        match engine.allocate_in_free(backing.room_of(*extent), extent.start, extent.bytes) {
            Ok(block) => blocks.push(block),
            Err(error) => {
                for block in blocks {
                    let _ = engine.free(block);
                }
                return Err(error);
            }
        }
    }
    Ok(blocks)
}
