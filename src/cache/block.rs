//! The record of a block: its memory, class, stream order and pool.

use crate::arena::Refill;
use crate::cache::core::PoolCore;
use crate::cache::magazine::class_table;
use crate::cache::magazine::class_table::NO_LIST;
use crate::error::{Error, Forbidden};
use crate::source::Key;
use crate::source::{SourceMemory, Supply};
use crate::streams::order::{After, Need};
use crate::streams::users::Readers;
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::{Backend, CaptureId, HeldMemory, Memory, Region, RegionMut, Stream, StreamId, Ticket};

/// A block's record. It moves, boxed and by value, between buffer, magazine and bucket, and knows its pool,
/// so that none of these ways touches a reference count. An idle block thus keeps its pool's shared state
/// alive; the last pool handle empties the buckets and so cuts the circle.
///
/// What the ways need is here; what only the buffer's own backend understands is behind, its type forgotten:
/// so one thread-local variable serves the pools of all backends.
pub(crate) struct Block {
    /// The one below it in a magazine.
    pub(crate) next: Option<Box<Block>>,
    pub(crate) key: Key,
    /// Bytes the present, or last, borrower asked for.
    pub(crate) requested: u64,
    /// The stream on which it needs no wait: the one that got it or wrote it last, behind all that used it
    /// before. 0 when other streams read it since.
    ready_on: AtomicU64,
    /// The stream that got it or wrote it last.
    pub(crate) stream: StreamId,
    /// The [generation](PoolCore::generation) of the pool's that it is of.
    pub(crate) generation: u64,
    /// Which list of a magazine takes it, if that is for its class alone.
    pub(crate) list: u8,
    pub(crate) pool: Arc<PoolCore>,
    /// What a recorder calls the request that it serves; 0 when none was recorded.
    #[cfg(feature = "trace")]
    pub(crate) recorded: u64,
    /// As its list, which a block of a pool that is recorded does not have; known when it is handed out.
    #[cfg(feature = "trace")]
    pub(crate) recorded_list: u8,
    /// Where it is, once that is known and as long as it stays there; 0 else.
    place: AtomicU64,
    /// The [`Body`] of its backend. A box of its own, so that what moves is one word.
    body: Box<dyn Content>,
}

/// What is to be done without any lock.
pub(crate) type Errand = Box<dyn FnOnce() + Send>;

/// What is asked of a body of any backend.
trait Content: Any + Send + Sync {
    /// As [`Block::empty`].
    fn empty(&mut self) -> bool;
    /// As [`Block::empty_shared`].
    fn empty_shared(&mut self) -> Option<Errand>;
    /// As [`SourceMemory::address`].
    fn address(&self) -> Option<(u64, bool)>;
    /// As [`SourceMemory::parts`].
    fn parts(&self) -> Vec<Range<u64>>;
    /// As [`Block::ticket`].
    fn ticket(&mut self) -> &mut Option<Ticket>;
}

/// What a block of one backend is.
struct Body<B: Backend> {
    extent: SourceMemory<B>,
    /// The stream that got it or wrote it last.
    stream: B::Stream,
    /// Streams that read it since.
    readers: Mutex<Readers<B::Stream>>,
    ticket: Option<Ticket>,
}

