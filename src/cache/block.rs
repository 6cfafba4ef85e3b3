//! What a [block](Block) does: its memory, class and stream order.

use crate::arena::Refill;
use crate::cache::block_body::Body;
pub(crate) use crate::cache::block_body::Errand;
pub(crate) use crate::cache::core::Block;
use crate::cache::core::PoolCore;
use crate::cache::magazine::class_table::{self, NO_LIST};
use crate::error::{Error, Forbidden};
use crate::source::{Key, SourceMemory};
use crate::streams::order::{After, Need};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::spi::Ticket;
use vrampool_backend::{Backend, HeldMemory, Region, RegionMut, Stream, StreamId};

impl Block {
    pub(crate) fn new<B: Backend>(
        extent: SourceMemory<B>,
        key: Key,
        requested: u64,
        stream: &B::Stream,
        (pool, generation): (&Arc<PoolCore>, u64),
    ) -> Box<Self> {
        let body = Body { extent, stream: stream.clone(), readers: Mutex::default(), ticket: None };
        Box::new(Block {
            next: None,
            key,
            requested,
            ready_on: AtomicU64::new(stream.id().get()),
            stream: stream.id(),
            generation,
            list: quick_list_of(pool, key),
            pool: Arc::clone(pool),
            #[cfg(feature = "trace")]
            recorded: 0,
            #[cfg(feature = "trace")]
            recorded_list: NO_LIST,
            place: AtomicU64::new(0),
            body: Box::new(body),
        })
    }

    /// Returns its memory to an arena, for [`refill`](Self::refill), if that needs only bookkeeping.
    pub(crate) fn empty(&mut self) -> bool {
        self.body.empty()
    }

    /// As [`empty`](Self::empty), for a block used by several streams. Returns the remaining work.
    pub(crate) fn empty_shared(&mut self) -> Option<Errand> {
        self.body.empty_shared()
    }

    /// Its current address, on devices that have addresses.
    #[inline]
    pub(crate) fn address(&self) -> Option<u64> {
        // Relaxed: every thread that computes the address stores the same number.
        match self.place.load(Ordering::Relaxed) {
            0 => self.find_address(),
            // The address is invalid after the arena has forgotten the block.
            _ if self.generation != self.pool.generation.load(Ordering::Relaxed) => self.find_address(),
            place => Some(place),
        }
    }

    #[cold]
    fn find_address(&self) -> Option<u64> {
        let (address, stays) = self.body.address()?;
        if stays {
            self.place.store(address, Ordering::Relaxed);
        }
        Some(address)
    }

    /// Its byte ranges in an arena.
    pub(crate) fn parts(&self) -> Vec<Range<u64>> {
        self.body.parts()
    }

    /// The ticket of the request that it serves, if hooks watched it.
    pub(crate) fn ticket(&mut self) -> &mut Option<Ticket> {
        self.body.ticket()
    }

    /// Makes an [emptied](Self::empty) record a block of the arena again, if that needs only bookkeeping.
    /// Returns its end in the arena, and streams to be dropped without any lock.
    #[inline(always)]
    pub(crate) fn refill<B: Backend>(
        &mut self,
        class: u64,
        requested: u64,
        stream: &B::Stream,
    ) -> Option<(u64, [Option<B::Stream>; 2])> {
        let body = self.body_mut::<B>();
        let SourceMemory::Arena(buffer) = &mut body.extent else { return None };
        let Refill { end, address, gone } = buffer.refill(class, stream)?;
        let id = stream.id();
        let other = (body.stream.id() != id).then(|| mem::replace(&mut body.stream, stream.clone()));
        // The kind of memory is the arena's, unchanged.
        (self.key.class, self.requested, self.stream) = (class, requested, id);
        *self.ready_on.get_mut() = id.get();
        *self.place.get_mut() = address;
        self.list = quick_list_of(&self.pool, self.key);
        Some((end, [gone, other]))
    }

    fn need(&self) -> Need {
        Need { requested: self.requested, class: self.key.class }
    }

    /// Whether work on `stream` may use it without any wait.
    #[inline(always)]
    pub(crate) fn is_ready_on(&self, stream: StreamId) -> bool {
        // Relaxed: only the exclusive owner of the block calls this.
        self.ready_on.load(Ordering::Relaxed) == stream.get()
    }

    fn body<B: Backend>(&self) -> &Body<B> {
        match (&*self.body as &dyn Any).downcast_ref() {
            Some(body) => body,
            None => unreachable!("a pool hands out its backend's blocks"),
        }
    }

    fn body_mut<B: Backend>(&mut self) -> &mut Body<B> {
        match (&mut *self.body as &mut dyn Any).downcast_mut() {
            Some(body) => body,
            None => unreachable!("a pool hands out its backend's blocks"),
        }
    }

    pub(crate) fn stream<B: Backend>(&self) -> &B::Stream {
        &self.body::<B>().stream
    }

