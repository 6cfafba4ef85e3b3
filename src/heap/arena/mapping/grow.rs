//! Adds memory to a growing arena. The way of a request to new memory is in `attempt`.

use super::pages::Budget;
use crate::error::Error;
use crate::heap::arena::hazards::UseMap;
use crate::heap::arena::mapping::{Growth, Made, MakeFailure};
use crate::heap::arena::{ArenaCore, ArenaRequest, Backing, State, StateGuard, TakenBlock};
use crate::heap::space::{Arena, ArenaError, BlockId, Extent, Zone, runs};
use std::mem;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Physical, Scarce};

/// The lock under which new memory was added, and the block of a stitched range, if one was made.
type Added<'a, B> = (StateGuard<'a, B>, Option<TakenBlock<B>>);

impl<B: Backend> ArenaCore<B> {
    /// Maps memory before any request, with a `limit` that may not be a whole number of pages.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of the device. Nothing is mapped then.
    pub(crate) fn map_initial(self: &Arc<Self>, bytes: u64, limit: u64) -> Result<(), Error> {
        let _alone = self.changing.lock();
        let mut state = self.state.lock();
        let State { engine, backing: Some(backing), .. } = &mut *state else { return Ok(()) };
        let bytes = if bytes <= limit { bytes.min(backing.limit) } else { bytes };
        let Some(growth) = backing.plan_initial(engine, bytes) else {
            let (limit_bytes, charged_bytes) = (backing.limit, backing.mapped);
            drop(state);
            return Err(Error::from(match bytes {
                _ if bytes > limit_bytes => {
                    BackendError::lacks(bytes, self.share.limit(limit_bytes, charged_bytes))
                }
                _ if bytes > self.device.properties().total_bytes => {
                    let free = self.device.memory_info().ok().map(|info| info.free_bytes);
                    BackendError::out_of_memory(bytes, free)
                }
                _ => BackendError::lacks(bytes, Scarce::Addresses),
            }));
        };
        let growth = growth.hold(engine)?;
        self.build(state, growth).map(drop).map_err(|failure| failure.into_error().into())
    }

    /// Makes the memory of a planned growth and adds it to the arena.
    pub(super) fn build(
        &self,
        state: StateGuard<'_, B>,
        growth: Growth,
    ) -> Result<Added<'_, B>, MakeFailure> {
        let range = Arc::clone(&state.range);
        let pieces = growth.stitched.iter().flat_map(|(pieces, _)| pieces);
        let mapped = pieces.filter_map(|&piece| {
            let physical = state.backing.as_ref()?.physical(piece)?;
            Some((piece, physical.clone()))
        });
        let mapped: Vec<_> = mapped.collect();
        drop(state);
        let made = self.make(&growth, &range, &mapped);
        let mut state = self.state.lock();
        match made {
            Ok(made) => {
                let State { engine, backing, uses, .. } = &mut *state;
                let taken = backing.as_mut().and_then(|backing| backing.commit(engine, uses, growth, made));
                Ok((state, taken))
            }
            Err(mut failure) => {
                let State { engine, backing, uses, .. } = &mut *state;
                growth.cancel(engine);
                let unreleased = mem::take(&mut failure.unreleased);
                backing.iter_mut().for_each(|own| own.keep_unreleased(engine, uses, &growth, &unreleased));
                Err(failure)
            }
        }
    }
}

/// Plans a growth for a request, and holds its existing parts.
pub(super) fn plan_growth<B: Backend>(
    state: &mut State<B>,
    request: &ArenaRequest<'_, B::Stream>,
    budget: Budget,
) -> Result<Growth, ArenaError> {
    let (zone, bytes) = (state.zone_of(request), request.bytes);
    let size = bytes.checked_next_multiple_of(state.engine.alignment());
    let State { engine, backing, .. } = state;
    let planned = size.zip(backing.as_ref()).and_then(|(size, backing)| {
        let plan = |zone| backing.plan(engine, zone, size, budget);
        plan(zone).or_else(|| plan(Zone::Dynamic))
    });
    match planned {
        Some(growth) => growth.hold(engine),
        None => Err(engine.refusal((bytes, zone))),
    }
}

impl Growth {
    /// Holds its existing parts: once the device has made the memory, adding it cannot fail.
    pub(in crate::heap::arena) fn hold(mut self, engine: &mut Arena) -> Result<Self, ArenaError> {
        let Self { new, stitched, held, .. } = &mut self;
        let mut extents = stitched.iter().flat_map(|(_, fit)| &fit.extents);
        let outcome = extents.try_for_each(|extent| {
            let is_new = new.iter().any(|new| new.start <= extent.start && extent.start < new.end());
            held.push(if is_new { None } else { Some(engine.hold_at(extent.start, extent.bytes)?) });
            Ok(())
        });
        outcome.inspect_err(|_| self.cancel(engine))?;
        Ok(self)
    }

