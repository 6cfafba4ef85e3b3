//! The way from a request to a buffer, in arenas of fixed size and growing ones.
//!
//! The order among mapped memory is that of `candidate` in `find`. The order of all is: mapped memory; memory that a
//! pool keeps idle; newly mapped memory; at the limit, for a small request, mapped memory of the part for large ones.
//! If a capture forbids the wait that the first memory found needs, other memory serves: the smallest hole without such
//! a wait; a stitched range; for an uncaptured stream, new memory or a range stitched of such holes.

use super::find::Waits;
use super::{ArenaBuffer, ArenaCore, ArenaRequest, DeviceArena, StateGuard, TakenBlock};
use crate::error::{Error, Forbidden};
use crate::heap::arena::hazards::Refused;
use crate::heap::arena::mapping::Budget;
use crate::heap::space::{FreeBlock, Zone};
use crate::streams::{AwaitedUsers, Need, Order};
use smallvec::SmallVec;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Backend, Memory, Stream, StreamId, logging};

/// Most calls of `reclaim` before more memory is mapped: for idle blocks of the pool, and of the thread's magazines.
const RECLAIMS: u32 = 2;

/// Most searches for memory that a capture allows: one becomes useless only if a capture begins after the search.
const SEARCHES: u32 = 3;

impl<B: Backend> DeviceArena<B> {
    /// Allocates a block of `bytes` bytes at an address. Returns `None` if that is not free memory of the range.
    pub(crate) fn allocate_at(
        &self,
        address: u64,
        bytes: u64,
        stream: &B::Stream,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        let core = &self.core;
        core.check_device(stream)?;
        let mut state = core.attached(bytes, || core.lock_for_request(stream))?;
        state.uses.ticks.used_by(stream.id());
        let offset = state.range.address().and_then(|base| address.checked_sub(base));
        let size = bytes.checked_next_multiple_of(state.engine.alignment());
        let Some((offset, size)) = offset.zip(size) else { return Ok(None) };
        let Ok(block) = state.engine.allocate_at(offset, size) else { return Ok(None) };
        let zone = state.engine.zone_at(offset);
        let request = ArenaRequest::new((bytes, zone), stream);
        core.make_buffer(state, TakenBlock::plain(block), &request).map(Some)
    }

