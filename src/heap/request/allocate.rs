//! The allocation path past the magazines.

use crate::error::{Error, Forbidden};
use crate::heap::magazine::class_table::NO_BIN;
use crate::heap::magazine::{ThreadCache, left_blocks};
use crate::heap::pool_order::ask_users;
use crate::heap::request::{NoRoom, Position, Request, Reservation};
use crate::heap::stats::{DeviceCall, Reason, times};
use crate::heap::store::{Accept, SourceMemory, Taken};
use crate::heap::{Block, PoolCore, arena, magazine};
use crate::source::Key;
use crate::streams::check_device;
use crate::sync::Instant;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::{Backend, CaptureId, HookEvent, MemoryKind, Stream, StreamId};

impl PoolCore {
    /// Checks that a stream is of the pool's device.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another device;
    /// [`BackendError::Forked`](vrampool_backend::BackendError).
    pub(crate) fn check_device(&self, stream: &impl Stream) -> Result<(), Error> {
        check_device(self.device, stream)
    }

    /// Serves a request that is too large for magazines on the shortest path: from the newest idle block if
    /// that needs no wait, or from the source if no idle block would serve. `None` means that the general path
    /// is needed.
    #[inline(always)]
    pub(crate) fn allocate_large<B: Backend>(
        self: &Arc<Self>,
        bytes: u64,
        stream: &B::Stream,
        announced: Option<&HookEvent<'_>>,
    ) -> Option<Result<Box<Block>, Error>> {
        if !self.class_table.are_below(bytes) {
            return None;
        }
        let key = Key { kind: self.kind, class: self.class_of(bytes)? };
        let request =
            |position| Request::<B> { pool: self, key, requested: bytes, stream, announced, position };
        let mut dropped = [None, None];
        // Relaxed: a thread that does not see a marker is served as if there were none.
        if self.has_markers.load(Relaxed)
            && let Some(arena) = &self.supply::<B>().arena
        {
            arena.poll(stream);
        }
        let mut depot = self.depot();
        magazine::apply_delta(self, &mut depot);
        if depot.is_guarded() {
            return None;
        }
        if self.caps.cache(key.class) {
            match depot.take_ready(key, bytes, stream.id()) {
                Taken::Idle(ready) => return Some(Ok(ready)),
                Taken::Busy if self.check_device(stream).is_ok() => {
                    drop(depot);
                    return Some(request(&Position::new(self)).serve(true));
                }
                Taken::Busy => return None,
                Taken::Nothing => {}
            }
        }
        // A recycled record's stream is one of the pool's device.
        if !depot.next_record_is_of(stream.id()) && self.check_device(stream).is_err() {
            return None;
        }
        let Some(fresh) = depot.serve_from_arena::<B>(key, bytes, Some(stream), &mut dropped) else {
            depot.note_request(key);
            let reservation = Reservation::at_once(self, &mut depot, key);
            drop(depot);
            return request(&Position::new(self)).miss(reservation, true).transpose();
        };
        drop(depot);
        if dropped.iter().all(Option::is_none) {
            // Usually there is nothing to drop.
            mem::forget(dropped);
        }
        Some(Ok(fresh))
    }