    /// Frees the held parts of an abandoned growth.
    pub(super) fn cancel(&self, engine: &mut Arena) {
        self.held.iter().flatten().for_each(|&block| engine.release(block));
    }
}

impl<B: Backend> Backing<B> {
    /// Adds new memory and returns the block of a stitched range, if one was made.
    fn commit(
        &mut self,
        engine: &mut Arena,
        uses: &mut UseMap<B::Stream>,
        growth: Growth,
        made: Made<B>,
    ) -> Option<TakenBlock<B>> {
        let Growth { new, is_at_end, stitched, held } = growth;
        self.add_pieces(engine, uses, &new, is_at_end, &made.new);
        let mut taken = None;
        if let (Some((pieces, fit)), Some(memory)) = (stitched, made.stitched) {
            self.add_stitched(Arc::clone(&memory), pieces);
            let block = |(extent, block): (&Extent, Option<BlockId>)| match block {
                Some(block) => {
                    engine.let_in(block);
                    Some(block)
                }
                None => engine.allocate_at(extent.start, extent.bytes).ok(),
            };
            let blocks = fit.extents.iter().zip(held).filter_map(block).collect();
            taken = TakenBlock::stitched(blocks, memory, fit.offset);
        }
        // After the stitched range was added, which serves this request: the end counts as younger.
        self.note_end(engine, &new, is_at_end);
        taken
    }

    /// Adds the first pieces of an abandoned growth, which could be neither made accessible nor unmapped, until a
    /// release unmaps them.
    fn keep_unreleased(
        &mut self,
        engine: &mut Arena,
        uses: &mut UseMap<B::Stream>,
        growth: &Growth,
        physical: &[Physical],
    ) {
        let extents = &growth.new[..physical.len().min(growth.new.len())];
        self.add_pieces(engine, uses, extents, growth.is_at_end, physical);
        for &extent in extents {
            let block = engine.hold_at(extent.start, extent.bytes);
            self.unreleased.extend(block.map(|block| (extent, block)));
        }
        self.note_end(engine, extents, growth.is_at_end);
    }

    /// Records the end of the second part after pieces were added there.
    fn note_end(&mut self, engine: &Arena, added: &[Extent], is_at_end: bool) {
        if is_at_end && added.first().is_some_and(|extent| self.zone_at(extent.start) == Zone::Dynamic) {
            self.ends_at(engine.end(Zone::Dynamic));
        }
    }

    /// Adds pieces at the end of a part of the range, or at the starts of gaps.
    fn add_pieces(
        &mut self,
        engine: &mut Arena,
        uses: &mut UseMap<B::Stream>,
        extents: &[Extent],
        is_at_end: bool,
        made: &[Physical],
    ) {
        // No work uses new memory, whatever used these addresses before: blocks may have been freed while they slept.
        for extent in extents {
            uses.note_reused(&extent.range());
            let _ = uses.take(extent.range());
        }
        let Some(last) = extents.last() else { return };
        match is_at_end {
            // The added offsets are new.
            true => _ = engine.set_end(self.zone_at(last.start), last.end()),
            false => runs(extents).iter().for_each(|&run| self.fill(engine, run)),
        }
        for (&extent, physical) in extents.iter().zip(made) {
            self.add(extent, physical.clone());
        }
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use crate::Backend;
    use crate::heap::arena::DeviceArena;
    use crate::host::{Call, HostDevice};
    use vrampool_backend::spi::Ledger;

    const PAGE: u64 = 4096;

    /// New memory that can be neither made accessible nor unmapped is kept until it can be released.
    #[test]
    fn mapped_memory_is_never_forgotten() {
        let device = HostDevice::builder().memory_limit(1 << 24).granularity(PAGE).build();
        if device.virtual_memory().is_none() {
            return;
        }
        let stream = device.create_stream().expect("a stream");
        let ledger = Ledger::new(64 * PAGE);
        let arena = DeviceArena::builder(&device).growing().limit(64 * PAGE).within(&ledger).build();
        let arena = arena.expect("an arena");
        let block = arena.allocate(4 * PAGE, &stream).expect("memory");
        [Call::SetAccess, Call::Unmap].iter().for_each(|&call| device.faults().fail_nth(call, 1));
        assert!(arena.allocate(8 * PAGE, &stream).is_err());
        assert_eq!((arena.reserved_bytes(), ledger.charged()), (12 * PAGE, 12 * PAGE), "it is mapped");
        let other = arena.allocate(8 * PAGE, &stream).expect("it is mapped elsewhere");
        assert_eq!((arena.reserved_bytes(), ledger.charged()), (20 * PAGE, 20 * PAGE));
        drop((block, other));
        assert_eq!(arena.release(0).expect("no fault"), 20 * PAGE);
        assert_eq!((arena.reserved_bytes(), ledger.charged()), (0, 0));
    }
}
