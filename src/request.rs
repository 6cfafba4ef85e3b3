//! A request's way down and a buffer's way back, and the ladder that is climbed when memory runs out.

use crate::UNLIMITED;
use crate::arena::ArenaError;
use crate::budget::Caps;
use crate::buffer::{Block, Buffer};
use crate::builder::Builder;
use crate::depot::{Counters, Depot, Key, Permit, Released};
use crate::device_arena::DeviceArena;
use crate::error::{Error, OutOfMemory, Shortage};
use crate::size_class::SizeClasses;
use crate::source::{Extent, Supply};
use crate::stats::Rung;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::sync::Arc;
use vrampool_backend::{Backend, DeviceId, MemoryKind, Stream};

/// What a pool's handles, buffers and idle blocks share.
#[derive(Debug)]
pub(crate) struct Shared<B: Backend> {
    pub(crate) device: B,
    pub(crate) id: DeviceId,
    pub(crate) name: String,
    pub(crate) kind: MemoryKind,
    pub(crate) classes: SizeClasses,
    pub(crate) supply: Supply<B>,
    pub(crate) depot: Mutex<Depot<B>>,
    /// Signalled when memory was given back or a promise was broken.
    freed: Condvar,
}

thread_local! {
    /// Whether this thread is giving memory back at this moment: a destructor that allocates must not wait for itself.
    static GIVING_BACK: Cell<bool> = const { Cell::new(false) };
}

impl<B: Backend> Shared<B> {
    pub(crate) fn new(
        builder: Builder<B>,
        kind: MemoryKind,
        caps: Caps,
        classes: SizeClasses,
        supply: Supply<B>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id: builder.device.id(),
            device: builder.device,
            name: builder.name,
            kind,
            classes,
            supply,
            depot: Mutex::new(Depot::new(classes, builder.borrow_classes, caps)),
            freed: Condvar::new(),
        })
    }

    /// # Errors
    /// [`Error::WrongDevice`] for a stream of another device.
    pub(crate) fn check_device(&self, stream: &B::Stream) -> Result<(), Error> {
        let given = stream.device();
        if given == self.id { Ok(()) } else { Err(Error::WrongDevice { pool: self.id, given }) }
    }

    /// Makes later work on `to` wait for the work so far on `from`.
    pub(crate) fn order(&self, from: &B::Stream, to: &B::Stream) -> Result<(), Error> {
        let event = self.device.record(from)?;
        Ok(self.device.wait(to, &event)?)
    }

    pub(crate) fn count_waits(&self, waits: u64) {
        self.depot.lock().counters.stream_waits += waits;
    }

    pub(crate) fn allocate(
        self: &Arc<Self>,
        bytes: u64,
        kind: MemoryKind,
        stream: &B::Stream,
    ) -> Result<Buffer<B>, Error> {
        self.check_device(stream)
            .inspect_err(|_| self.count_failure(|counters| &mut counters.failed_invalid))?;
        let max_allocation = self.device.properties().max_allocation;
        let Some(class) = self.classes.round(bytes).filter(|&class| class <= max_allocation) else {
            self.count_failure(|counters| &mut counters.failed_invalid);
            return Err(Error::TooLarge { requested: bytes, max_allocation });
        };
        let key = Key { kind, class };
        let idle = self.depot.lock().take(key, bytes, stream.id());
        let block = match idle {
            Some(block) => self.reuse(block, key, stream)?,
            None => self.miss(key, bytes, stream)?,
        };
        Ok(Buffer::new(block))
    }

    /// Makes an idle block ready for `stream`; one that cannot be made ready goes back to its bucket.
    fn reuse(&self, mut block: Box<Block<B>>, key: Key, stream: &B::Stream) -> Result<Box<Block<B>>, Error> {
        match block.hand_over(stream) {
            Ok(0) => {}
            Ok(waits) => self.count_waits(waits),
            Err(error) => {
                let mut depot = self.depot.lock();
                depot.undo_hit(key);
                depot.counters.failed_by_backend += 1;
                drop(depot);
                Self::release(block);
                return Err(error);
            }
        }
        Ok(block)
    }

    fn miss(self: &Arc<Self>, key: Key, requested: u64, stream: &B::Stream) -> Result<Box<Block<B>>, Error> {
        let promise = self.make_room(key.class).inspect_err(|_| {
            self.count_failure(|counters| &mut counters.failed_by_limit);
        });
        let promise = promise.map_err(|limit| self.out_of_memory(key, requested, Shortage::Limit(limit)))?;
        match self.ask_source(key, stream) {
            Ok(extent) => {
                promise.keep(requested);
                Ok(Block::new(extent, key, requested, stream, self))
            }
            Err(error) if error.is_out_of_memory() => {
                drop(promise);
                self.count_failure(|counters| &mut counters.failed_by_device);
                Err(match error {
                    Error::Backend(error) => self.out_of_memory(key, requested, Shortage::Device(error)),
                    Error::Arena(error) => self.out_of_memory(key, requested, Shortage::Arena(error)),
                    other => other,
                })
            }
            Err(error) => {
                drop(promise);
                self.count_failure(|counters| &mut counters.failed_by_backend);
                Err(error)
            }
        }
    }

    /// Gets a promise of `class` bytes within limit and budget, giving idle memory back where they demand it. The error
    /// is the limit.
    fn make_room(&self, class: u64) -> Result<Promise<'_, B>, u64> {
        let mut waited = false;
        let mut depot = self.depot.lock();
        loop {
            match depot.permit(class) {
                Permit::Granted { evicted, surplus } => {
                    drop(depot);
                    // From here on the promise is kept or broken, whatever a destructor or the device does.
                    let promise = Promise { pool: self, class, kept: false };
                    self.give_back_counting(evicted, surplus);
                    return Ok(promise);
                }
                Permit::Wait if !GIVING_BACK.get() => {
                    if !std::mem::replace(&mut waited, true) {
                        depot.count(Rung::Wait);
                    }
                    self.freed.wait(&mut depot);
                }
                Permit::Wait | Permit::Refused => return Err(depot.budget.caps.limit),
            }
        }
    }

    /// Asks the source; while it is out of memory, gives back least recently requested classes of the size asked for, then
    /// everything, and asks again; and last, closes the holes of an arena.
    fn ask_source(&self, key: Key, stream: &B::Stream) -> Result<Extent<B>, Error> {
        let ask = || self.supply.allocate(&self.device, key, stream);
        let mut answer = ask();
        for (bytes, is_last) in [(key.class, false), (u64::MAX, true)] {
            if !matches!(&answer, Err(error) if error.is_out_of_memory()) {
                break;
            }
            let mut depot = self.depot.lock();
            if depot.budget.now.cached == 0 && !is_last {
                continue;
            }
            depot.count(Rung::Trim);
            let idle = depot.evict(bytes);
            drop(depot);
            self.give_back(idle);
            if is_last && !GIVING_BACK.get() {
                // What other threads are giving back at this moment may be just what is missing.
                let mut depot = self.depot.lock();
                let quiet = depot.budget.freed_when_quiet();
                while !depot.budget.has_freed(quiet) {
                    self.freed.wait(&mut depot);
                }
            }
            answer = ask();
        }
        if let (Err(Error::Arena(ArenaError::NoSpace { available, .. })), Some(arena)) =
            (&answer, self.supply.arena())
            && *available >= key.class
        {
            self.depot.lock().count(Rung::Compact);
            arena.compact(stream, UNLIMITED, |_| {})?;
            answer = ask();
        }
        answer
    }

    /// A buffer's way back.
    pub(crate) fn release(block: Box<Block<B>>) {
        let pool = Arc::clone(block.pool());
        let released = pool.depot.lock().put(block);
        match released {
            Released::Cached => {}
            Released::Returned(block) => {
                let bytes = block.key.class;
                pool.give_back_counting(vec![block], bytes);
            }
        }
    }

    /// Drops blocks that left their buckets. Answers their bytes.
    pub(crate) fn give_back(&self, blocks: Vec<Box<Block<B>>>) -> u64 {
        let bytes = blocks.iter().map(|block| block.key.class).sum();
        self.give_back_counting(blocks, bytes);
        bytes
    }

    /// Drops blocks, of whose bytes `freed` come back to the device for good, outside any lock: a destructor may call the
    /// pool again.
    fn give_back_counting(&self, blocks: Vec<Box<Block<B>>>, freed: u64) {
        if blocks.is_empty() {
            return;
        }
        let _report =
            GiveBack { pool: self, count: blocks.len() as u64, freed, was: GIVING_BACK.replace(true) };
        drop(blocks);
    }

    pub(crate) fn count_failure(&self, counter: impl FnOnce(&mut Counters) -> &mut u64) {
        let mut depot = self.depot.lock();
        *counter(&mut depot.counters) += 1;
    }

    fn out_of_memory(&self, key: Key, requested: u64, shortage: Shortage) -> Error {
        let mut depot = self.depot.lock();
        depot.count(Rung::Fail);
        let now = depot.budget.now;
        let (live, cached, held) = (now.live, now.cached, now.held);
        Error::OutOfMemory(Box::new(OutOfMemory {
            requested,
            class: key.class,
            live,
            cached,
            held,
            shortage,
        }))
    }
}

