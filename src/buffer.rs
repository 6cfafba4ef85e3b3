//! A buffer on loan, and the record of the block behind it.

use crate::depot::Key;
use crate::error::Error;
use crate::request::Shared;
use crate::source::Extent;
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use vrampool_backend::{Backend, Memory, MemoryKind, Region, RegionMut, Stream, StreamId};

/// Memory of the source with all that must be known to hand it out again. It moves, boxed and by value, between buffer
/// and bucket, and knows its pool, so that neither way touches a reference count. An idle block thus keeps its pool's
/// shared state alive; the last pool handle empties the buckets and so cuts the circle.
pub(crate) struct Block<B: Backend> {
    extent: Extent<B>,
    pub(crate) key: Key,
    /// Bytes the present, or last, borrower asked for.
    pub(crate) requested: u64,
    /// The stream that got it or wrote it last, behind all that used it before.
    stream: B::Stream,
    /// Streams that read it since, behind that one.
    others: Mutex<SmallVec<[B::Stream; 1]>>,
    pool: Arc<Shared<B>>,
}

impl<B: Backend> Block<B> {
    pub(crate) fn new(
        extent: Extent<B>,
        key: Key,
        requested: u64,
        stream: &B::Stream,
        pool: &Arc<Shared<B>>,
    ) -> Box<Self> {
        Box::new(Self {
            extent,
            key,
            requested,
            stream: stream.clone(),
            others: Mutex::default(),
            pool: Arc::clone(pool),
        })
    }

    /// The pool it belongs to.
    pub(crate) fn pool(&self) -> &Arc<Shared<B>> {
        &self.pool
    }

    /// The stream that got it or wrote it last.
    pub(crate) fn stream_id(&self) -> StreamId {
        self.stream.id()
    }

    /// Whether work on `stream` may use it without any wait.
    pub(crate) fn is_ready_on(&mut self, stream: StreamId) -> bool {
        self.stream.id() == stream && self.others.get_mut().is_empty()
    }

    /// Makes `stream` wait for every stream that used the block, and hands the block to it. When a step fails the block
    /// still belongs to all of them.
    pub(crate) fn hand_over(&mut self, stream: &B::Stream) -> Result<u64, Error> {
        if self.is_ready_on(stream.id()) {
            return Ok(0);
        }
        let mut waits = 0;
        match &self.extent {
            // It knows more: who moved it, say. It counts its waits, too.
            Extent::Arena(buffer) => buffer.hand_over(stream)?,
            Extent::Direct(_) => {
                for user in std::iter::once(&self.stream).chain(self.others.get_mut().iter()) {
                    if user.id() != stream.id() {
                        self.pool.order(user, stream)?;
                        waits += 1;
                    }
                }
            }
        }
        self.stream = stream.clone();
        self.others.get_mut().clear();
        Ok(waits)
    }
}

impl<B: Backend> fmt::Debug for Block<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("key", &self.key)
            .field("requested", &self.requested)
            .field("stream", &self.stream.id())
            .finish_non_exhaustive()
    }
}

/// Device memory on loan from a [`Pool`](crate::Pool). Dropping it gives it back; it may outlive the pool.
///
/// The way to its memory goes through a stream ([`on`](Self::on), [`on_mut`](Self::on_mut)): so the pool knows who waits
/// for whom, readers for the last writer, a writer and the next borrower for all, and a region made for one stream is
/// refused on another. Who takes [`memory`](Self::memory) or an address instead says so with [`used_on`](Self::used_on).
///
/// Its contents are not defined at first: a recycled buffer holds what its last borrower left
/// ([`Pool::allocate_zeroed`](crate::Pool::allocate_zeroed) clears it).
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let pool = Pool::builder(&device).build()?;
/// let (compute, copy) = (device.create_stream()?, device.create_stream()?);
/// let mut buffer = pool.allocate(4, &compute)?;
/// buffer.write(&compute, &[1, 2, 3, 4])?;
/// let mut bytes = [0; 4];
/// buffer.read(&copy, &mut bytes)?; // another stream waits for the one that wrote
/// assert_eq!(bytes, [1, 2, 3, 4]);
/// # Ok(())
/// # }
/// ```
pub struct Buffer<B: Backend> {
    /// `None` only while dropping.
    block: Option<Box<Block<B>>>,
}