    /// Makes `stream` a user of all free memory, ordered after its earlier users.
    pub(crate) fn use_free_on(&self, stream: &B::Stream) -> Result<(), Error> {
        let core = &self.core;
        let mut state = core.attached(0, || core.lock_for_request(stream))?;
        state.uses.ticks.used_by(stream.id());
        let mut before = AwaitedUsers::new();
        for FreeBlock { extent, .. } in state.engine.free_by_offset() {
            state.uses.add_user(extent.range(), stream, &mut before);
            if state.are_concurrent {
                state.uses.freed_unmarked(stream, extent.bytes);
            }
        }
        drop(state);
        core.take_over(&before, stream, Need { requested: 0, class: 0 })
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Allocates a block. Before a growing arena maps more, `reclaim` may return memory to it, and returns whether it
    /// did; that memory is searched first.
    pub(super) fn allocate(
        self: &Arc<Self>,
        (bytes, zone): (u64, Zone),
        stream: &B::Stream,
        reclaim: Option<impl FnMut() -> bool>,
    ) -> Result<ArenaBuffer<B>, Error> {
        self.check_device(stream)?;
        let mut request = ArenaRequest::new((bytes, zone), stream);
        let is_captured = self.device.is_capturing(stream) != Ok(false);
        // Relaxed: a thread that does not see a marker places its memory as if there were none.
        request.is_captured = is_captured && self.has_markers.load(Relaxed);
        match self.serve(&request, is_captured, reclaim) {
            Err(refusal @ Error::Capture { forbidden: Forbidden::Wait, .. }) => {
                self.serve_elsewhere(&request)?.ok_or(refusal)
            }
            served => served,
        }
    }

    /// Serves a request from mapped memory, or from new memory, after more and more effort. A request that [prefers
    /// growth](State::prefers_growth) gets memory that needs a wait only if there is no new memory.
    #[inline]
    fn serve(
        self: &Arc<Self>,
        request: &ArenaRequest<'_, B::Stream>,
        is_captured: bool,
        mut reclaim: Option<impl FnMut() -> bool>,
    ) -> Result<ArenaBuffer<B>, Error> {
        let need = Need { requested: request.bytes, class: request.bytes };
        let grown = &ArenaRequest { spills: true, ..*request };
        let mut reclaims = if reclaim.is_some() { RECLAIMS } else { 0 };
        let (mut are_asked, mut may_spare, mut refusal) = (false, true, None);
        loop {
            let mut locked = self.attached(request.bytes, || self.lock_for_request(request.stream))?;
            let state = &mut *locked;
            // Before the search, which depends on it: the first request of a second stream is spared waits, too.
            state.uses.ticks.used_by(request.stream.id());
            // If no stream is busy, no memory needs a wait.
            let is_spared =
                may_spare && state.prefers_growth(request) && !(are_asked && state.markers.is_empty());
            if is_spared && are_asked {
                state.uses.ticks.want_markers();
            }
            let waits = if is_spared { Waits::Avoid } else { Waits::Allow };
            let budget = if refusal.is_none() { Budget::Free } else { Budget::Exhausted };
            if let Some(taken) = state.find(request, budget, &waits)? {
                return self.make_buffer(locked, taken, request);
            }
            if let Some(refused) = refusal {
                return Err(refused);
            }
            if !is_spared
                && reclaims == 0
                && !is_captured
                && let Some(alone) = self.changing.try_lock()
            {
                return self.grow(grown, Waits::Allow, (alone, Some(locked)), false);
            }
            drop(locked);
            if is_captured
                && let Err(refused) = need.check(&self.device, request.stream, Forbidden::Allocation)
            {
                // A capture must not request memory from the driver.
                (may_spare, refusal) = (false, Some(refused));
            } else if reclaims > 0 && reclaim.as_mut().is_some_and(|reclaim| reclaim()) {
                // Without the lock, which destructors may take.
                reclaims -= 1;
            } else if is_spared && !are_asked {
                self.ask_unmarked(request.stream);
                (reclaims, are_asked) = (0, true);
            } else if is_spared {
                // A thread that changes the arena may wait for a stream for long.
                let alone = self.changing.try_lock();
                let waits = Waits::Refuse(Refused::All);
                match alone.map(|alone| self.grow(request, waits, (alone, None), true)) {
                    Some(Ok(grown)) => return Ok(grown),
                    Some(Err(error)) => logging::debug!("arena on {}: {error}; a stream waits", self.id),
                    None => {}
                }
                may_spare = false;
            } else {
                return self.grow(grown, Waits::Allow, (self.alone(request.bytes)?, None), false);
            }
        }
    }

    /// Asks the streams that used free memory without a marker whether they are idle, and polls the others' markers.
    fn ask_unmarked(&self, stream: &B::Stream) {
        let mut state = self.state.lock();
        let is_unmarked = |user: &B::Stream, tick| {
            user.id() != stream.id() && state.markers.covering(user.id(), tick).is_none()
        };
        let users = state.users_of_free(is_unmarked);
        let tick = state.uses.ticks.begin();
        drop(state);
        if !users.is_empty() {
            self.ask(users, tick);
        }
        Order::poll(self);
    }

    /// Serves a request whose wait a capture forbids. Returns `None` if no memory serves without such a wait.
    #[cold]
    fn serve_elsewhere(
        self: &Arc<Self>,
        request: &ArenaRequest<'_, B::Stream>,
    ) -> Result<Option<ArenaBuffer<B>>, Error> {
        let is_captured = self.device.is_capturing(request.stream)?;
        let mut waits = Waits::Refuse(Refused::All);
        for _ in 0..SEARCHES {
            if !is_captured {
                waits = Waits::Refuse(Refused::Captured(self.captured_users_of_free(request.stream)?));
            }
            let mut state = self.attached(request.bytes, || self.state.lock())?;
            let Some(taken) = state.find(request, Budget::Free, &waits)? else { break };
            match self.make_buffer(state, taken, request) {
                Err(Error::Capture { .. }) => {}
                served => return served.map(Some),
            }
        }
        if is_captured || !self.is_growing {
            return Ok(None);
        }
        match self.grow(request, waits, (self.alone(request.bytes)?, None), false) {
            // Memory is free behind a capture, so the caller returns the capture's error.
            Err(error) if error.is_out_of_memory() => Ok(None),
            grown => grown.map(Some),
        }
    }

    /// Returns captured streams, other than this one, that used free memory.
    fn captured_users_of_free(&self, stream: &B::Stream) -> Result<SmallVec<[StreamId; 4]>, Error> {
        let users = self.state.lock().users_of_free(|user, _| user.id() != stream.id());
        let mut captured = SmallVec::new();
        for user in &users {
            if self.device.is_capturing(user)? {
                captured.push(user.id());
            }
        }
        Ok(captured)
    }

    /// Returns a buffer of taken memory, ordered after the work of earlier users of its bytes.
    #[inline(always)]
    pub(super) fn make_buffer(
        self: &Arc<Self>,
        mut locked: StateGuard<'_, B>,
        taken: TakenBlock<B>,
        request: &ArenaRequest<'_, B::Stream>,
    ) -> Result<ArenaBuffer<B>, Error> {
        let (stream, state) = (request.stream, &mut *locked);
        let (size, before) = state.await_users(&taken, stream);
        let TakenBlock { block, stitched } = taken;
        let slot = state.slots.insert(block, stream.clone());
        if let Some(before) = &before {
            before.iter().for_each(|(user, _)| slot.uses.recorded_on(user));
        }
        let (range, stitched_at) = match stitched {
            None => (state.range.take_handle(), None),
            Some(place) => {
                slot.has_more(place.more);
                (place.memory, Some(place.offset))
            }
        };
        let dropped = state.uses.take_dropped();
        drop(locked);
        drop(dropped);
        let (arena, range, len) = (Arc::clone(self), Some(range), request.bytes);
        let (is_emptied, holds, kept) = (false, OnceLock::new(), None);
        let buffer =
            ArenaBuffer { arena, range, is_emptied, block, stitched_at, holds, stream: kept, len, size };
        let Some(before) = before else { return Ok(buffer) };
        self.take_over(&before, stream, buffer.need()).inspect_err(|_| self.take_back(&buffer))?;
        if let Some(slot) = self.state.lock().slots.get_mut(buffer.block) {
            slot.uses.forget_readers();
        }
        Ok(buffer)
    }

    /// Frees a new block that no caller received. Its stream used none of its bytes.
    #[cold]
    fn take_back(&self, buffer: &ArenaBuffer<B>) {
        // A compaction may move it meanwhile.
        let mut state = self.lock_unmoved(buffer.block);
        let slot = state.slots.remove(buffer.block);
        if let Some(slot) = &slot {
            slot.blocks(buffer.block).for_each(|block| state.free_freed(block));
        }
        drop(state);
        drop(slot);
    }
}
