//! A pool within a pool, which keeps freed memory for its own requests until it is dropped.

use crate::error::{Error, Forbidden};
use crate::heap::core::ChildBlocks;
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::streams::order::Need;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, Stream, fork};

/// A pool within a [`Pool`], which keeps freed memory for its own requests until it is dropped.
///
/// The pool counts the child's memory as live, so its caps include the child. For a separate pool under the same caps,
/// see [`PoolBuilder::within`](crate::PoolBuilder::within).
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
    pool: Pool<B>,
    tag: Box<str>,
    kept: ForkArc<ChildBlocks>,
}

impl<B: Backend> Pool<B> {
    /// Creates a pool within this one. It has no memory yet.
    #[must_use]
    pub fn child(&self, tag: &str) -> Child<B> {
        let kept = ForkArc::new(ChildBlocks::default());
        self.handle.children.add(tag, &kept);
        Child { pool: self.clone(), tag: tag.into(), kept }
    }
}

impl<B: Backend> Child<B> {
    /// Allocates a buffer of `bytes` bytes: from the child's idle memory of its class, or, while the stream is not
    /// captured, from the pool. Dropping the buffer returns its memory to the child.
    ///
    /// # Errors
    /// [`Error::Capture`] when the stream is captured and the child has no idle memory of the class; else as
    /// [`Pool::allocate`] and [`Buffer::reuse_on`].
    #[track_caller]
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        fork::check()?;
        let class = self.pool.class_of(bytes).unwrap_or(u64::MAX);
        let mut buffer = match self.kept.take(class, stream.id()) {
            Some(block) => Buffer::new(block),
            None if self.pool.device().is_capturing(stream)? => {
                return Err(Need { requested: bytes, class }.refused(Forbidden::Allocation));
            }
            None => self.pool.allocate(class, stream)?,
        };
        buffer.keep_in(&self.kept, class, bytes);
        buffer.reuse_on(stream)?;
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
        core.count_waits(self.kept.use_on::<B>(stream)?);
        Ok(self.pool.device().flush(stream)?)
    }
}

impl<B: Backend> Drop for Child<B> {
    fn drop(&mut self) {
        if !fork::is_child() {
            self.kept.close();
        }
    }
}
