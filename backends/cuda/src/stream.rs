//! Streams: created here, or foreign.

use crate::driver::Queue;
use crate::memory::CudaMemory;
use crate::shared::DeviceCore;
use crate::stream_core::StreamCore;
use std::sync::Arc;
use vrampool_backend::{BackendError, DeviceId, Region, Stream, StreamId, arguments, fork::ForkArc};

/// An ordered queue of work on a [`CudaDevice`](crate::CudaDevice): a stream made by
/// [`create_stream`](vrampool_backend::Backend::create_stream), or a wrapped one.
///
/// Wrapping one stream twice returns handles to one stream, with one id. The driver may reuse a destroyed stream's
/// handle for a new stream; the two are distinguished by the driver's stream number, which is never reused. While a
/// stream is captured, its number cannot be read, and its handle is taken as its identity.
#[derive(Debug, Clone)]
pub struct CudaStream {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Dropped before the device.
    core: Arc<StreamCore>,
    device: ForkArc<DeviceCore>,
}

impl CudaStream {
    /// The handle to `stream`, a stream of `device`'s context.
    pub(crate) fn of(
        device: &ForkArc<DeviceCore>,
        stream: Arc<cudarc::driver::CudaStream>,
    ) -> Result<Self, BackendError> {
        let core = StreamCore::of(&device.streams, &device.context, stream)?;
        Ok(Self { inner: Arc::new(Inner { core, device: device.clone() }) })
    }

    /// Returns the stream of `cudarc`, for launches and libraries. The handle of a per-thread default stream means the
    /// default stream of the thread that uses it.
    #[must_use]
    pub fn cudarc(&self) -> &Arc<cudarc::driver::CudaStream> {
        self.queue().cudarc()
    }

    /// Retires a stream that other code is about to destroy: waits for its work and never uses its handle again. Memory
    /// that was last used on it is reused without a wait. New work on it is refused as an invalid argument.
    ///
    /// For streams wrapped [by their raw handle](crate::CudaDevice::wrap_raw_stream). Others are kept alive.
    ///
    /// # Errors
    /// Errors of the driver, failures of the stream's work included. The handle is not used again in that
    /// case either.
    pub fn retire(&self) -> Result<(), BackendError> {
        let done = match self.queue().is_retired() {
            true => Ok(()),
            false => self.inner.device.context.enter().and_then(|current| current.synchronize(self.queue())),
        };
        self.queue().retire();
        done
    }

    pub(crate) fn queue(&self) -> &Queue {
        self.inner.core.queue()
    }

    /// The common state of all handles to the stream.
    pub(crate) fn stream_core(&self) -> &Arc<StreamCore> {
        &self.inner.core
    }

    /// Refuses regions of other streams and devices, and a written region that overlaps the read one.
    pub(crate) fn check_regions(
        &self,
        read: Option<&Region<'_, CudaMemory>>,
        written: Option<&Region<'_, CudaMemory>>,
    ) -> Result<(), BackendError> {
        arguments::check_regions(self, read.into_iter(), written.into_iter(), |memory| {
            self.inner.device.context.is_same(memory.allocation.context().cudarc())
        })?;
        read.into_iter().chain(written).for_each(|region| region.memory().used_on(&self.inner.core));
        Ok(())
    }
}

impl Stream for CudaStream {
    fn id(&self) -> StreamId {
        self.inner.core.id()
    }

    fn device(&self) -> DeviceId {
        self.inner.device.id
    }

    fn is_retired(&self) -> bool {
        self.queue().is_retired()
    }
}