    pub(crate) fn memory<B: Backend>(&self) -> HeldMemory<'_, B::Memory> {
        self.body::<B>().extent.memory()
    }

    /// The memory that contains it, for callers that do not use its position.
    pub(crate) fn range<B: Backend>(&self) -> &B::Memory {
        self.body::<B>().extent.range()
    }

    /// Returns its first `len` bytes for reading on `stream`, which must have borrowed or taken it.
    pub(crate) fn region<B: Backend>(
        &self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<Region<'_, B::Memory>, Error> {
        self.body::<B>().extent.region(len, stream)
    }

    /// Returns its first `len` bytes for writing on `stream`, to which it was handed over.
    pub(crate) fn region_mut<B: Backend>(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.body_mut::<B>().extent.region_mut(len, stream)
    }

    /// Makes `stream` wait, once, for the last writer, and adds it as a reader. Returns the waits, except an
    /// arena's, which counts its own.
    pub(crate) fn lend<B: Backend>(&self, stream: &B::Stream) -> Result<u64, Error> {
        let Body { extent, stream: writer, readers, .. } = self.body::<B>();
        let is_writer = writer.id() == stream.id();
        let mut waits = 0;
        match extent {
            SourceMemory::Arena(buffer) => buffer.lend(stream)?,
            _ if is_writer || readers.lock().is_behind(stream.id()) => {}
            _ => {
                let (device, users) = (&self.pool.supply::<B>().device, std::iter::once(writer));
                let capture;
                (waits, capture) = self.need().order(device, users, stream, After::Contents)?;
                readers.lock().add(stream, true, capture);
            }
        }
        if !is_writer {
            self.has_readers();
        }
        Ok(waits)
    }

    /// Records `stream`, which is not captured, as a user without inserting a wait.
    pub(crate) fn record_stream<B: Backend>(&self, stream: &B::Stream) -> Result<(), Error> {
        let Body { extent, stream: writer, readers, .. } = self.body::<B>();
        let is_writer = writer.id() == stream.id();
        match extent {
            SourceMemory::Arena(buffer) => buffer.note_stream(stream)?,
            _ if is_writer => {}
            _ => readers.lock().add(stream, false, None),
        }
        if !is_writer {
            self.has_readers();
        }
        Ok(())
    }

    /// From now on no stream may use it without a wait.
    fn has_readers(&self) {
        // Relaxed: read only by the exclusive owner. Passing on ownership orders this store before the read.
        self.ready_on.store(0, Ordering::Relaxed);
    }

    /// Checks that an idle block may serve a request on `stream`. Refuses a captured stream if the block was
    /// used outside of that capture, because that use may still be pending.
    ///
    /// # Errors
    /// [`Error::Capture`]; errors of the device.
    pub(crate) fn check_claim<B: Backend>(&self, stream: &B::Stream) -> Result<(), Error> {
        let Some(capture) = self.pool.supply::<B>().device.capture_of(stream)? else { return Ok(()) };
        let Body { extent, stream: writer, readers, .. } = self.body::<B>();
        let is_known = match extent {
            _ if writer.id() != stream.id() => false,
            SourceMemory::Arena(buffer) => buffer.readers_are_all_in(capture),
            _ => readers.lock().are_all_in(capture),
        };
        if is_known { Ok(()) } else { Err(self.need().refused(Forbidden::Wait)) }
    }

    /// Makes `stream` wait for every user of the block, and hands the block to it. On failure the block still
    /// belongs to all of them. Returns the waits, except an arena's, which counts its own.
    pub(crate) fn hand_over<B: Backend>(&mut self, stream: &B::Stream, after: After) -> Result<u64, Error> {
        if self.is_ready_on(stream.id()) {
            return Ok(0);
        }
        let (pool, need) = (Arc::clone(&self.pool), self.need());
        let Body { extent, stream: writer, readers, .. } = self.body_mut::<B>();
        let (waits, capture);
        match extent {
            SourceMemory::Arena(buffer) => (waits, capture) = (0, buffer.hand_over(stream, after)?),
            _ => {
                let readers = readers.get_mut();
                let users = std::iter::once(&*writer).chain(readers.iter());
                (waits, capture) = need.order(&pool.supply::<B>().device, users, stream, after)?;
                readers.written_after(writer, stream, capture);
            }
        }
        *writer = stream.clone();
        self.stream = stream.id();
        // In a capture the order holds in a graph only, so the next owner waits for all users.
        *self.ready_on.get_mut() = if capture.is_some() { 0 } else { stream.id().get() };
        Ok(waits)
    }
}

/// Returns the magazine list for blocks of `key`, if the list is for their class only.
#[cfg(feature = "trace")]
pub(crate) fn list_of(pool: &PoolCore, key: Key) -> u8 {
    let is_kept = pool.class_table.are_unshared() && pool.has_magazine_for(key);
    if is_kept { class_table::number(key.class) } else { NO_LIST }
}

/// As `list_of`, for pools whose fast release path may use a list without looking at the block.
#[inline]
fn quick_list_of(pool: &PoolCore, key: Key) -> u8 {
    let is_kept = pool.class_table.are_quick() && pool.has_magazine_for(key);
    if is_kept { class_table::number(key.class) } else { NO_LIST }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("key", &self.key)
            .field("requested", &self.requested)
            .field("ready_on", &self.ready_on)
            .finish_non_exhaustive()
    }
}