impl<B: Backend> Buffer<B> {
    pub(crate) fn new(block: Box<Block<B>>) -> Self {
        Self { block: Some(block) }
    }

    fn block(&self) -> &Block<B> {
        match &self.block {
            Some(block) => block,
            None => unreachable!("a buffer has its block until it is dropped"),
        }
    }

    /// Bytes that were asked for.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.block().requested
    }

    /// Whether no bytes were asked for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of its size class.
    #[must_use]
    pub fn class(&self) -> u64 {
        self.block().key.class
    }

    /// Its placement and usage.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.block().key.kind
    }

    /// The stream it was allocated for, or that wrote it last.
    #[must_use]
    pub fn stream(&self) -> &B::Stream {
        &self.block().stream
    }

    /// Its bytes for reading on `stream`, behind the work of the stream that wrote them last: another stream waits for that
    /// on the device, once. The pool makes the next writer, and the next borrower, wait for all readers.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; [`Error::Backend`] when the device refuses the event or the wait.
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        self.used_on(stream)?;
        self.block().extent.region(self.len(), stream)
    }

    /// Its bytes for reading and writing on `stream`, behind the work of all streams that used them; else as
    /// [`on`](Self::on).
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.region_mut(self.len(), stream)
    }

    /// Says that work on `stream` reads the buffer, for work that got its address in another way; else as
    /// [`on`](Self::on), which calls it. Work that writes in such a way needs [`on_mut`](Self::on_mut).
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        let block = self.block();
        if let Extent::Arena(buffer) = &block.extent {
            buffer.used_on(stream)?;
        }
        if block.stream.id() == stream.id() {
            return Ok(());
        }
        block.pool.check_device(stream)?;
        let is_reader = |readers: &[B::Stream]| readers.iter().any(|reader| reader.id() == stream.id());
        if is_reader(&block.others.lock()) {
            return Ok(());
        }
        if let Extent::Direct(_) = &block.extent {
            block.pool.order(&block.stream, stream)?;
            block.pool.count_waits(1);
        }
        let mut others = block.others.lock();
        if !is_reader(&others) {
            others.push(stream.clone());
        }
        Ok(())
    }

    /// Copies `bytes` from the host to the buffer's start, in order on `stream`. `bytes` may be reused at once.
    ///
    /// # Errors
    /// [`Error::Backend`] when there are more bytes than the buffer has or the device fails; else as [`on`](Self::on).
    pub fn write(&mut self, stream: &B::Stream, bytes: &[u8]) -> Result<(), Error> {
        let device = self.block().pool.device.clone();
        let region = self.on_mut(stream)?.slice(..bytes.len() as u64)?;
        Ok(device.upload(stream, bytes, region)?)
    }

    /// Copies the buffer's start to `bytes` on the host, in order on `stream`, and blocks until they are there.
    ///
    /// # Errors
    /// As [`write`](Self::write), and failures of earlier work on the stream.
    pub fn read(&self, stream: &B::Stream, bytes: &mut [u8]) -> Result<(), Error> {
        let region = self.on(stream)?.slice(..bytes.len() as u64)?;
        Ok(self.block().pool.device.download(stream, region, bytes)?)
    }

    /// The memory it is a range of; which range, a [region](Self::on) tells. Work that reaches it in this way is not known
    /// to the pool: say [`used_on`](Self::used_on).
    #[must_use]
    pub fn memory(&self) -> &B::Memory {
        self.block().extent.memory()
    }

    /// All bytes of its class, for writing: what rounding added belongs to the borrower too.
    pub(crate) fn whole_class(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.region_mut(self.class(), stream)
    }

    fn region_mut(&mut self, len: u64, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        match &mut self.block {
            Some(block) => {
                block.pool.check_device(stream)?;
                let waits = block.hand_over(stream)?;
                if waits > 0 {
                    block.pool.count_waits(waits);
                }
                block.extent.region_mut(len, stream)
            }
            None => unreachable!("a buffer has its block until it is dropped"),
        }
    }
}

impl<B: Backend> Drop for Buffer<B> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            Shared::release(block);
        }
    }
}

impl<B: Backend> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("class", &self.class())
            .field("kind", &self.kind())
            .field("stream", &self.stream().id())
            .field("address", &self.memory().address())
            .finish()
    }
}
