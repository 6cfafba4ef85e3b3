//! Serves a request from mapped memory, or maps more. The slow path of a request is in `attempt`.

use super::make::Made;
use super::pages::{Budget, Extent, Growth, Uncommitted, runs};
use crate::arena::ArenaBuffer;
use crate::arena::core::ArenaCore;
use crate::arena::engine::{ArenaError, BlockId, Zone};
use crate::arena::hazards::placement::WaitPolicy;
use crate::arena::state::{State, Taken};
use crate::error::{Error, Forbidden};
use crate::streams::order::Need;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Physical};

/// Requests to a pool for idle memory before more is mapped: for all of it, and for its thread's.
const RECLAIMS: u32 = 2;

impl<B: Backend> ArenaCore<B> {
    /// Allocates a block of a growing arena. Before the arena maps more, `reclaim` may return memory to it,
    /// and returns whether it did; that memory is searched first.
    pub(in crate::arena) fn allocate_growing(
        self: &Arc<Self>,
        request: (u64, u64),
        stream: &B::Stream,
        reclaim: impl FnMut() -> bool,
    ) -> Result<ArenaBuffer<B>, Error> {
        let served = self.serve_growing(request, stream, reclaim);
        match &served {
            Ok(_) => served,
            Err(_) => {
                let zone = self.state.lock().zone_of(request.0);
                self.or_elsewhere(served, zone, request, stream)
            }
        }
    }

    /// Maps memory before any request, with a `limit` that may not be a whole number of pages.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; those of the device. Nothing is mapped then.
    pub(in crate::arena) fn map_initial(self: &Arc<Self>, bytes: u64, limit: u64) -> Result<(), Error> {
        let _alone = self.changing.lock();
        let mut state = self.state.lock();
        let State { engine, backing: Some(backing), .. } = &mut *state else { return Ok(()) };
        let bytes = if bytes <= limit { bytes.min(backing.limit) } else { bytes };
        let Some(growth) = backing.plan_initial(engine, bytes) else {
            return Err(BackendError::out_of_memory(bytes, Some(backing.limit)).into());
        };
        engine.reserve_blocks(3 + 2 * growth.new.len())?;
        let range = Arc::clone(&state.range);
        drop(state);
        match self.make(&growth, &range, &[]) {
            Ok(made) => {
                self.state.lock().commit(growth, made, &[]);
                Ok(())
            }
            Err(mut failure) => {
                let unreleased = mem::take(&mut failure.unreleased);
                self.state.lock().keep_unreleased(&growth, unreleased);
                Err(failure.into_error().into())
            }
        }
    }

    fn serve_growing(
        self: &Arc<Self>,
        (bytes, alignment): (u64, u64),
        stream: &B::Stream,
        mut reclaim: impl FnMut() -> bool,
    ) -> Result<ArenaBuffer<B>, Error> {
        let request = (bytes, alignment);
        if let Some(buffer) = self.serve_mapped(request, Budget::Free, WaitPolicy::Avoid, stream)? {
            return Ok(buffer);
        }
        // A capture must not request memory from the driver.
        let need = Need { requested: bytes, class: bytes };
        if let Err(refused) = need.check(&self.device, stream, Forbidden::Allocation) {
            return self.serve_mapped(request, Budget::Exhausted, WaitPolicy::Allow, stream)?.ok_or(refused);
        }
        for _ in 0..RECLAIMS {
            // Before the lock, which destructors may take.
            if !reclaim() {
                break;
            }
            if let Some(buffer) = self.serve_mapped(request, Budget::Free, WaitPolicy::Avoid, stream)? {
                return Ok(buffer);
            }
        }
        if let Some(buffer) = self.serve_without_wait(request, stream)? {
            return Ok(buffer);
        }
        self.grow(request, stream, None)
    }
}

