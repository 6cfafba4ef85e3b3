//! Streams: created here, or foreign queues.

use crate::driver::Queue;
use crate::shared::DeviceCore;
use crate::stream_core::StreamCore;
use opencl_sys::cl_command_queue;
use std::sync::Arc;
use vrampool_backend::{DeviceId, Stream, StreamId, fork::ForkArc};

/// An ordered queue of work on an [`OpenClDevice`](crate::OpenClDevice): a queue made by
/// [`create_stream`](vrampool_backend::Backend::create_stream), or a wrapped queue of other code.
///
/// Wrapping one queue twice gives handles to one stream, with one id. The queue is kept alive by the stream.
#[derive(Debug, Clone)]
pub struct OpenClStream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Dropped before the device.
    core: Arc<StreamCore>,
    device: ForkArc<DeviceCore>,
}

impl OpenClStream {
    /// The handle to `queue`, a queue of `device`.
    pub(crate) fn of(device: &ForkArc<DeviceCore>, queue: Queue) -> Self {
        let core = StreamCore::of(&device.streams, &device.context, queue);
        Self { inner: Arc::new(Inner { core, device: device.clone() }) }
    }

    /// The queue, for kernels and libraries. It is good for as long as this stream, a clone of it, or a count
    /// of the caller's own (`clRetainCommandQueue`) is there. What is enqueued on it is ordered with the stream's work
    /// like its own.
    #[must_use]
    pub fn queue(&self) -> cl_command_queue {
        self.inner.core.queue().handle().raw()
    }

    pub(crate) fn raw(&self) -> &Queue {
        self.inner.core.queue()
    }

    /// The common state of all handles to the stream.
    pub(crate) fn stream_core(&self) -> &Arc<StreamCore> {
        &self.inner.core
    }

    pub(crate) fn core(&self) -> &ForkArc<DeviceCore> {
        &self.inner.device
    }
}

impl Stream for OpenClStream {
    fn id(&self) -> StreamId {
        self.inner.core.id()
    }

    fn device(&self) -> DeviceId {
        self.inner.device.id
    }
}
