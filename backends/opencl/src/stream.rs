//! Streams: created here, or foreign queues.

use crate::driver::{Handle, Queue, RawEvent};
use crate::memory::OpenClMemory;
use crate::shared::DeviceCore;
use opencl_sys::cl_command_queue;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use vrampool_backend::{BackendError, DeviceId, Region, Stream, StreamId, fork};

/// In what order a queue runs what is enqueued on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum QueueOrder {
    /// In the order in which it was enqueued.
    #[default]
    InOrder,
    /// In any order that its barriers and events leave (`CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE`). What this
    /// crate enqueues has a barrier on either side, so that it comes after all work before it and before all
    /// work after it.
    OutOfOrder,
}

/// An ordered queue of work on an [`OpenClDevice`](crate::OpenClDevice): a queue made by
/// [`create_stream`](vrampool_backend::Backend::create_stream), or anybody's that was wrapped.
///
/// Wrapping one queue twice gives handles to one stream, with one id. The queue is kept alive by the stream.
#[derive(Debug, Clone)]
pub struct OpenClStream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    id: StreamId,
    queue: Queue,
    end: Arc<End>,
    device: Arc<DeviceCore>,
}

/// The end of a stream's work, marked when the last handle is dropped.
#[derive(Debug, Default)]
pub(crate) struct End(OnceLock<Result<RawEvent, BackendError>>);

/// A stream on which memory was used: its work so far, and nothing that keeps the queue.
#[derive(Debug)]
pub(crate) struct User {
    id: StreamId,
    stream: Weak<Inner>,
    end: Arc<End>,
}

/// The end of work that uses memory.
#[derive(Debug)]
pub(crate) enum StreamPoint {
    /// Of a stream that is there.
    Now(RawEvent),
    /// Of one that is gone.
    Last(Arc<End>),
}

/// The streams of a device that somebody has a handle to, by the queue's handle, which is nobody else's while
/// it lives.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    streams: Mutex<HashMap<Handle, Weak<Inner>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        if fork::is_child() {
            // The device is the parent's: it is never dropped here.
            return std::mem::forget(Arc::clone(&self.device));
        }
        // Only memory that knows the stream asks for it, and nobody comes to know it from here on.
        if Arc::strong_count(&self.end) > 1 {
            let _ = self.end.0.set(self.device.context().record(&self.queue));
        }
        let mut streams = self.device.streams().streams.lock();
        // Somebody may have wrapped the queue again in between.
        if streams.get(&self.queue.handle()).is_some_and(|stream| stream.strong_count() == 0) {
            streams.remove(&self.queue.handle());
        }
    }
}

impl OpenClStream {
    /// The handle to `queue`, a queue of `device`.
    pub(crate) fn of(device: &Arc<DeviceCore>, queue: Queue) -> Self {
        // Outlives the lock, which its destructor takes.
        let known;
        let mut streams = device.streams().streams.lock();
        known = streams.get(&queue.handle()).and_then(Weak::upgrade);
        if let Some(inner) = known {
            return Self { inner };
        }
        let handle = queue.handle();
        let (end, device_of) = (Arc::default(), Arc::clone(device));
        let inner = Arc::new(Inner { id: StreamId::next(), queue, end, device: device_of });
        streams.insert(handle, Arc::downgrade(&inner));
        Self { inner }
    }

    /// The queue, for kernels and libraries. It is good for as long as this stream, a clone of it, or a count
    /// of the caller's own (`clRetainCommandQueue`) is there.
    ///
    /// On an in-order queue, what is enqueued is ordered with the stream's work like its own. On an
    /// out-of-order queue it comes after the stream's work before it and before the stream's work after it;
    /// what the program enqueues between the two has no order of its own.
    #[must_use]
    pub fn queue(&self) -> cl_command_queue {
        self.inner.queue.handle().raw()
    }

    /// In what order the queue runs what is enqueued on it.
    #[must_use]
    pub fn order(&self) -> QueueOrder {
        self.inner.queue.order()
    }

    pub(crate) fn as_user(&self) -> User {
        let Inner { id, ref end, .. } = *self.inner;
        User { id, stream: Arc::downgrade(&self.inner), end: Arc::clone(end) }
    }

    pub(crate) fn raw(&self) -> &Queue {
        &self.inner.queue
    }

    pub(crate) fn core(&self) -> &Arc<DeviceCore> {
        &self.inner.device
    }

    /// Refuses regions of other streams and devices, and a written one that overlaps the one that is read.
    pub(crate) fn check_regions(
        &self,
        read: Option<&Region<'_, OpenClMemory>>,
        written: Option<&Region<'_, OpenClMemory>>,
    ) -> Result<(), BackendError> {
        fork::check()?;
        for region in read.into_iter().chain(written) {
            region.check_stream(self)?;
            if !self.inner.device.context().is_same(region.memory().allocation().context()) {
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

impl User {
    pub(crate) fn is(&self, stream: &OpenClStream) -> bool {
        self.id == stream.inner.id
    }

    /// Marks the end of its work so far.
    pub(crate) fn point(&self) -> Result<StreamPoint, BackendError> {
        match self.stream.upgrade() {
            Some(stream) => Ok(StreamPoint::Now(stream.device.context().record(&stream.queue)?)),
            None => match self.end.0.wait() {
                Ok(_) => Ok(StreamPoint::Last(Arc::clone(&self.end))),
                Err(error) => Err(error.clone()),
            },
        }
    }

    /// Whether the stream is gone and its work is done.
    pub(crate) fn is_done(&self) -> bool {
        // Work that failed is over. Where its end could not be marked nothing is known of it.
        let is_over = |end: &RawEvent| end.is_complete().unwrap_or(true);
        self.stream.strong_count() == 0 && matches!(self.end.0.get(), Some(Ok(end)) if is_over(end))
    }
}

impl StreamPoint {
    pub(crate) fn event(&self) -> Option<&RawEvent> {
        match self {
            Self::Now(event) => Some(event),
            Self::Last(end) => end.0.get().and_then(|end| end.as_ref().ok()),
        }
    }
}

impl Stream for OpenClStream {
    fn id(&self) -> StreamId {
        self.inner.id
    }

    fn device(&self) -> DeviceId {
        self.inner.device.id()
    }
}