impl<B: Backend> State<B> {
    /// Plans a growth for a request, and holds its existing parts.
    pub(in crate::arena) fn plan_growth(
        &mut self,
        bytes: u64,
        alignment: u64,
        budget: Budget,
    ) -> Result<(Growth, Vec<Option<BlockId>>), ArenaError> {
        let size = bytes.checked_next_multiple_of(self.engine.alignment());
        let zone = self.zone_of(bytes);
        let Self { engine, backing, .. } = self;
        let planned = size.zip(backing.as_ref()).and_then(|(size, backing)| {
            let plan = |zone| backing.plan(engine, zone, (size, alignment), budget);
            plan(zone).or_else(|| plan(Zone::Dynamic))
        });
        let Some(growth) = planned else {
            return Err(match engine.allocate_aligned(bytes, alignment, zone) {
                Err(error) => error,
                Ok(block) => {
                    let _ = engine.free(block);
                    ArenaError::HostMemory
                }
            });
        };
        self.hold_parts(growth)
    }

    /// Whether the part for small requests has addresses for new memory that serves `bytes`.
    pub(in crate::arena) fn has_front_for(&self, bytes: u64) -> bool {
        self.backing.as_ref().is_some_and(|backing| backing.has_front_for(&self.engine, bytes))
    }

    /// The part of the range that serves a request.
    pub(in crate::arena) fn zone_of(&self, bytes: u64) -> Zone {
        self.backing.as_ref().map_or(Zone::Dynamic, |backing| backing.zone_of(bytes))
    }

    /// Holds the existing parts of a growth.
    pub(in crate::arena) fn hold_parts(
        &mut self,
        growth: Growth,
    ) -> Result<(Growth, Vec<Option<BlockId>>), ArenaError> {
        let engine = &mut self.engine;
        let mut held = Vec::new();
        for &extent in growth.fit.iter().flat_map(|fit| &fit.extents) {
            if growth.new.iter().any(|new| new.start <= extent.start && extent.start < new.end()) {
                held.push(None);
                continue;
            }
            match engine.hold_at(extent.start, extent.bytes) {
                Ok(block) => held.push(Some(block)),
                Err(error) => {
                    self.give_up(&held);
                    return Err(error);
                }
            }
        }
        Ok((growth, held))
    }

    /// Whether a request may be served once memory that small requests left free is released.
    pub(in crate::arena) fn small_may_serve(&self, bytes: u64) -> bool {
        let Some(backing) = &self.backing else { return false };
        let room = backing.limit.min(backing.addresses).saturating_sub(backing.mapped);
        let small = self.engine.available(Zone::Stable);
        let free = self.engine.available(Zone::Dynamic).saturating_add(small);
        small > 0 && bytes <= free.saturating_add(room)
    }

    /// Frees the held parts of an abandoned growth.
    pub(in crate::arena) fn give_up(&mut self, held: &[Option<BlockId>]) {
        held.iter().flatten().for_each(|&block| self.engine.release(block));
    }

    /// Adds new memory and returns the block of a stitched range, if one was made. Requires reserved records.
    pub(in crate::arena) fn commit(
        &mut self,
        growth: Growth,
        made: Made<B>,
        held: &[Option<BlockId>],
    ) -> Option<Taken<B>> {
        let is_at_end = growth.is_at_end;
        let new = growth.new.first().copied();
        self.add_pieces(&growth.new, is_at_end, made.new);
        let Self { engine, backing: Some(backing), .. } = self else { return None };
        let mut taken = None;
        if let (Some(pieces), Some(fit), Some(memory)) = (growth.stitched, growth.fit, made.stitched) {
            backing.add_stitched(Arc::clone(&memory), pieces);
            let block = |(extent, block): (&Extent, &Option<BlockId>)| match *block {
                Some(block) => {
                    engine.let_in(block);
                    Some(block)
                }
                None => engine.allocate_at(extent.start, extent.bytes).ok(),
            };
            let blocks = fit.extents.iter().zip(held).filter_map(block).collect();
            taken = Taken::stitched(blocks, memory, fit.offset);
        }
        // Younger than the stitched range, which served first.
        if is_at_end && new.is_some_and(|new| backing.zone_at(new.start) == Zone::Dynamic) {
            backing.ends_at(engine.end(Zone::Dynamic));
        }
        taken
    }

    /// Adds pieces that could be neither made accessible nor unmapped, until a release unmaps them.
    pub(in crate::arena) fn keep_unreleased(&mut self, growth: &Growth, unreleased: Vec<Physical>) {
        let extents = growth.new[..unreleased.len().min(growth.new.len())].to_vec();
        if let Some(backing) = self.backing.as_mut().filter(|_| !extents.is_empty()) {
            backing.uncommitted.push(Uncommitted {
                extents,
                is_at_end: growth.is_at_end,
                physical: unreleased,
            });
            let _ = self.commit_pending();
        }
    }

