//! A [block](Block): its memory, class and stream order. The backend's part of it (`backend_part`), and records
//! that are kept for reuse (`recycled_records`).

mod backend_part;
mod recycled_records;

use crate::error::{Error, Forbidden};
use crate::heap::magazine::class_table::{self, NO_BIN};
use crate::heap::store::SourceMemory;
use crate::heap::{BackendState, Block, PoolCore, Refill};
use crate::source::Key;
use crate::streams::{Access, LastUse, Need, Order, Streams, Uses, WaitFor};
use smallvec::SmallVec;
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, mem};
use vrampool_backend::spi::Ticket;
use vrampool_backend::{Backend, CaptureId, Stream, StreamId};

/// The backend's part of a block.
struct BackendPart<B: Backend> {
    extent: SourceMemory<B>,
    /// Only the writer over an arena, which records the users of its blocks itself, among them the stream that
    /// moved one.
    uses: Uses<B::Stream>,
    ticket: Option<Ticket>,
}

impl Block {
    /// Makes a record [without memory](crate::heap::ErasedPart::release_memory) the stream's. It may have the
    /// last handle of another one.
    pub(crate) fn belong_to<B: Backend>(&mut self, stream: &B::Stream) {
        let BackendPart { extent, uses, .. } = self.part_mut::<B>();
        *extent = SourceMemory::Released;
        if uses.writer.id() != stream.id() {
            uses.writer = stream.clone();
        }
    }

    /// Creates a block of the pool, in a record [of the stream](Self::belong_to) if there is one.
    pub(crate) fn new<B: Backend>(
        record: Option<Box<Self>>,
        extent: SourceMemory<B>,
        (key, requested): (Key, u64),
        stream: &B::Stream,
        pool: &Arc<PoolCore>,
    ) -> Box<Self> {
        if let Some(mut block) = record {
            block.part_mut::<B>().extent = extent;
            (block.key, block.requested) = (key, requested);
            (block.last_use, block.bin) = (LastUse::new(stream.id()), bin_of(pool, key));
            *block.place.get_mut() = 0;
            return block;
        }
        let part = BackendPart { extent, uses: Uses::new(stream.clone()), ticket: None };
        Box::new(Block {
            next: None,
            key,
            requested,
            last_use: LastUse::new(stream.id()),
            bin: bin_of(pool, key),
            slot: pool.slot,
            pool: Arc::clone(pool),
            place: AtomicU64::new(0),
            excess: 0,
            part: Box::new(part),
        })
    }

    /// Its current address, on devices that have addresses.
    #[inline]
    pub(crate) fn address(&self) -> Option<u64> {
        // Relaxed: every thread that computes the address stores the same number.
        match self.place.load(Ordering::Relaxed) {
            0 => self.find_address(),
            place => Some(place),
        }
    }

    #[cold]
    fn find_address(&self) -> Option<u64> {
        let (address, stays) = self.part.address()?;
        if stays {
            self.place.store(address, Ordering::Relaxed);
        }
        Some(address)
    }

    /// Makes an [emptied](crate::heap::ErasedPart::empty) record a block of the arena again, if that needs only
    /// bookkeeping, for `stream` or, without one, its last writer. Returns its end in the arena, and streams to be
    /// dropped without any lock.
    #[inline(always)]
    fn refill<B: Backend>(
        &mut self,
        backend_state: &mut BackendState,
        (class, requested): (u64, u64),
        stream: Option<&B::Stream>,
    ) -> Option<(u64, [Option<B::Stream>; 2])> {
        let BackendPart { extent, uses: Uses { writer, .. }, .. } = self.part_mut::<B>();
        let SourceMemory::Arena(buffer) = extent else { return None };
        let Refill { end, address, dropped } =
            buffer.refill(backend_state, class, stream.unwrap_or(writer))?;
        let other = stream.filter(|stream| stream.id() != writer.id());
        let other = other.map(|stream| mem::replace(writer, stream.clone()));
        let id = writer.id();
        // The kind of memory is the arena's, unchanged.
        (self.key.class, self.requested) = (class, requested);
        self.last_use.written_on(id);
        *self.place.get_mut() = address;
        self.bin = bin_of(&self.pool, self.key);
        Some((end, [dropped, other]))
    }

