//! A pool within a pool, whose memory is for nobody else until it is dropped.

use crate::cache::core::Kept;
use crate::error::{Error, Forbidden};
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::streams::order::Need;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, Stream, fork};

/// Memory of a pool that goes from hand to hand within this child, and to nobody else until it is dropped: as for a
/// graph, which uses the same addresses each time it is launched. It counts as live in the pool, whose caps hold for
/// both together. For a pool of its own under the same caps, see [`PoolBuilder::within`](crate::PoolBuilder::within).
///
/// **Graphs.** While its stream is captured, a driver forbids to allocate, to wait for other streams' work, and to
/// block. So run the step once before, with buffers from here: what it takes then is here during the capture. What
/// is not is [`Error::Capture`], and the capture goes on.
///
/// What the warm-up queued on the stream is ordered before the graph only where the graph is launched on that
/// stream. So launch it there, or call [`used_on`](Self::used_on) with the stream of the launch before it.
///
/// ```
/// # use vrampool::{Backend, Error, Pool, host::HostDevice};
/// # fn main() -> Result<(), Error> {
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
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Child<B: Backend> {
    pool: Pool<B>,
    tag: Box<str>,
    kept: ForkArc<Kept>,
}

impl<B: Backend> Pool<B> {
    /// A pool within this one, without memory yet.
    #[must_use]
    pub fn child(&self, tag: &str) -> Child<B> {
        Child { pool: self.clone(), tag: tag.into(), kept: ForkArc::new(Kept::default()) }
    }
}

impl<B: Backend> Child<B> {
    /// A buffer of `bytes` bytes: one of its class that is idle here, or, while the stream is not captured, one from
    /// the pool. Dropping it keeps its memory here.
    ///
    /// # Errors
    /// [`Error::Capture`] when the stream is captured and nothing of the class is idle here; else as
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
        buffer.keep_in(&self.kept, bytes);
        buffer.reuse_on(stream)?;
        Ok(buffer)
    }

    /// Its name.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Bytes that are in use, rounded to classes.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.kept.figures().0 }
    }

    /// Bytes that nobody uses, rounded to classes.
    #[must_use]
    pub fn idle_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.kept.figures().1 }
    }

    /// Says, before it is, that a graph is launched on another stream than it was captured from: that one waits for
    /// the work so far on the idle memory, and whoever gets it after this child is dropped waits for the graph.
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
