//! An allocated buffer of a pool.

use crate::error::Error;
use crate::heap::stats::DeviceCall;
use crate::heap::{Block, PoolCore};
use crate::streams::WaitFor;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use vrampool_backend::{Backend, HeldMemory, Memory, MemoryKind, Region, RegionMut, Stream, StreamId, fork};

/// Device memory allocated from a [`Pool`](crate::Pool). Dropping it releases the memory to the pool, which it
/// may outlive.
///
/// Its memory is accessed through a stream ([`on`](Self::on), [`on_mut`](Self::on_mut)), so the pool inserts the waits:
/// readers wait for the last writer, a writer and the next borrower wait for all users. A region made for one stream is
/// refused on another. A program that uses [`memory`](Self::memory) or an address instead calls
/// [`used_on`](Self::used_on), or [`record_stream`](Self::record_stream) where it orders the work itself.
///
/// Its contents are not defined at first: a recycled buffer holds what its last borrower left
/// ([`Pool::allocate_zeroed`](crate::Pool::allocate_zeroed) clears it).
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # let device = HostDevice::new();
/// # let pool = Pool::builder(&device).build()?;
/// let (compute, copy) = (device.create_stream()?, device.create_stream()?);
/// let mut buffer = pool.allocate(4, &compute)?;
/// buffer.write(&[1, 2, 3, 4], &compute)?;
/// let mut bytes = [0; 4];
/// buffer.read(&mut bytes, &copy)?; // another stream waits for the one that wrote
/// assert_eq!(bytes, [1, 2, 3, 4]);
/// # Ok::<(), vrampool::Error>(())
/// ```
pub struct Buffer<B: Backend> {
    /// `None` only while dropping, and so nothing to be dropped then.
    pub(crate) block: ManuallyDrop<Option<Box<Block>>>,
    backend: PhantomData<B>,
}

impl<B: Backend> Buffer<B> {
    #[inline]
    pub(crate) fn new(mut block: Box<Block>) -> Self {
        block.begin_use();
        Self { block: ManuallyDrop::new(Some(block)), backend: PhantomData }
    }

    pub(crate) fn block(&self) -> &Block {
        match &*self.block {
            Some(block) => block,
            None => unreachable!("a buffer has its block until it is dropped"),
        }
    }

    pub(crate) fn block_mut(&mut self) -> &mut Block {
        match &mut *self.block {
            Some(block) => block,
            None => unreachable!("a buffer has its block until it is dropped"),
        }
    }

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &B {
        &self.block().pool.supply::<B>().device
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
    pub fn capacity(&self) -> u64 {
        self.block().key.class
    }

    /// Its placement and usage.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.block().key.kind
    }

    /// The [name](crate::Pool::name) of its pool.
    #[must_use]
    pub fn pool_name(&self) -> &str {
        &self.block().pool.name
    }

    /// The stream it was allocated for, or that wrote it last.
    #[must_use]
    pub fn stream(&self) -> &B::Stream {
        self.block().stream::<B>()
    }

    /// The id of its [stream](Self::stream): the same at less cost.
    #[must_use]
    #[inline]
    pub fn stream_id(&self) -> StreamId {
        self.block().last_use.writer()
    }

    /// Its bytes for reading on `stream`, behind the work of the stream that wrote them last: another stream waits
    /// for that on the device, once. The pool makes the next writer, and the next borrower, wait for all readers.
    ///
    /// The buffer stays alive, and where it is, as long as the region exists:
    ///
    /// ```compile_fail,E0505
    /// # use vrampool::{Backend, Buffer, Error};
    /// # fn example<B: Backend>(buffer: Buffer<B>, stream: &B::Stream) -> Result<(), Error> {
    /// let region = buffer.on(stream)?;
    /// drop(buffer);
    /// # drop(region);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; [`Error::Backend`] when the device refuses the event or the wait; [`Error::Capture`]
    /// when that would be between a stream that is captured into a graph and one that is not.
    pub fn on(&self, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        self.use_on(stream)?;
        self.block().extent::<B>().region(self.len(), stream)
    }