    /// Records that it is live: what was known of its last free is over.
    #[inline(always)]
    pub(crate) fn begin_use(&mut self) {
        self.last_use.set_freed(0);
    }

    /// The streams that may use it, the writer last. An arena may have changed them, as by a move.
    pub(crate) fn user_ids(&self, backend_state: &BackendState) -> SmallVec<[StreamId; 2]> {
        self.part.user_ids(backend_state)
    }

    /// A stream whose work is before the end of the block's use: a reader, or the last writer.
    pub(crate) fn last_user(&self, backend_state: &BackendState) -> StreamId {
        self.user_ids(backend_state).first().copied().unwrap_or(self.last_use.writer())
    }

    /// Whether work on `stream` may use the idle block without a wait, because all work on it is complete or,
    /// unless `is_captured`, before `stream`.
    pub(crate) fn is_done(&self, backend_state: &BackendState, stream: StreamId, is_captured: bool) -> bool {
        let (tick, ticks) = (self.last_use.freed(), backend_state.ticks());
        let is_over = |user: StreamId| match is_captured {
            true => ticks.are_done(user, tick),
            false => ticks.cover(user, stream, tick),
        };
        let users = self.user_ids(backend_state);
        // The users of memory of another pool's arena are not known here.
        tick > 0 && !users.is_empty() && users.into_iter().all(is_over)
    }

    /// The streams that may use it, under the depot's lock.
    pub(crate) fn users_in<B: Backend>(&self, backend_state: &BackendState) -> Streams<B::Stream> {
        self.part::<B>().users_in(backend_state)
    }

    /// Hands the block, whose users need not be waited for, to `stream`.
    ///
    /// # Errors
    /// Errors of the device, and [`Error::Capture`] if an arena moved the block and `stream` must wait for the move.
    pub(crate) fn adopt<B: Backend>(&mut self, stream: &B::Stream) -> Result<(), Error> {
        let BackendPart { extent, uses, .. } = self.part_mut::<B>();
        if let SourceMemory::Arena(buffer) = extent {
            buffer.adopt(stream)?;
        }
        uses.written_by(stream, None);
        self.last_use.written_on(stream.id());
        Ok(())
    }

    /// Makes `stream` wait for every user of the idle block, and hands the block to it. A capture refuses a block
    /// that was used outside of it, because that use may still be pending. On failure the block still belongs to
    /// all of them. Returns the waits, except an arena's within a capture, which counts its own.
    pub(crate) fn take_over<B: Backend>(
        &mut self,
        stream: &B::Stream,
        capture: Option<CaptureId>,
    ) -> Result<u64, Error> {
        if let Some(capture) = capture {
            return match self.is_in::<B>(capture, stream.id()) {
                true => self.hand_over::<B>(stream, WaitFor::Reuse),
                false => Err(self.need().refused(Forbidden::Wait)),
            };
        }
        let users = self.part::<B>().users().into_iter().map(|user| (user, self.last_use.freed())).collect();
        let waits = Order::<B>::before(&*self.pool, &users, stream, self.need())?;
        self.adopt::<B>(stream)?;
        Ok(waits)
    }

    /// Records markers on the streams that used the block, which is about to be idle.
    #[cold]
    #[inline(never)]
    pub(crate) fn mark(&mut self) {
        let pool = Arc::clone(&self.pool);
        self.last_use.set_freed(self.part.mark(&pool));
    }

    fn need(&self) -> Need {
        Need { requested: self.requested, class: self.key.class }
    }

    /// Whether work on `stream` may use it without any wait.
    #[inline(always)]
    pub(crate) fn is_ready_on(&self, stream: StreamId) -> bool {
        self.last_use.is_ready_on(stream)
    }

    fn part<B: Backend>(&self) -> &BackendPart<B> {
        match (&*self.part as &dyn Any).downcast_ref() {
            Some(part) => part,
            None => unreachable!("a pool serves requests with its backend's blocks"),
        }
    }

    fn part_mut<B: Backend>(&mut self) -> &mut BackendPart<B> {
        match (&mut *self.part as &mut dyn Any).downcast_mut() {
            Some(part) => part,
            None => unreachable!("a pool serves requests with its backend's blocks"),
        }
    }

