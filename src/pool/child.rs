//! A pool within a pool, which keeps freed memory for its own requests.

use crate::error::{Error, Forbidden};
use crate::heap::child_blocks::{ChildReservation, Room};
use crate::heap::core::ChildBlocks;
use crate::heap::queue_position::{ForChild, Position};
use crate::heap::stats::outcomes::Reason;
use crate::heap::stats::times;
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::streams::order::Need;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, Stream, fork};

/// A pool within a [`Pool`], which keeps freed memory for its own requests until it is dropped.
///
/// With a [limit](Self::set_limit) or a share its idle memory beyond the share is released before another request is
/// refused by the pool's limit, unless a graph may use it. [`Pool::close`] releases such memory, too.
///
/// The pool counts the child's memory as live, so the pool's caps include it. A child may also have a
/// [limit](Self::set_limit) and a [share](Self::set_share) of the pool's limit. For a separate pool under the same
/// caps, see [`PoolBuilder::within`](crate::PoolBuilder::within).
///
/// **Graphs.** A graph uses the same addresses at each launch. While a stream is captured, the driver forbids
/// allocations, waits for the work of other streams, and blocking calls. So run the step once before the capture, with
/// buffers of this child, which then keeps their memory for the capture. A request that this memory does not serve
/// fails with [`Error::Capture`], and the capture continues.
///
/// What the warm-up queued on the stream is ordered before the graph only where the graph is launched on that
/// stream. So launch it there, or call [`used_on`](Self::used_on) with the stream of the launch before it.
///
/// ```
/// # use vrampool::{Backend, Error, Pool, host::HostDevice};
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// # let pool = Pool::new(&device)?;
/// let memory = pool.child("decode");
/// let step = || memory.allocate(1000, &stream)?.fill(0, &stream);
/// step()?; // the warm-up takes from the pool
/// // begin the capture of `stream`
/// step()?; // the same memory again, and no call that is forbidden
/// // end the capture; launch the graph; drop the graph, and then `memory`
/// assert_eq!((memory.idle_bytes(), pool.stats().idle_bytes), (1024, 0));
/// drop(memory);
/// assert_eq!(pool.stats().idle_bytes, 1024);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Child<B: Backend> {
    pub(super) pool: Pool<B>,
    tag: Box<str>,
    pub(super) kept: ForkArc<ChildBlocks>,
}

impl<B: Backend> Pool<B> {
    /// Creates a pool within this one. It has no memory yet.
    #[must_use]
    pub fn child(&self, tag: &str) -> Child<B> {
        let kept = ForkArc::new(ChildBlocks::default());
        self.handle.core.children.add(tag, &kept);
        Child { pool: self.clone(), tag: tag.into(), kept }
    }
}

impl<B: Backend> Child<B> {
    /// Allocates a buffer of `bytes` bytes: from the child's idle memory of its class, or, while the stream is not
    /// captured, from the pool. Dropping the buffer returns its memory to the child.
    ///
    /// # Errors
    /// [`Error::Capture`] when the stream is captured and the child has no idle memory of the class;
    /// [`Error::OutOfMemory`] beyond the child's [limit](Self::set_limit); else as [`Pool::allocate`] and
    /// [`Buffer::reuse_on`].
    #[track_caller]
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        fork::check()?;
        let (core, device) = (&self.pool.handle.core, self.pool.device());
        if self.pool.is_closed() {
            core.count_failure(Reason::Closed);
            return Err(Error::Closed);
        }
        let class = core.class_of(bytes).ok_or_else(|| core.too_large(bytes))?;
        let need = Need { requested: bytes, class };
        let may_be_captured = !self.kept.asks_for_captures() || device.is_capturing(stream)?;
        let mut buffer = match self.kept.take(need, stream.id(), may_be_captured) {
            Some(block) => {
                core.count_hit(block.key);
                Buffer::new(block)
            }
            None => {
                need.check(device, stream, Forbidden::Allocation)?;
                let allow_release = || need.check(device, stream, Forbidden::Release);
                match self.kept.make_room(need, stream.id(), allow_release)? {
                    Room::Idle(block) => {
                        core.count_hit(block.key);
                        Buffer::new(block)
                    }
                    Room::Reserved(reservation) => self.allocate_from_pool(need, stream, reservation)?,
                    Room::Full(figures) => return Err(self.over_limit(need, &figures)),
                }
            }
        };
        buffer.keep_in(&self.kept, class, bytes);
        buffer.reuse_on(stream)?;
        Ok(buffer)
    }

    #[track_caller]
    fn allocate_from_pool(
        &self,
        Need { requested, class }: Need,
        stream: &B::Stream,
        reservation: ChildReservation<'_>,
    ) -> Result<Buffer<B>, Error> {
        let began = times::begin();
        let (core, may_borrow) = (&self.pool.handle.core, reservation.may_borrow);
        let child = ForChild { share: &self.kept.share, class, may_borrow };
        let position = Position::for_child(core, child);
        let served = self.pool.allocate_by_depot(class, core.kind, stream, &position);
        began.into_iter().for_each(|began| core.count_time(began));
        let buffer = served?;
        reservation.commit(buffer.capacity(), requested);
        Ok(buffer)
    }

    /// Its name.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the bytes of live buffers, rounded to classes.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.kept.figures().live_bytes }
    }

    /// Returns the idle bytes, rounded to classes.
    #[must_use]
    pub fn idle_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.kept.figures().idle_bytes }
    }

    /// Orders the launch of a graph on another stream than the captured one; call it before the launch.
    ///
    /// `stream` waits for earlier work on the idle memory. The next user of that memory after the child's drop waits
    /// for the graph.
    ///
    /// # Errors
    /// As [`Buffer::used_on`].
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        let core = &self.pool.handle.core;
        core.check_device(stream)?;
        let mut waits = 0;
        let used = self.kept.use_on::<B>(stream, &mut waits);
        core.count_waits(waits);
        used?;
        Ok(self.pool.device().flush(stream)?)
    }
}

impl<B: Backend> Drop for Child<B> {
    fn drop(&mut self) {
        if !fork::is_child() {
            let core = &self.pool.handle.core;
            core.depot().accounts.end_share(&self.kept.share);
            core.notify_freed();
            self.kept.end();
        }
    }
}