    /// Serves a request that the fast magazine bins do not serve, by bookkeeping alone: of a class that shares a bin,
    /// from this thread's magazine; of a larger one, from the depot, or from an arena if it has a record of the stream.
    /// Streams in `dropped` must be dropped without any lock.
    #[inline(never)]
    pub(crate) fn take_ready<B: Backend>(
        &self,
        bytes: u64,
        stream: StreamId,
        dropped: &mut [Option<B::Stream>; 2],
    ) -> Option<Box<Block>> {
        if self.is_observed() {
            return None;
        }
        let class = self.class_of(bytes)?;
        let key = Key { kind: self.kind, class };
        if self.has_magazine_for(key) {
            return magazine::take_class(self, class, bytes, stream);
        }
        let began = times::is_due().then(Instant::now);
        let mut depot = self.depot();
        magazine::apply_delta(self, &mut depot);
        if depot.is_guarded() {
            return None;
        }
        let ready = match self.caps.cache(class) {
            true => match depot.take_ready(key, bytes, stream) {
                Taken::Idle(ready) => ready,
                Taken::Busy | Taken::Nothing => return None,
            },
            // Relaxed: as in `allocate_large`, which looks at the markers.
            false if self.has_markers.load(Relaxed) || !depot.next_record_is_of(stream) => return None,
            false => depot.serve_from_arena::<B>(key, bytes, None, dropped)?,
        };
        // A request that is not served goes on, and is counted there.
        if times::is_sampled() {
            began.into_iter().for_each(|began| depot.counters.allocation.add(began.elapsed()));
        }
        Some(ready)
    }

    /// Serves a request that the bins of this thread's magazines did not serve. `announced` is set if
    /// hooks observe it.
    pub(crate) fn allocate<B: Backend>(
        self: &Arc<Self>,
        bytes: u64,
        kind: MemoryKind,
        stream: &B::Stream,
        (announced, position): (Option<&HookEvent<'_>>, &Position<'_>),
    ) -> Result<Box<Block>, Error> {
        self.check_device(stream).inspect_err(|_| self.count_failure(Reason::Invalid))?;
        let class = self.class_of(bytes).ok_or_else(|| self.too_large(bytes))?;
        let key = Key { kind, class };
        let request = Request::<B> { pool: self, key, requested: bytes, stream, announced, position };
        let served = request.serve(false);
        // Before the hooks of its end, which may use the pool.
        position.end_attempt(served.is_ok(), class);
        served
    }

    /// Counts and describes a request of more than the device allocates in one piece.
    pub(crate) fn too_large(&self, bytes: u64) -> Error {
        self.count_failure(Reason::Invalid);
        Error::TooLarge { requested_bytes: bytes, max_allocation: self.max_allocation }
    }
}

