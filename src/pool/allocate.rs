//! The allocation path past the magazines.

use crate::arena;
use crate::cache::block::Block;
use crate::cache::core::PoolCore;
use crate::cache::magazine;
use crate::cache::magazine::class_table::NO_LIST;
use crate::cache::magazine::rack::Rack;
use crate::cache::orphans;
use crate::cache::recycled_records::Found;
use crate::cache::reservation::NoRoom;
use crate::cache::served_by::ServedBy;
use crate::error::{Error, Forbidden, Shortage};
use crate::source::Key;
use crate::streams::order::{After, Need};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::spi::Announced;
use vrampool_backend::{Backend, MemoryKind, Stream, StreamId, fork};

impl PoolCore {
    /// Checks that a stream is of the pool's device.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another device;
    /// [`BackendError::Forked`](vrampool_backend::BackendError).
    pub(crate) fn check_device(&self, stream: &impl Stream) -> Result<(), Error> {
        fork::check()?;
        let given = stream.device();
        // Numbers first, and names mostly by their address, because every large request is checked.
        let is_own = given.key == self.device.key
            && (std::ptr::eq(given.backend, self.device.backend) || given.backend == self.device.backend);
        if is_own { Ok(()) } else { Err(Error::wrong_device(self.device, given)) }
    }

    /// Serves a request that is too large for magazines on the shortest path: from the newest idle block if
    /// that needs no wait, or from the source if no idle block would serve. `None` means that the general path
    /// is needed, as it always is with hooks.
    pub(crate) fn allocate_large<B: Backend>(
        self: &Arc<Self>,
        bytes: u64,
        stream: &B::Stream,
    ) -> Option<Result<Box<Block>, Error>> {
        if !self.class_table.are_below(bytes) {
            return None;
        }
        let key = Key {
            kind: self.kind,
            class: self.classes.round(bytes).filter(|&class| class <= self.max_allocation)?,
        };
        let mut gone = [None, None];
        let mut depot = self.depot();
        magazine::settle(self, &mut depot);
        if depot.is_guarded() {
            return None;
        }
        if self.caps.cache(key.class) {
            if let Some(ready) = depot.take_ready(key, bytes, stream.id()) {
                return Some(Ok(ready));
            }
            if !depot.has_nothing_for(key) {
                return None;
            }
        }
        // A recycled record's stream is one of the pool's device.
        if !depot.next_record_is_of(stream.id()) && self.check_device(stream).is_err() {
            return None;
        }
        let mut fresh = depot.serve::<B>(key, bytes, stream, &mut gone);
        if fresh.is_none()
            && let Some(arena) = self.supply::<B>().arena()
        {
            drop(depot);
            let has_polled = arena.poll();
            depot = self.depot();
            fresh = if has_polled { depot.serve::<B>(key, bytes, stream, &mut gone) } else { None };
        }
        depot.count_miss(key);
        drop(depot);
        let Some(fresh) = fresh else { return Some(self.miss::<B>(key, bytes, stream, (None, None))) };
        if gone.iter().all(Option::is_none) {
            // Usually there is nothing to drop.
            mem::forget(gone);
        }
        Some(Ok(fresh))
    }

    /// Takes the newest idle block for a request that the fast magazine lists do not serve, if it needs no wait:
    /// of a class that shares a list, from this thread's magazine; of a larger one, from the depot.
    #[cold]
    #[inline(never)]
    pub(crate) fn take_ready(&self, bytes: u64, stream: StreamId) -> Option<Box<Block>> {
        if !self.hooks.is_empty() || !self.recorder.is_none() {
            return None;
        }
        let class = self.classes.round(bytes).filter(|&class| class <= self.max_allocation)?;
        let key = Key { kind: self.kind, class };
        if self.has_magazine_for(key) {
            return magazine::take_class(self, class, bytes, stream);
        }
        if !self.caps.cache(class) {
            return None;
        }
        let mut depot = self.depot();
        magazine::settle(self, &mut depot);
        if depot.is_guarded() { None } else { depot.take_ready(key, bytes, stream) }
    }