impl<B: Backend> Drop for Body<B> {
    /// Memory of a driver's pool goes back in the order of the stream that wrote it, which waits for those
    /// that read it.
    fn drop(&mut self) {
        let SourceMemory::Driver(memory, device) = &mut self.extent else { return };
        let Some(memory) = memory.take() else { return };
        for reader in self.readers.get_mut().iter() {
            // What was captured is not under way, and neither the device nor the host could wait for it.
            if reader.id() == self.stream.id() || device.is_capturing(reader).unwrap_or(false) {
                continue;
            }
            // Where the device cannot wait the host does. What fails here too has no work under way any more.
            let need = Need { requested: 0, class: memory.len() };
            if need.order(device, [reader].into_iter(), &self.stream, After::Work).is_err() {
                let _ = device.synchronize(reader);
            }
        }
        device.free_on(memory, &self.stream);
    }
}

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

    /// Gives its memory back to an arena, if that takes nothing but numbers; for [`refill`](Self::refill)
    /// then.
    pub(crate) fn empty(&mut self) -> bool {
        self.body.empty()
    }

    /// As [`empty`](Self::empty), of one that several streams used. Answers what is left to be done for that.
    pub(crate) fn empty_shared(&mut self) -> Option<Errand> {
        self.body.empty_shared()
    }

    /// Where it is at this moment, where the device has addresses.
    #[inline]
    pub(crate) fn address(&self) -> Option<u64> {
        // Relaxed: a number that is the same whoever finds it out.
        match self.place.load(Ordering::Relaxed) {
            0 => self.find_address(),
            // It is no place of its own any more once the arena forgot it.
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

    /// Where in an arena its bytes are.
    pub(crate) fn parts(&self) -> Vec<Range<u64>> {
        self.body.parts()
    }

    /// The request that it serves, if hooks know of that.
    pub(crate) fn ticket(&mut self) -> &mut Option<Ticket> {
        self.body.ticket()
    }

    /// Makes an [emptied](Self::empty) one a block of the arena again, if that takes nothing but numbers.
    /// Answers where it ends in the arena, and streams to be dropped without any lock.
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
        // Its kind is the arena's, as before.
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
        // Relaxed: asked by who has the block to himself.
        self.ready_on.load(Ordering::Relaxed) == stream.get()
    }

    fn body<B: Backend>(&self) -> &Body<B> {
        match (&*self.body as &dyn Any).downcast_ref() {
            Some(body) => body,
            None => unreachable!("a pool hands out blocks of its own backend"),
        }
    }

    fn body_mut<B: Backend>(&mut self) -> &mut Body<B> {
        match (&mut *self.body as &mut dyn Any).downcast_mut() {
            Some(body) => body,
            None => unreachable!("a pool hands out blocks of its own backend"),
        }
    }

    /// The stream that got it or wrote it last, whose own it is.
    pub(crate) fn stream<B: Backend>(&self) -> &B::Stream {
        &self.body::<B>().stream
    }

    pub(crate) fn memory<B: Backend>(&self) -> HeldMemory<'_, B::Memory> {
        self.body::<B>().extent.memory()
    }

    /// The memory that it is a range of, for those who do not use its place.
    pub(crate) fn range<B: Backend>(&self) -> &B::Memory {
        self.body::<B>().extent.range()
    }

    /// Its first `len` bytes for reading on `stream`, to which it was [lent](Self::lend) or handed over.
    pub(crate) fn region<B: Backend>(
        &self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<Region<'_, B::Memory>, Error> {
        self.body::<B>().extent.region(len, stream)
    }

    /// Its first `len` bytes for writing on `stream`, to which it was handed over.
    pub(crate) fn region_mut<B: Backend>(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.body_mut::<B>().extent.region_mut(len, stream)
    }

    /// Makes `stream` wait for the one that wrote the block last, once, and notes that it reads it. Answers
    /// how many waits that took.
    pub(crate) fn lend<B: Backend>(&self, stream: &B::Stream) -> Result<u64, Error> {
        let Body { extent, stream: writer, readers, .. } = self.body::<B>();
        let mut capture = match extent {
            SourceMemory::Arena(buffer) => buffer.lend(stream)?,
            SourceMemory::Direct(_) | SourceMemory::Driver(..) => None,
        };
        if writer.id() == stream.id() || readers.lock().is_behind(stream.id()) {
            return Ok(0);
        }
        let mut waits = 0;
        if let SourceMemory::Direct(_) | SourceMemory::Driver(..) = extent {
            let device = &self.pool.supply::<B>().device;
            (waits, capture) = self.need().order(device, [writer].into_iter(), stream, After::Contents)?;
        }
        self.read_by::<B>(stream, true, capture);
        Ok(waits)
    }

    /// Notes that `stream`, which is not captured, uses it, and makes it wait for nothing.
    pub(crate) fn record_stream<B: Backend>(&self, stream: &B::Stream) -> Result<(), Error> {
        let body = self.body::<B>();
        if let SourceMemory::Arena(buffer) = &body.extent {
            // It may be another stream's own there: of who moved it, say.
            buffer.note_stream(stream)?;
        }
        if body.stream.id() != stream.id() {
            self.read_by::<B>(stream, false, None);
        }
        Ok(())
    }

    fn read_by<B: Backend>(&self, stream: &B::Stream, is_behind: bool, capture: Option<CaptureId>) {
        self.body::<B>().readers.lock().add(stream, is_behind, capture);
        // Relaxed: read by who has the block to himself, which whoever passed it on made sure of.
        self.ready_on.store(0, Ordering::Relaxed);
    }

    /// For an idle block that is requested on `stream`: refuses it if that is captured and others used the
    /// block outside of that capture, of whom it is not known whether they are done.
    ///
    /// # Errors
    /// [`Error::Capture`]; what the device reports.
    pub(crate) fn check_claim<B: Backend>(&self, stream: &B::Stream) -> Result<(), Error> {
        let Some(capture) = self.pool.supply::<B>().device.capture_of(stream)? else { return Ok(()) };
        let Body { stream: writer, readers, .. } = self.body::<B>();
        let is_known = writer.id() == stream.id() && readers.lock().are_all_in(capture);
        if is_known { Ok(()) } else { Err(self.need().refused(Forbidden::Wait)) }
    }

    /// Makes `stream` wait for every stream that used the block, and hands the block to it. When a step fails
    /// the block still belongs to all of them. Returns the number of waits.
    pub(crate) fn hand_over<B: Backend>(&mut self, stream: &B::Stream, after: After) -> Result<u64, Error> {
        if self.is_ready_on(stream.id()) {
            return Ok(0);
        }
        let (pool, need) = (Arc::clone(&self.pool), self.need());
        let body = self.body_mut::<B>();
        let (waits, capture) = match &body.extent {
            // It knows more: who moved it, say. It counts its waits, too.
            SourceMemory::Arena(buffer) => (0, buffer.hand_over(stream, after)?),
            SourceMemory::Direct(_) | SourceMemory::Driver(..) => {
                let Supply { device, .. } = pool.supply::<B>();
                let users = std::iter::once(&body.stream).chain(body.readers.get_mut().iter());
                need.order(device, users, stream, after)?
            }
        };
        let before = mem::replace(&mut body.stream, stream.clone());
        self.stream = stream.id();
        if capture.is_some() {
            // Ordered in a graph alone: whoever else gets it waits for all of them.
            let readers = self.body_mut::<B>().readers.get_mut();
            readers.remove(stream.id());
            if before.id() != stream.id() {
                readers.add(&before, false, None);
            }
            *self.ready_on.get_mut() = 0;
            return Ok(waits);
        }
        self.body_mut::<B>().readers.get_mut().clear();
        *self.ready_on.get_mut() = stream.id().get();
        Ok(waits)
    }
}