impl<B: Backend> Request<'_, B> {
    /// Serves a request, in this order: from an idle block that needs no wait; one whose work is complete, after its
    /// streams were asked; new memory, while the limit, the budget, [`overlap`](crate::PoolBuilder::overlap) and the
    /// device leave room; an idle block behind the marker of its last use. So streams that share no data do not wait
    /// for each other. If no block is idle, the request is a [miss](Self::miss). `is_busy`: a search found
    /// idle blocks of other streams alone.
    #[inline(never)]
    fn serve(&self, mut is_busy: bool) -> Result<Box<Block>, Error> {
        let (mut accept, mut capture, mut dropped) = (Accept::Ready, None, [None, None]);
        loop {
            let (found, reservation) = match mem::take(&mut is_busy) {
                true => (Taken::Busy, None),
                false => self.find(accept, &mut dropped),
            };
            let served = match (found, accept) {
                (Taken::Idle(block), _) => match self.hand_over(block, accept, capture) {
                    Ok(block) => Some(block),
                    // The block belongs to a captured stream, and the request's is not captured.
                    Err(Error::Capture { .. }) if capture.is_none() => self.miss(None, false)?,
                    Err(error) => {
                        self.pool.note_device_error(DeviceCall::Order, &error);
                        self.pool.count_failure(Reason::Backend);
                        return Err(error);
                    }
                },
                (Taken::Busy, Accept::Ready) => {
                    let of_stream = self.supply().device.capture_of(self.stream).map_err(Error::from);
                    capture = of_stream.inspect_err(|error| self.pool.count_refusal(error))?;
                    accept = Accept::Any;
                    if self.pool.are_streams_concurrent {
                        ask_users::<B>(self.pool, self.key, self.stream.id());
                        accept = Accept::Done { is_captured: capture.is_some() };
                    }
                    continue;
                }
                (Taken::Busy, Accept::Done { .. }) => {
                    accept = Accept::Any;
                    match reservation.and_then(|reservation| self.make_beside(reservation)) {
                        None => continue,
                        made => made,
                    }
                }
                (Taken::Busy | Taken::Nothing, _) => {
                    accept = Accept::Ready;
                    self.miss(reservation, true)?
                }
            };
            if let Some(served) = served {
                return Ok(served);
            }
        }
    }

    /// Takes a block that a request accepts from this thread's magazines, from the depot, or from an arena if that
    /// needs only bookkeeping. If no block is idle, reserves the bytes of a miss, unless that has to release or await
    /// memory first; if idle blocks are of other streams, only where new memory may spare a wait for them. Streams in
    /// `dropped` must be dropped without any lock.
    fn find(&self, accept: Accept, dropped: &mut [Option<B::Stream>; 2]) -> (Taken, Option<Reservation>) {
        let Request { pool, key, requested, stream, position, .. } = *self;
        let mut at_depot = |cache: Option<&ThreadCache>| {
            let mut depot = pool.depot();
            if depot.refuses() || depot.is_reserved_for_waiter(key.class, position) {
                return (Taken::Nothing, None);
            }
            let mut found = depot.take(key, requested, stream.id(), cache, accept);
            if let Taken::Nothing = found
                && let Some(block) = depot.serve_from_arena::<B>(key, requested, Some(stream), dropped)
            {
                found = Taken::Idle(block);
            }
            let reserves = match found {
                Taken::Idle(_) => false,
                Taken::Busy => depot.may_spare_wait(key, accept),
                Taken::Nothing => true,
            };
            let reservation = reserves.then(|| Reservation::at_once(pool, &mut depot, key)).flatten();
            if let Accept::Done { .. } = accept {
                // Its streams were asked.
                pool.marks.store(depot.backend_state.ticks().are_markers_wanted(), Relaxed);
            }
            (found, reservation)
        };
        if !pool.has_magazines() {
            return at_depot(None);
        }
        if !pool.has_magazine_for(key) {
            return magazine::inspect(pool, at_depot);
        }
        let was_tried = pool.class_table.of_request(requested).is_some_and(|bin| bin != NO_BIN);
        if !was_tried && let Some(block) = magazine::take_class(pool, key.class, requested, stream.id()) {
            return (Taken::Idle(block), None);
        }
        magazine::visit(pool, at_depot)
    }

    /// Hands an idle block over to the request's stream, behind its users if their work may be pending. If that fails,
    /// the block belongs to them.
    pub(super) fn hand_over(
        &self,
        mut block: Box<Block>,
        accept: Accept,
        capture: Option<CaptureId>,
    ) -> Result<Box<Block>, Error> {
        if block.is_ready_on(self.stream.id()) {
            return Ok(block);
        }
        let waits = match accept {
            Accept::Any => block.take_over::<B>(self.stream, capture),
            Accept::Ready | Accept::Done { .. } => block.adopt::<B>(self.stream).map(|()| 0),
        };
        match waits {
            Ok(waits) => {
                self.pool.depot().count_hand_over(self.key, waits);
                Ok(block)
            }
            Err(error) => {
                PoolCore::release(block);
                Err(error)
            }
        }
    }

    /// Serves a request from new memory, which spares a wait. Returns `None` if the source refuses it.
    fn make_beside(&self, reservation: Reservation) -> Option<Box<Block>> {
        let made = self.in_time(Some(reservation), |request, reservation| {
            reservation.map(|reservation| request.make(reservation, || request.ask_hooked())).transpose()
        });
        made.unwrap_or_else(|error| {
            vrampool_backend::logging::debug!("pool {}: {error}; a stream waits", self.pool.name);
            let accounts = &mut self.pool.depot().accounts;
            accounts.overlap_refused_at = Some(accounts.now.charged);
            None
        })
    }

    /// Serves a request from the source. If its bytes are not reserved, idle memory is released first, as limit and
    /// budget require. With `takes_idle`, `None` means to look for an idle block again: one that would serve was freed
    /// meanwhile.
    fn miss(&self, reserved: Option<Reservation>, takes_idle: bool) -> Result<Option<Box<Block>>, Error> {
        self.in_time(reserved, move |request, reserved| request.miss_here(reserved, takes_idle))
    }

    fn miss_here(
        &self,
        reserved: Option<Reservation>,
        takes_idle: bool,
    ) -> Result<Option<Box<Block>>, Error> {
        let (pool, supply) = (self.pool, self.supply());
        if supply.asks_driver(self.key) {
            let may_ask = self.need().check(&supply.device, self.stream, Forbidden::Allocation);
            // A closed pool refuses outside a capture, too.
            let refused = may_ask.map_err(|error| pool.depot().check_open().err().unwrap_or(error));
            refused.inspect_err(|error| pool.count_refusal(error))?;
        }
        if left_blocks::are_any() && self.allow_release().is_ok() {
            left_blocks::free();
        }
        let reserved = reserved.map_or_else(|| self.reserve(takes_idle), |of| Ok(Some(of)))?;
        let Some(reservation) = reserved else { return Ok(None) };
        self.make(reservation, || self.ask_source()).map(Some).map_err(|error| match error {
            Error::OutOfMemory(error) => self.out_of_memory(Some(error.shortage)),
            error => {
                pool.count_refusal(&error);
                error
            }
        })
    }

    /// Checks that memory may be released, or waited for, on the request's stream.
    pub(super) fn allow_release(&self) -> Result<(), Error> {
        self.need().check(&self.supply().device, self.stream, Forbidden::Release)
    }

    /// As [`make_room`](Self::make_room). `None` means that an idle block serves instead.
    pub(super) fn reserve(&self, takes_idle: bool) -> Result<Option<Reservation>, Error> {
        match self.make_room(takes_idle) {
            Ok(reservation) => Ok(Some(reservation)),
            Err(NoRoom::Idle) => Ok(None),
            Err(NoRoom::Wait | NoRoom::Limit | NoRoom::Reserved) => Err(self.out_of_memory(None)),
            Err(NoRoom::Refused(error)) => {
                self.pool.count_refusal(&error);
                Err(error)
            }
        }
    }

    /// Makes a block of reserved bytes of memory that `ask` gets from the source.
    pub(super) fn make(
        &self,
        mut reservation: Reservation,
        ask: impl FnOnce() -> Result<SourceMemory<B>, Error>,
    ) -> Result<Box<Block>, Error> {
        let &Request { pool, key, requested, stream, .. } = self;
        let supply = self.supply();
        let mut record = reservation.record.take();
        // Before the bytes are committed, because it may drop the last handle of another stream.
        record.iter_mut().for_each(|record| record.belong_to::<B>(stream));
        let (calls, began) = (arena::calls_of_this_thread(), Instant::now());
        let extent = ask()?;
        let calls_driver = supply.asks_driver(key) || arena::calls_of_this_thread() != calls;
        let time = calls_driver.then(|| began.elapsed());
        reservation.commit(key.kind, requested, supply.highest_end(), time);
        Ok(Block::new(record, extent, (key, requested), stream, pool))
    }
}