    /// Its bytes for reading and writing on `stream`, behind the work of all streams that used them; else as
    /// [`on`](Self::on). No other region of the buffer exists meanwhile:
    ///
    /// ```compile_fail,E0502
    /// # use vrampool::{Backend, Buffer, Error};
    /// # fn example<B: Backend>(mut buffer: Buffer<B>, stream: &B::Stream) -> Result<(), Error> {
    /// let read = buffer.on(stream)?;
    /// let written = buffer.on_mut(stream)?;
    /// # drop((read, written));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn on_mut(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.region_mut(self.len(), stream)
    }

    /// Says that work on `stream` reads the buffer, for work that got its address in another way; else as
    /// [`on`](Self::on). Work that writes in such a way needs [`on_mut`](Self::on_mut). Call it before the
    /// work is submitted: what was enqueued on `stream` so far is [submitted](Backend::flush) then, so that
    /// the program's own work comes after it.
    ///
    /// # Errors
    /// As [`on`](Self::on); what the device reports of work that was enqueued.
    pub fn used_on(&self, stream: &B::Stream) -> Result<(), Error> {
        self.use_on(stream)?;
        self.noting(DeviceCall::Order, self.device().flush(stream))
    }

    fn use_on(&self, stream: &B::Stream) -> Result<(), Error> {
        let block = self.block();
        block.pool.check_device(stream)?;
        block.pool.count_waits(self.noting(DeviceCall::Order, block.use_on::<B>(stream))?);
        Ok(())
    }

    /// Counts an error of the device.
    #[inline]
    fn noting<T>(&self, call: DeviceCall, outcome: Result<T, impl Into<Error>>) -> Result<T, Error> {
        outcome.map_err(Into::into).inspect_err(|error| self.block().pool.note_device_error(call, error))
    }

    /// Says that work on `stream` uses the buffer, in an order that the program itself sees to: neither host
    /// nor device waits now, and the next borrower, or a write of the buffer through a region, waits for the
    /// work so far on that stream too. As `record_stream` of PyTorch's tensors. On a stream that is captured
    /// into a graph it is [`used_on`](Self::used_on).
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let pool = Pool::builder(&device).build()?;
    /// let (copy, compute) = (device.create_stream()?, device.create_stream()?);
    /// let batch = pool.allocate(4096, &copy)?;
    /// device.wait(&compute, &device.record(&copy)?)?; // the program's own order
    /// batch.record_stream(&compute)?;
    /// drop(batch); // the next user of the memory waits for both
    /// assert_eq!(pool.stats().stream_waits, 0);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::WrongDevice`], [`Error::Asleep`]; on a stream that is captured as [`used_on`](Self::used_on).
    pub fn record_stream(&self, stream: &B::Stream) -> Result<(), Error> {
        let block = self.block();
        block.pool.check_device(stream)?;
        // The work of a graph runs at each launch, and launches are not reported to the pool.
        match self.noting(DeviceCall::Order, self.device().is_capturing(stream))? {
            true => self.used_on(stream),
            false => {
                self.noting(DeviceCall::Order, block.record_stream::<B>(stream))?;
                self.noting(DeviceCall::Order, self.device().flush(stream))
            }
        }
    }

    /// Orders later work on `stream` behind all work that used the buffer so far, as the pool does for the next
    /// borrower: the contents are not kept, so failed earlier work is over and is no error.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn reuse_on(&mut self, stream: &B::Stream) -> Result<(), Error> {
        self.hand_over(stream, WaitFor::Reuse).map(drop)
    }

    /// Copies `bytes` from the host to the buffer's start, in order on `stream`. `bytes` may be reused at once.
    ///
    /// # Errors
    /// [`Error::Backend`] when there are more bytes than the buffer has or the device fails; else as
    /// [`on`](Self::on).
    pub fn write(&mut self, bytes: &[u8], stream: &B::Stream) -> Result<(), Error> {
        self.write_at(bytes, 0, stream)
    }

    /// As [`write`](Self::write), from the byte `offset` of the buffer on: of some devices a multiple of a
    /// [granularity](vrampool_backend::Properties::copy_granularity).
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn write_at(&mut self, bytes: &[u8], offset: u64, stream: &B::Stream) -> Result<(), Error> {
        let device = self.device().clone();
        let end = offset.saturating_add(bytes.len() as u64);
        let region = self.on_mut(stream)?.slice(offset..end)?;
        let written = device.upload(stream, bytes, region);
        self.noting(DeviceCall::Copy, written)
    }

    /// Sets every byte to `value`, in order on `stream`.
    ///
    /// # Errors
    /// [`Error::Backend`] when the device fails; else as [`on`](Self::on).
    pub fn fill(&mut self, value: u8, stream: &B::Stream) -> Result<(), Error> {
        let device = self.device().clone();
        let filled = device.fill(stream, self.on_mut(stream)?, value);
        self.noting(DeviceCall::Copy, filled)
    }

    /// Copies all bytes of `source` to the buffer's start, on the device and in order on `stream`. Both may be
    /// of different pools of the same device.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// # let pool = Pool::new(&device)?;
    /// let source = pool.upload(&[1.0f32, 2.0], &stream)?;
    /// let mut copy = pool.allocate(source.len(), &stream)?;
    /// copy.copy_from(&source, &stream)?;
    /// assert_eq!(copy.read_vec::<f32>(&stream)?, [1.0, 2.0]);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Backend`] when `source` is longer or the device fails (wgpu cannot copy within one range of an arena);
    /// else as [`on`](Self::on).
    pub fn copy_from(&mut self, source: &Self, stream: &B::Stream) -> Result<(), Error> {
        let device = self.device().clone();
        let from = source.on(stream)?;
        let to = self.on_mut(stream)?;
        // Of equal lengths, what lies behind the last byte may be copied along.
        let to = if to.len() == from.len() { to } else { to.slice(..from.len())? };
        let copied = device.copy(stream, from, to);
        self.noting(DeviceCall::Copy, copied)
    }

    /// Copies the buffer's start to `bytes` on the host, in order on `stream`, and blocks until they are there.
    ///
    /// # Errors
    /// As [`write`](Self::write), and failures of earlier work on the stream.
    pub fn read(&self, bytes: &mut [u8], stream: &B::Stream) -> Result<(), Error> {
        let region = self.on(stream)?.slice(..bytes.len() as u64)?;
        self.noting(DeviceCall::Copy, self.device().download(stream, region, bytes))
    }

    /// The memory that contains the buffer; its range is that of a [region](Self::on). Work that reaches it in this way
    /// is not known to the pool: call [`used_on`](Self::used_on). A block of an arena is not moved while the
    /// result exists, and no region made of the memory outlives that:
    ///
    /// ```compile_fail,E0716
    /// # use vrampool::{Backend, Buffer, Error, RegionMut};
    /// # fn example<B: Backend>(buffer: &Buffer<B>, stream: &B::Stream) -> Result<(), Error> {
    /// let offset = buffer.on(stream)?.offset();
    /// let region = RegionMut::new(&*buffer.memory(), offset, buffer.len(), stream)?;
    /// # drop(region);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn memory(&self) -> HeldMemory<'_, B::Memory> {
        self.block().extent::<B>().memory()
    }

    /// Where it is on the device at this moment; `None` where the device has no addresses. It stays there,
    /// but with [`Source::Arena`](crate::Source::Arena), whose blocks [`Pool::compact`](crate::Pool::compact)
    /// moves. For other languages and libraries; else as [`memory`](Self::memory).
    #[inline]
    #[must_use]
    pub fn address(&self) -> Option<u64> {
        self.block().address()
    }

    /// All bytes of its class, for writing: what rounding added belongs to the borrower too.
    pub(crate) fn whole_class(&mut self, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.region_mut(self.capacity(), stream)
    }

    fn region_mut(&mut self, len: u64, stream: &B::Stream) -> Result<RegionMut<'_, B::Memory>, Error> {
        self.hand_over(stream, WaitFor::Data)?.extent_mut::<B>().region_mut(len, stream)
    }

    /// Hands its block over to a stream. Counts the waits, or an error of the device.
    fn hand_over(&mut self, stream: &B::Stream, until: WaitFor) -> Result<&mut Block, Error> {
        let block = self.block_mut();
        block.pool.check_device(stream)?;
        let waits = block.hand_over::<B>(stream, until);
        let waits = waits.inspect_err(|error| block.pool.note_device_error(DeviceCall::Order, error))?;
        block.pool.count_waits(waits);
        Ok(block)
    }
}

impl<B: Backend> Drop for Buffer<B> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            if fork::is_forked() {
                return mem::forget(block);
            }
            PoolCore::release(block);
        }
    }
}

impl<B: Backend> fmt::Debug for Buffer<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len())
            .field("capacity", &self.capacity())
            .field("kind", &self.kind())
            .field("stream", &self.stream().id())
            .field("address", &self.block().extent::<B>().range().address())
            .finish()
    }
}