    /// Adds unreleased pieces that have no records yet. Returns whether all of them have records now: until then
    /// nothing may be mapped or released.
    #[inline]
    pub(in crate::arena) fn commit_pending(&mut self) -> bool {
        self.backing.as_ref().is_none_or(|backing| backing.uncommitted.is_empty()) || self.commit_each()
    }

    #[cold]
    fn commit_each(&mut self) -> bool {
        while let Some(uncommitted) = self.backing.as_mut().and_then(|backing| backing.uncommitted.pop()) {
            if self.engine.reserve_blocks(3 + 2 * uncommitted.extents.len()).is_err() {
                if let Some(backing) = &mut self.backing {
                    // At its previous position.
                    backing.uncommitted.push(uncommitted);
                }
                return false;
            }
            let Uncommitted { extents, is_at_end, physical } = uncommitted;
            self.add_pieces(&extents, is_at_end, physical);
            let Self { engine, backing: Some(backing), .. } = self else { return true };
            for &extent in &extents {
                let block = engine.hold_at(extent.start, extent.bytes);
                backing.unreleased.extend(block.map(|block| (extent, block)));
            }
            let is_last = |extent: &Extent| backing.zone_at(extent.start) == Zone::Dynamic;
            if is_at_end && extents.first().is_some_and(is_last) {
                backing.ends_at(engine.end(Zone::Dynamic));
            }
        }
        true
    }

    /// Adds pieces at the end of a part of the range, or at the starts of gaps. Requires reserved records.
    fn add_pieces(&mut self, extents: &[Extent], is_at_end: bool, made: Vec<Physical>) {
        // No work uses new memory, whatever used these addresses before: blocks may have been freed while they slept.
        for extent in extents {
            let range = extent.start..extent.end();
            self.uses.note_reused(&range);
            let done = self.uses.take(range);
            self.uses.keep_dropped(done);
        }
        let Self { engine, backing: Some(backing), .. } = self else { return };
        let Some(last) = extents.last() else { return };
        match is_at_end {
            // Records are reserved, and the added offsets are new.
            true => _ = engine.set_end(backing.zone_at(last.start), last.end()),
            false => runs(extents).iter().for_each(|&run| backing.fill(engine, run)),
        }
        for (&extent, physical) in extents.iter().zip(made) {
            backing.add(extent, physical);
        }
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use crate::Backend;
    use crate::arena::DeviceArena;
    use crate::host::{Call, HostDevice};
    use vrampool_backend::spi::Ledger;

    const PAGE: u64 = 4096;

    /// New memory can be neither made accessible nor unmapped, and the host has no memory for its record: it
    /// is kept until a record is possible.
    #[test]
    fn what_is_mapped_is_never_forgotten() {
        let device = HostDevice::builder().memory_limit(1 << 24).granularity(PAGE).build();
        if device.virtual_memory().is_none() {
            return;
        }
        let stream = device.create_stream().expect("a stream");
        let ledger = Ledger::new(64 * PAGE);
        let arena = DeviceArena::builder(&device).growing().limit(64 * PAGE).within(&ledger).build();
        let arena = arena.expect("an arena");
        let block = arena.allocate(4 * PAGE, &stream).expect("memory");
        let set_full = |is_full| arena.core.state.lock().engine.host_is_full = is_full;
        [Call::SetAccess, Call::Unmap].iter().for_each(|&call| device.faults().fail_nth(call, 1));
        set_full(true);
        assert!(arena.allocate(8 * PAGE, &stream).is_err());
        assert_eq!(ledger.charged(), 12 * PAGE, "it is mapped");
        assert!(arena.allocate(8 * PAGE, &stream).is_err(), "the host is full");
        assert_eq!(arena.release(0).expect("no fault"), 0);
        set_full(false);
        let other = arena.allocate(8 * PAGE, &stream).expect("it is mapped elsewhere");
        assert_eq!((arena.reserved_bytes(), ledger.charged()), (20 * PAGE, 20 * PAGE));
        drop((block, other));
        assert_eq!(arena.release(0).expect("no fault"), 20 * PAGE);
        assert_eq!((arena.reserved_bytes(), ledger.charged()), (0, 0));
    }
}