#[cfg(all(test, feature = "host", not(model)))]
mod tests {
    use crate::host::{Call, HostDevice};
    use crate::sync::ACQUISITIONS;
    use crate::{Backend, BackendError, Placement, Pool, SizeClasses, Source, internal};

    #[test]
    fn a_miss_takes_the_record_of_a_block_that_was_not_kept() {
        let device = HostDevice::new();
        let [one, two] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let pool = Pool::builder(&device).max_cached_bytes(0).build().expect("good settings");
        let records = || pool.handle.core.depot().records.len();
        let free_bytes = || device.memory_info().expect("figures").free_bytes;
        let all = free_bytes();
        drop(pool.allocate(1 << 20, &one).expect("memory"));
        assert_eq!((records(), free_bytes()), (1, all), "only the record is left");
        pool.trim().expect("a trim");
        assert_eq!(records(), 0, "it has a handle of a stream");
        drop(pool.allocate(1 << 20, &one).expect("memory"));
        let other = pool.allocate(5000, &two).expect("memory");
        assert_eq!((records(), other.len(), other.capacity()), (0, 5000, 16 << 10));
        assert_eq!(all - free_bytes(), 16 << 10);
        drop(other);
        device.faults().fail_all(Call::Allocate, BackendError::out_of_memory(1, None));
        assert!(pool.allocate(1 << 20, &one).is_err());
        let stats = pool.stats();
        assert_eq!((stats.held_bytes, stats.in_transit_bytes, free_bytes()), (0, 0, all), "{stats:?}");
    }