impl<B: Backend> Content for Body<B> {
    fn empty(&mut self) -> bool {
        match &mut self.extent {
            // Handles of readers are not for the pool's lock to drop.
            SourceMemory::Arena(buffer) => self.readers.get_mut().is_empty() && buffer.empty(),
            SourceMemory::Direct(_) | SourceMemory::Driver(..) => false,
        }
    }

    fn empty_shared(&mut self) -> Option<Errand> {
        let SourceMemory::Arena(buffer) = &mut self.extent else { return None };
        let errand = buffer.empty_shared()?;
        let readers = mem::take(self.readers.get_mut());
        Some(Box::new(move || {
            errand();
            drop(readers);
        }))
    }

    fn address(&self) -> Option<(u64, bool)> {
        self.extent.address()
    }

    fn parts(&self) -> Vec<Range<u64>> {
        self.extent.parts()
    }

    fn ticket(&mut self) -> &mut Option<Ticket> {
        &mut self.ticket
    }
}

/// Which list of a magazine takes blocks of `key`, if that is for their class alone.
#[cfg(feature = "trace")]
pub(crate) fn list_of(pool: &PoolCore, key: Key) -> u8 {
    let is_kept = pool.class_table.are_unshared() && pool.has_magazine_for(key);
    if is_kept { class_table::number(key.class) } else { NO_LIST }
}

/// The same, where the quick way back, which sees no block, may know.
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