/// Bytes that a miss may take from the device. Dropped unkept, also by a panic, they are free again.
struct Promise<'a, B: Backend> {
    pool: &'a Shared<B>,
    class: u64,
    kept: bool,
}

impl<B: Backend> Promise<'_, B> {
    fn keep(mut self, requested: u64) {
        self.kept = true;
        let reserved = self.pool.supply.arena().map_or(0, DeviceArena::highest_end);
        let mut depot = self.pool.depot.lock();
        depot.budget.peak_reserved = depot.budget.peak_reserved.max(reserved);
        depot.budget.allocated(self.class, requested);
        depot.counters.source_allocations += 1;
        depot.counters.live_buffers += 1;
    }
}

impl<B: Backend> Drop for Promise<'_, B> {
    fn drop(&mut self) {
        if !self.kept {
            self.pool.depot.lock().budget.broken(self.class);
            self.pool.freed.notify_all();
        }
    }
}

/// Reports memory as given back once its destructors ran, also when one panics.
struct GiveBack<'a, B: Backend> {
    pool: &'a Shared<B>,
    count: u64,
    freed: u64,
    was: bool,
}

impl<B: Backend> Drop for GiveBack<'_, B> {
    fn drop(&mut self) {
        GIVING_BACK.set(self.was);
        let mut depot = self.pool.depot.lock();
        depot.counters.source_frees += self.count;
        depot.budget.freed(self.freed);
        drop(depot);
        self.pool.freed.notify_all();
    }
}