    #[test]
    #[cfg(unix)]
    fn a_free_with_a_marker_leaves_its_record() {
        let device = HostDevice::builder().memory_limit(1 << 30).build();
        let [one, two] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let builder = Pool::builder(&device).source(Source::Virtual).max_cached_bytes(0);
        let pool = builder.magazine_bytes(0).build().expect("a pool");
        let records = || pool.handle.core.depot().records.len();
        for _ in 0..3 {
            let shared = pool.allocate(8 << 20, &one).expect("memory");
            assert_eq!(records(), 0);
            shared.record_stream(&two).expect("a stream of the device");
            drop(shared);
            assert_eq!((records(), pool.arena().expect("it is virtual").used()), (1, 0));
        }
        drop(pool.allocate_kind(100, Placement::Device, &one).expect("memory"));
        assert_eq!(records(), 1, "an arena's record is for its kind");
        pool.trim().expect("a trim");
        assert_eq!(records(), 0, "it has a handle of a stream");
        let shared = pool.allocate(8 << 20, &one).expect("memory");
        shared.record_stream(&two).expect("a stream of the device");
        pool.close();
        drop(shared);
        assert_eq!(records(), 0, "no request follows");
    }

    /// Those of the search, the search with the right to map, the new memory and the counts.
    #[test]
    #[cfg(unix)]
    fn a_miss_that_maps_takes_the_lock_four_times() {
        let device = HostDevice::builder().memory_limit(1 << 30).build();
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).source(Source::Virtual).build().expect("a pool");
        let first = pool.allocate(16 << 20, &stream).expect("memory");
        let (mapped, before) = (pool.stats().reserved_bytes, ACQUISITIONS.get());
        let second = pool.allocate(32 << 20, &stream).expect("memory");
        let taken = ACQUISITIONS.get() - before;
        assert!(pool.stats().reserved_bytes > mapped, "it maps");
        assert!(taken <= 4, "{taken}");
        drop((first, second));
    }

    #[test]
    #[cfg(unix)]
    fn a_stitched_block_leaves_its_record_for_the_next_one() {
        const PAGE: u64 = 64 << 10;
        let device = HostDevice::builder().memory_limit(1 << 30).granularity(PAGE).build();
        let stream = device.create_stream().expect("a stream");
        let builder =
            Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Multiple(PAGE));
        let pool = builder.limit(10 * PAGE).max_cached_bytes(0).magazine_bytes(0).build().expect("a pool");
        let allocate = |pages| pool.allocate(pages * PAGE, &stream).expect("memory");
        let (first, _wall, last) = (allocate(4), allocate(2), allocate(4));
        drop((first, last));
        let records = || pool.handle.core.depot().records.len();
        for _ in 0..3 {
            let stitched = allocate(8);
            assert_eq!(internal::parts(&stitched).len(), 2);
            let before = records();
            drop(stitched);
            assert_eq!((records(), pool.arena().expect("it is virtual").used()), (before + 1, 2 * PAGE));
            // A plain block takes the record, and has no part in the stitched range.
            assert_eq!((internal::parts(&allocate(4)).len(), records()), (1, before));
        }
    }
}