    pub(crate) fn stream<B: Backend>(&self) -> &B::Stream {
        &self.part::<B>().uses.writer
    }

    /// Its memory. A stream that reads it must have borrowed or taken the block.
    pub(crate) fn extent<B: Backend>(&self) -> &SourceMemory<B> {
        &self.part::<B>().extent
    }

    /// As [`extent`](Self::extent), for writing on a stream to which the block was handed over.
    pub(crate) fn extent_mut<B: Backend>(&mut self) -> &mut SourceMemory<B> {
        &mut self.part_mut::<B>().extent
    }

    /// Makes `stream` wait, once, for the last writer, and adds it as a reader. Returns the waits, except an
    /// arena's, which counts its own.
    pub(crate) fn use_on<B: Backend>(&self, stream: &B::Stream) -> Result<u64, Error> {
        let BackendPart { extent, uses, .. } = self.part::<B>();
        let mut waits = 0;
        if let SourceMemory::Arena(buffer) = extent {
            buffer.use_on(stream)?;
        } else {
            let users = uses.before(stream, Access::Read);
            if !users.is_empty() {
                let (device, users) =
                    (&self.pool.supply::<B>().device, users.iter().map(|user| (user, None)));
                let (more, capture) = self.need().before(device, users, stream, WaitFor::Data)?;
                uses.read_by(stream, capture);
                waits = more;
            }
        }
        self.last_use.used_on(stream.id());
        Ok(waits)
    }

    /// Records `stream` as a user without inserting a wait.
    pub(crate) fn record_stream<B: Backend>(&self, stream: &B::Stream) -> Result<(), Error> {
        let BackendPart { extent, uses, .. } = self.part::<B>();
        match extent {
            SourceMemory::Arena(buffer) => buffer.note_stream(stream)?,
            _ => uses.recorded_on(stream),
        }
        self.last_use.used_on(stream.id());
        Ok(())
    }

    /// Whether `stream` is the writer, and all other uses are part of the capture.
    fn is_in<B: Backend>(&self, capture: CaptureId, stream: StreamId) -> bool {
        let BackendPart { extent, uses, .. } = self.part::<B>();
        self.last_use.writer() == stream
            && match extent {
                SourceMemory::Arena(buffer) => buffer.are_reads_in(capture),
                _ => uses.are_reads_in(capture),
            }
    }

    /// Makes `stream` wait for every user of the block, and hands the block to it. On failure the block still
    /// belongs to all of them. Returns the waits, except an arena's, which counts its own.
    pub(crate) fn hand_over<B: Backend>(&mut self, stream: &B::Stream, until: WaitFor) -> Result<u64, Error> {
        if self.is_ready_on(stream.id()) {
            return Ok(0);
        }
        let (pool, need) = (Arc::clone(&self.pool), self.need());
        let BackendPart { extent, uses, .. } = self.part_mut::<B>();
        let (waits, capture);
        if let SourceMemory::Arena(buffer) = extent {
            (waits, capture) = (0, buffer.hand_over(stream, until)?);
            uses.written_by(stream, None);
        } else {
            let users = uses.before(stream, Access::Write);
            let users = users.iter().map(|user| (user, None));
            (waits, capture) = need.before(&pool.supply::<B>().device, users, stream, until)?;
            uses.written_by(stream, capture);
        }
        self.last_use.written_on(stream.id());
        if capture.is_some() {
            // The order holds in a graph only, so the next owner waits for all users.
            self.last_use.share();
        }
        Ok(waits)
    }

    /// Records that it serves a request of `class`.
    pub(crate) fn serve(&mut self, class: u64) {
        self.excess = self.key.class - class;
        self.bin = if self.excess > 0 { NO_BIN } else { bin_of(&self.pool, self.key) };
    }
}

/// Returns the magazine bin for blocks of `key`, if the bin is for their class only.
#[inline]
fn bin_of(pool: &PoolCore, key: Key) -> u8 {
    let is_kept = pool.class_table.are_unshared && pool.has_magazine_for(key);
    if is_kept { class_table::number(key.class) } else { NO_BIN }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("key", &self.key)
            .field("requested", &self.requested)
            .field("last_use", &self.last_use)
            .finish_non_exhaustive()
    }
}
