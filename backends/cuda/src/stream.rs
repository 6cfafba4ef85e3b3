//! Streams: created here, or foreign.

use crate::device::{CudaDevice, DeviceCore};
use crate::driver::{Cover, Queue, QueueName};
use crate::memory::CudaMemory;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, OnceLock, Weak};
use vrampool_backend::{BackendError, DeviceId, Region, Stream, StreamId, fork};

/// An ordered queue of work on a [`CudaDevice`](crate::CudaDevice): a stream made by
/// [`create_stream`](vrampool_backend::Backend::create_stream), or anybody's that was wrapped.
///
/// Wrapping one stream twice gives handles to one stream, with one id. A handle may come back as another
/// stream's; that it is still the same one is told by the number that the driver gives a stream and never uses
/// again. While a stream is captured that number cannot be asked for, and its handle is believed.
#[derive(Debug, Clone)]
pub struct CudaStream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: StreamId,
    /// The driver's number of it, once it was asked for: not while the stream is captured.
    number: OnceLock<u64>,
    queue: Queue,
    /// Where the stream was wrapped by its raw handle first: the value that owns it, once that is known.
    owner: OnceLock<Arc<cudarc::driver::CudaStream>>,
    /// After the stream, whose dropping would make its context current for good, and before the context
    /// itself.
    cover: Cover,
    device: Arc<DeviceCore>,
}

impl Inner {
    /// Whether it is the stream that has its handle now. `number` is that one's, unless it is captured.
    fn is_still(&self, number: Option<u64>) -> bool {
        number.is_none_or(|number| *self.number.get_or_init(|| number) == number)
    }
}

/// The streams of a device that somebody has a handle to.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    streams: Mutex<HashMap<QueueName, Weak<Inner>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if fork::is_child() {
            // The stream is the parent's: it is never dropped here.
            let streams = (Arc::clone(self.queue.cudarc()), self.owner.get().map(Arc::clone));
            return mem::forget((streams, Arc::clone(&self.device)));
        }
        self.cover = Cover::with(self.device.context());
        let mut streams = self.device.streams().streams.lock();
        // Somebody may have wrapped the stream again in between.
        let name = self.queue.name();
        if streams.get(&name).is_some_and(|stream| stream.strong_count() == 0) {
            streams.remove(&name);
        }
    }
}

impl CudaDevice {
    /// Waits for all work of the device's context, on whatever streams, and of other devices that can access
    /// its memory.
    ///
    /// # Errors
    /// What the driver reports, failures of the work included.
    pub fn synchronize_all(&self) -> Result<(), BackendError> {
        let context = self.core().context();
        context.enter()?.synchronize_all()?;
        context.settle_peers()
    }

    /// The context's default stream, the "null" one: ordered with every stream that is not non-blocking.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn null_stream(&self) -> Result<CudaStream, BackendError> {
        fork::check()?;
        CudaStream::of(self.core(), self.context().default_stream())
    }

    /// The calling thread's own default stream. On another thread, what is done with it runs on the null
    /// stream, which is ordered with it: right, but slower.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn per_thread_stream(&self) -> Result<CudaStream, BackendError> {
        fork::check()?;
        CudaStream::of(self.core(), self.context().per_thread_stream())
    }

    /// A stream of the program's own. It lives as long as a handle to it. Where it is the per-thread default
    /// stream, it is the calling thread's.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a stream of another context; else what the driver reports.
    pub fn wrap_stream(&self, stream: Arc<cudarc::driver::CudaStream>) -> Result<CudaStream, BackendError> {
        if fork::is_child() {
            mem::forget(stream);
            return Err(BackendError::Forked);
        }
        if !self.core().context().is_same(stream.context()) {
            return Err(BackendError::invalid("stream", "it is one of another context"));
        }
        CudaStream::of(self.core(), stream)
    }
}

impl CudaStream {
    /// The handle to `stream`, a stream of `device`'s context.
    pub(crate) fn of(
        device: &Arc<DeviceCore>,
        stream: Arc<cudarc::driver::CudaStream>,
    ) -> Result<Self, BackendError> {
        let queue = Queue::new(stream);
        let (name, number) = (queue.name(), device.context().enter()?.number_of(&queue)?);
        // Outlives the lock, which its destructor takes.
        let known;
        let mut streams = device.streams().streams.lock();
        known = streams.get(&name).and_then(Weak::upgrade);
        let same = known.as_ref().filter(|inner| !inner.queue.is_retired() && inner.is_still(number));
        if let Some(inner) = same {
            // Either this one is kept too, or an earlier one is, and one is enough.
            let _ = inner.owner.set(Arc::clone(queue.cudarc()));
            return Ok(Self { inner: Arc::clone(inner) });
        }
        let inner = Arc::new(Inner {
            id: StreamId::next(),
            number: number.map(OnceLock::from).unwrap_or_default(),
            queue,
            owner: OnceLock::new(),
            cover: Cover::default(),
            device: Arc::clone(device),
        });
        streams.insert(name, Arc::downgrade(&inner));
        Ok(Self { inner })
    }

    /// The stream as `cudarc` has it, for launches and libraries. A per-thread default stream is, under this
    /// handle, that of whichever thread uses it.
    #[must_use]
    pub fn cudarc(&self) -> &Arc<cudarc::driver::CudaStream> {
        self.inner.queue.cudarc()
    }

    /// Lets a stream go that other code is about to destroy: waits for its work and never uses its handle
    /// again. Memory that was last used on it is found again without a wait; new work on it is refused as an
    /// invalid argument.
    ///
    /// For streams wrapped [by their raw handle](crate::CudaDevice::wrap_raw_stream). Others are kept alive.
    ///
    /// # Errors
    /// What the driver reports, failures of the stream's work included. The handle is not used again in that
    /// case either.
    pub fn retire(&self) -> Result<(), BackendError> {
        let done = match self.queue().is_retired() {
            true => Ok(()),
            false => {
                self.inner.device.context().enter().and_then(|current| current.synchronize(self.queue()))
            }
        };
        self.queue().retire();
        done
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.inner.queue
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.inner.device
    }

    /// Refuses regions of other streams and devices, and a written one that overlaps the one that is read.
    pub(crate) fn check_regions(
        &self,
        read: Option<&Region<'_, CudaMemory>>,
        written: Option<&Region<'_, CudaMemory>>,
    ) -> Result<(), BackendError> {
        fork::check()?;
        for region in read.into_iter().chain(written) {
            region.check_stream(self)?;
            if !self.inner.device.context().is_same(region.memory().allocation().context().cudarc()) {
                return Err(BackendError::invalid("region", "its memory is another device's"));
            }
        }
        match (read, written) {
            (Some(read), Some(written)) if written.overlaps(read) => {
                Err(BackendError::invalid("region", "a written range overlaps another one of the same call"))
            }
            _ => Ok(()),
        }
    }
}

impl Stream for CudaStream {
    fn id(&self) -> StreamId {
        self.inner.id
    }

    fn device(&self) -> DeviceId {
        self.inner.device.id()
    }

    fn is_retired(&self) -> bool {
        self.queue().is_retired()
    }
}
