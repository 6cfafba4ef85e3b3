//! Memory for work that is captured into a graph: kept for as long as the graph may run.

use crate::error::{Error, Forbidden};
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::streams::order::Need;
use parking_lot::Mutex;
use std::fmt;
use vrampool_backend::fork::ForkArc;
use vrampool_backend::{Backend, Region, RegionMut, fork};

/// The memory of one graph. Buffers from here go from hand to hand within the graph, and to nobody else until
/// this is dropped: a graph uses the same addresses again each time it is launched.
///
/// While its stream is captured, a driver forbids to allocate, to wait for other streams' work, and to block.
/// So run the step once before, with buffers from here: what it takes then is here during the capture. What
/// is not is [`Error::Capture`], and the capture goes on.
///
/// What the warm-up queued on the stream is ordered before the graph only where the graph is launched on that
/// stream. So launch it there, or call [`used_on`](Self::used_on) with the stream of the launch before it.
///
/// ```no_run
/// # use vrampool::{Backend, Error, GraphMemory, Pool};
/// # fn example<B: Backend>(pool: &Pool<B>, stream: &B::Stream) -> Result<(), Error> {
/// let memory = GraphMemory::new(pool, stream);
/// let step = || -> Result<(), Error> {
///     let mut activations = memory.allocate(1 << 20)?;
///     pool.device().fill(stream, activations.on_mut(stream)?, 0)?;
///     Ok(())
/// };
/// step()?; // the warm-up takes from the pool
/// // begin the capture of `stream`
/// step()?; // the same memory again, and no call that is forbidden
/// // end the capture; launch the graph; drop the graph, and then `memory`
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GraphMemory<B: Backend> {
    pool: Pool<B>,
    stream: B::Stream,
    kept: ForkArc<Kept<B>>,
}

/// A buffer of a [`GraphMemory`]. Dropping it releases the memory there, and to the pool once the graph's memory
/// is dropped.
///
/// ```
/// # use vrampool::{Backend, GraphMemory, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// # let pool = Pool::new(&device)?;
/// let memory = GraphMemory::new(&pool, &stream);
/// let mut step = memory.allocate(4)?;
/// step.write(&[1, 2, 3, 4], &stream)?;
/// let mut bytes = [0; 4];
/// step.read(&mut bytes, &stream)?;
/// assert_eq!(bytes, [1, 2, 3, 4]);
/// drop(step);
/// assert_eq!((memory.idle_bytes(), pool.stats().idle_bytes), (1024, 0)); // kept for the graph
/// # Ok(())
/// # }
/// ```
pub struct GraphBuffer<B: Backend> {
    /// As long as its class. `None` only while dropping.
    buffer: Option<Buffer<B>>,
    len: u64,
    kept: ForkArc<Kept<B>>,
}

/// Memory that no buffer uses; `None` after the graph is dropped.
#[derive(Debug)]
struct Kept<B: Backend>(Mutex<Option<Vec<Buffer<B>>>>);

impl<B: Backend> GraphMemory<B> {
    /// No memory yet, for a graph that will be captured from `stream`.
    #[must_use]
    pub fn new(pool: &Pool<B>, stream: &B::Stream) -> Self {
        let kept = ForkArc::new(Kept(Mutex::new(Some(Vec::new()))));
        Self { pool: pool.clone(), stream: stream.clone(), kept }
    }

    /// A buffer of `bytes` bytes: the one of their class that came back last, or, while the stream is not
    /// captured, one from the pool.
    ///
    /// # Errors
    /// [`Error::Capture`] when the stream is captured and nothing of the class is idle here; else as
    /// [`Pool::allocate`].
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<GraphBuffer<B>, Error> {
        fork::check()?;
        let class = self.pool.class_of(bytes).unwrap_or(u64::MAX);
        let idle = self.kept.0.lock().as_mut().and_then(|kept| {
            let newest = kept.iter().rposition(|buffer| buffer.len() == class)?;
            Some(kept.remove(newest))
        });
        let buffer = match idle {
            Some(buffer) => buffer,
            None if self.pool.device().is_capturing(&self.stream)? => {
                return Err(Need { requested: bytes, class }.refused(Forbidden::Allocation));
            }
            None => self.pool.allocate(class, &self.stream)?,
        };
        Ok(GraphBuffer { buffer: Some(buffer), len: bytes, kept: self.kept.clone() })
    }

    /// Bytes that nobody has in hand, rounded to classes.
    #[must_use]
    pub fn idle_bytes(&self) -> u64 {
        if fork::is_child() { 0 } else { self.kept.0.lock().iter().flatten().map(Buffer::len).sum() }
    }

    /// Says, before it is, that the graph is launched on another stream than it was captured from: that one
    /// waits for the work so far, and whoever gets the memory after the graph waits for it.
    ///
    /// # Errors
    /// As [`Buffer::used_on`].
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        self.kept.0.lock().iter().flatten().try_for_each(|buffer| buffer.used_on(stream))
    }
}

impl<B: Backend> Drop for GraphMemory<B> {
    fn drop(&mut self) {
        if fork::is_child() {
            return;
        }
        // Out of the lock before the pool is called.
        let buffers = self.kept.0.lock().take();
        drop(buffers);
    }
}

impl<B: Backend> GraphBuffer<B> {
    fn buffer(&self) -> &Buffer<B> {
        match &self.buffer {
            Some(buffer) => buffer,
            None => unreachable!("it has its buffer until it is dropped"),
        }
    }

    /// Bytes that were asked for.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether no bytes were asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bytes of its size class: the requested bytes, rounded up.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.buffer().capacity()
    }

    /// Its bytes for reading on `stream`, as [`Buffer::on`].
    ///
    /// # Errors
    /// As [`Buffer::on`].
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        Ok(self.buffer().on(stream)?.slice(..self.len)?)
    }

    /// Its bytes for reading and writing on `stream`, as [`Buffer::on_mut`].
    ///
    /// # Errors
    /// As [`Buffer::on`].
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        let len = self.len;
        match &mut self.buffer {
            Some(buffer) => Ok(buffer.on_mut(stream)?.slice(..len)?),
            None => unreachable!("it has its buffer until it is dropped"),
        }
    }

    /// Copies `bytes` from the host to the buffer's start, in order on `stream`. `bytes` may be reused
    /// at once.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub fn write(&mut self, bytes: &[u8], stream: &B::Stream) -> Result<(), Error> {
        let device = self.buffer().device().clone();
        let region = self.on_mut(stream)?.slice(..bytes.len() as u64)?;
        Ok(device.upload(stream, bytes, region)?)
    }

    /// Copies the buffer's start to `bytes` on the host, in order on `stream`, and blocks until they are
    /// there.
    ///
    /// # Errors
    /// As [`Buffer::read`].
    pub fn read(&self, bytes: &mut [u8], stream: &B::Stream) -> Result<(), Error> {
        let region = self.on(stream)?.slice(..bytes.len() as u64)?;
        Ok(self.buffer().device().download(stream, region, bytes)?)
    }

    /// Returns the address on the device, as [`Buffer::address`]: the one that a captured graph uses.
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        self.buffer().address()
    }
}

impl<B: Backend> Drop for GraphBuffer<B> {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        if fork::is_child() {
            return;
        }
        let mut kept = self.kept.0.lock();
        if let Some(kept) = &mut *kept {
            kept.push(buffer);
            return;
        }
        // Out of the lock before the pool is called.
        drop(kept);
        drop(buffer);
    }
}

impl<B: Backend> fmt::Debug for GraphBuffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GraphBuffer").field("len", &self.len).field("buffer", self.buffer()).finish()
    }
}