    /// Serves a request that the lists of this thread's magazines did not serve. `request` is set if hooks
    /// observe it. `waiter` is its number if it waits until a deadline.
    pub(crate) fn allocate<B: Backend>(
        self: &Arc<Self>,
        bytes: u64,
        kind: MemoryKind,
        stream: &B::Stream,
        (request, waiter): (Option<&Announced<'_>>, Option<u64>),
    ) -> Result<Box<Block>, Error> {
        self.check_device(stream)
            .inspect_err(|_| self.count_failure(|counters| &mut counters.failed.invalid))?;
        let max_allocation = self.max_allocation;
        let Some(class) = self.classes.round(bytes).filter(|&class| class <= max_allocation) else {
            self.count_failure(|counters| &mut counters.failed.invalid);
            return Err(Error::TooLarge { requested_bytes: bytes, max_allocation });
        };
        let key = Key { kind, class };
        let mut gone = [None, None];
        match self.find::<B>(key, bytes, stream, waiter, &mut gone) {
            (Some(block), Found::Idle) => match self.reuse::<B>(block, key, stream) {
                Ok(block) => Ok(block),
                // The block belongs to a captured stream, and `stream` is not captured.
                Err(Error::Capture { .. }) if !self.is_capturing::<B>(stream) => {
                    self.miss::<B>(key, bytes, stream, (request, waiter))
                }
                Err(error) => {
                    self.count_failure(|counters| &mut counters.failed.by_backend);
                    Err(error)
                }
            },
            (Some(block), Found::Fresh) => Ok(block),
            (None, _) => self.miss::<B>(key, bytes, stream, (request, waiter)),
        }
    }

    /// Takes a block from this thread's magazines, from the depot, or from an arena if that needs only
    /// bookkeeping. Counts the hit or the miss. Streams in `gone` must be dropped without any lock.
    fn find<B: Backend>(
        self: &Arc<Self>,
        key: Key,
        requested: u64,
        stream: &B::Stream,
        waiter: Option<u64>,
        gone: &mut [Option<B::Stream>; 2],
    ) -> (Option<Box<Block>>, Found) {
        let mut at_depot = |rack: Option<&Rack>| {
            let mut depot = self.depot();
            if depot.is_shut {
                return (None, Found::Idle);
            }
            if depot.is_promised(key.class, waiter) {
                depot.count_miss(key);
                return (None, Found::Idle);
            }
            match depot.take(key, requested, stream.id(), rack) {
                None => (depot.serve::<B>(key, requested, stream, gone), Found::Fresh),
                idle => (idle, Found::Idle),
            }
        };
        if !self.has_magazines() {
            return at_depot(None);
        }
        if !self.has_magazine_for(key) {
            return magazine::inspect(self, at_depot);
        }
        let was_tried = self.class_table.of_request(requested).is_some_and(|list| list != NO_LIST)
            || self.class_table.are_unshared() && self.recorder.has_tried(requested);
        if !was_tried && let Some(block) = magazine::take_class(self, key.class, requested, stream.id()) {
            return (Some(block), Found::Idle);
        }
        magazine::visit(self, at_depot)
    }

    /// Makes an idle block ready for `stream`, and counts the hit of one that was not. On an error the block
    /// returns to its bucket, and the request is a miss.
    fn reuse<B: Backend>(
        &self,
        mut block: Box<Block>,
        key: Key,
        stream: &B::Stream,
    ) -> Result<Box<Block>, Error> {
        if block.is_ready_on(stream.id()) {
            return Ok(block);
        }
        let claimed = block.check_claim::<B>(stream);
        let handed_over = claimed.and_then(|()| block.hand_over::<B>(stream, After::Work));
        self.depot().count_hand_over(key, handed_over.as_ref().ok());
        match handed_over {
            Ok(_) => Ok(block),
            Err(error) => {
                Self::release(block);
                Err(error)
            }
        }
    }

    fn miss<B: Backend>(
        self: &Arc<Self>,
        key: Key,
        requested: u64,
        stream: &B::Stream,
        (request, waiter): (Option<&Announced<'_>>, Option<u64>),
    ) -> Result<Box<Block>, Error> {
        let (supply, need) = (self.supply::<B>(), Need { requested, class: key.class });
        let relief = || need.check(&supply.device, stream, Forbidden::Relief);
        let may_ask = match supply.asks_driver(key) {
            true => need.check(&supply.device, stream, Forbidden::Allocation),
            false => Ok(()),
        };
        may_ask.inspect_err(|_| self.count_failure(|counters| &mut counters.failed.by_backend))?;
        if orphans::has_left() && relief().is_ok() {
            orphans::free();
        }
        let calls = arena::mapping_calls_of_this_thread();
        let reservation = self.make_room(key.class, waiter, relief).map_err(|refusal| match refusal {
            NoRoom::Limit(limit) => self.out_of_memory(key, requested, waiter, Shortage::Limit(limit)),
            NoRoom::Closed => {
                self.count_failure(|counters| &mut counters.failed.invalid);
                Error::Closed
            }
            NoRoom::Relief(error) => {
                self.count_failure(|counters| &mut counters.failed.by_backend);
                error
            }
        })?;
        // Read before the source is asked, because a reset may forget the memory before it arrives.
        let generation = self.generation.load(Relaxed);
        match self.ask_source::<B>(key, stream, request, relief) {
            Ok(extent) => {
                let calls_driver = supply.asks_driver(key) || arena::mapping_calls_of_this_thread() != calls;
                let server = if calls_driver { ServedBy::Driver } else { ServedBy::Arena };
                reservation.commit(requested, supply.highest_end(), generation, server);
                Ok(Block::new(extent, key, requested, stream, (self, generation)))
            }
            Err(Error::OutOfMemory(error)) => {
                drop(reservation);
                Err(self.out_of_memory(key, requested, waiter, error.shortage))
            }
            Err(error) => {
                drop(reservation);
                self.count_failure(|counters| &mut counters.failed.by_backend);
                Err(error)
            }
        }
    }

    pub(super) fn is_capturing<B: Backend>(&self, stream: &B::Stream) -> bool {
        self.supply::<B>().device.is_capturing(stream).unwrap_or(true)
    }
}
