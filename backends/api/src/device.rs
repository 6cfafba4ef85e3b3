//! A device: free memory, allocation and work.

use crate::{
    AllocationRequest, BackendError, CaptureId, DeviceId, Event, Memory, MemoryInfo, Properties, Region,
    RegionMut, SharedHandles, Stream, VirtualMemory,
};
use std::fmt;

/// One device. A clone is another handle to it.
///
/// Every method may be called from any thread. A call that fails has done nothing.
///
/// Code for any device is generic over it:
///
/// ```
/// use vrampool_backend::{AllocationRequest, Backend, BackendError, Placement, RegionMut};
/// /// Allocates memory and sets its bytes, in order on a new stream.
/// fn filled<B: Backend>(device: &B, bytes: u64, value: u8) -> Result<B::Memory, BackendError> {
///     let stream = device.create_stream()?;
///     let memory = device.allocate(&AllocationRequest::new(bytes, Placement::Device))?;
///     device.fill(&stream, RegionMut::whole(&memory, &stream), value)?;
///     device.synchronize(&stream)?;
///     Ok(memory)
/// }
/// ```
pub trait Backend: Clone + fmt::Debug + Send + Sync + 'static {
    /// Memory of this device.
    type Memory: Memory;
    /// Its streams.
    type Stream: Stream;
    /// Points in its streams.
    type Event: Event;

    /// Which device this is.
    fn id(&self) -> DeviceId;

    /// The device as metrics label it: the name that other tools use for it, or else the key of its
    /// [`id`](Self::id). CUDA returns `GPU-…`, as `nvidia-smi` and NVIDIA's DCGM exporter write it. Contexts
    /// of one device may have the same label.
    fn label(&self) -> String {
        self.id().key.to_string()
    }

    /// The device's fixed properties.
    fn properties(&self) -> &Properties;

    /// The device's free and total memory.
    ///
    /// # Errors
    /// Errors of the driver; [`BackendError::Unsupported`] where the device does not report it.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError>;

    /// Allocates memory as [requested](AllocationRequest); its contents are not defined.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] exactly when releasing memory may help; [`BackendError::Unsupported`]
    /// for a kind or an alignment that the device does not have; else errors of the driver.
    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<Self::Memory, BackendError>;

    /// As [`allocate`](Self::allocate), in the order of `stream`: work on it may use the memory at once, work
    /// on other streams behind it. Dropping the memory releases it in the order of the same stream, so that
    /// work on other streams must be done or before it by then; [`free_on`](Self::free_on) names another.
    /// Neither waits for work. Memory of a kind that the device does not have in such an order comes and goes
    /// as by `allocate`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`BackendError::Unsupported`] without
    /// [`Capabilities::STREAM_ORDERED`](crate::Capabilities::STREAM_ORDERED).
    fn allocate_on(
        &self,
        request: &AllocationRequest<'_>,
        stream: &Self::Stream,
    ) -> Result<Self::Memory, BackendError> {
        let _ = (request, stream);
        Err(BackendError::unsupported("allocating in the order of a stream"))
    }

    /// Gives memory of [`allocate_on`](Self::allocate_on) back in the order of `stream`, on which, or before
    /// which, all work with it is. Like a drop it does not fail.
    fn free_on(&self, memory: Self::Memory, stream: &Self::Stream) {
        let _ = stream;
        drop(memory);
    }

    /// Submits work that the backend gathers before it hands it to the driver, as far as it was enqueued on
    /// `stream` so far: work that the program submits by itself from then on comes after it. Does not wait.
    /// The default does nothing, for backends that hand work over at once.
    ///
    /// # Errors
    /// Errors of the driver for that work.
    fn flush(&self, stream: &Self::Stream) -> Result<(), BackendError> {
        let _ = stream;
        Ok(())
    }

    /// Returns memory to the driver that was dropped and is kept because work may still use it. Submits
    /// gathered work, and may wait for submitted work that completes without the caller. The default does
    /// nothing, for backends whose driver takes memory back by itself.
    ///
    /// # Errors
    /// Errors of the driver.
    fn reclaim(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Creates a stream, or, on a device with one queue, another handle to it.
    ///
    /// # Errors
    /// Errors of the driver.
    fn create_stream(&self) -> Result<Self::Stream, BackendError>;

    /// Whether work enqueued on `stream` now would go into a graph instead of being done.
    ///
    /// # Errors
    /// Errors of the driver.
    fn is_capturing(&self, stream: &Self::Stream) -> Result<bool, BackendError> {
        let _ = stream;
        Ok(false)
    }

    /// The capture that `stream` is a part of, if it [is captured](Self::is_capturing).
    ///
    /// # Errors
    /// Errors of the driver.
    fn capture_of(&self, stream: &Self::Stream) -> Result<Option<CaptureId>, BackendError> {
        Ok(self.is_capturing(stream)?.then_some(CaptureId::UNKNOWN))
    }

    /// Blocks the host until all work enqueued on `stream` so far is done.
    ///
    /// # Errors
    /// Errors of the driver, failures of the work itself included.
    fn synchronize(&self, stream: &Self::Stream) -> Result<(), BackendError>;

    /// Marks the end of the work enqueued on `stream` so far. Does not block.
    ///
    /// # Errors
    /// Errors of the driver.
    fn record(&self, stream: &Self::Stream) -> Result<Self::Event, BackendError>;

    /// Whether all work enqueued on `stream` so far is complete. Does not block.
    ///
    /// `false` while the stream is captured, or if the backend does not know. The default records an event and
    /// queries it.
    ///
    /// # Errors
    /// Errors of the driver.
    fn is_idle(&self, stream: &Self::Stream) -> Result<bool, BackendError> {
        if self.is_capturing(stream)? {
            return Ok(false);
        }
        self.record(stream)?.is_complete()
    }

    /// Makes later work on `stream` wait for `event`. Does not block the host.
    ///
    /// # Errors
    /// [`BackendError::StreamFailed`] when work before the event is known to have
    /// [failed](BackendError#when-work-fails); what the driver reports.
    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), BackendError>;

    /// Copies `source` to `destination` on `stream`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the lengths differ, the ranges overlap (on an H200 such copies
    /// corrupted the data 20 times in 20), a region is another stream's, or granularity is not kept; else
    /// what the driver reports.
    fn copy(
        &self,
        stream: &Self::Stream,
        source: Region<'_, Self::Memory>,
        destination: RegionMut<'_, Self::Memory>,
    ) -> Result<(), BackendError>;

    /// Sets every byte of `destination` to `value` on `stream`.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    fn fill(
        &self,
        stream: &Self::Stream,
        destination: RegionMut<'_, Self::Memory>,
        value: u8,
    ) -> Result<(), BackendError>;

    /// Copies from the host's pageable memory, in order on `stream`. `source` may be reused when the call
    /// returns; the call may block for that. A pinned stager does better.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    fn upload(
        &self,
        stream: &Self::Stream,
        source: &[u8],
        destination: RegionMut<'_, Self::Memory>,
    ) -> Result<(), BackendError>;

    /// Copies to the host, in order on `stream`, and blocks until the bytes are there.
    ///
    /// # Errors
    /// As [`copy`](Self::copy), and failures of earlier work on the stream.
    fn download(
        &self,
        stream: &Self::Stream,
        source: Region<'_, Self::Memory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError>;

    /// Writes host-visible memory through its mapping, at once: **not** ordered with any stream. The caller
    /// knows that no work uses the range. Calls of several threads on one memory exclude each other: a read
    /// sees a write whole or not at all.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for memory that is not host-visible; [`BackendError::InvalidArgument`]
    /// for a range that leaves it.
    fn write_mapped(&self, memory: &Self::Memory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        let _ = (memory, offset, bytes);
        Err(BackendError::unsupported("writing mapped memory"))
    }

    /// Reads host-visible memory through its mapping, at once: **not** ordered with any stream.
    ///
    /// # Errors
    /// As [`write_mapped`](Self::write_mapped).
    fn read_mapped(&self, memory: &Self::Memory, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        let _ = (memory, offset, bytes);
        Err(BackendError::unsupported("reading mapped memory"))
    }

    /// Returns the bytes of host-visible memory in place, without a copy.
    ///
    /// The memory is borrowed exclusively, so no work can be enqueued that uses it while the slice exists. Work
    /// that is pending is waited for, possibly with other work of the same streams, or is an error.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for memory that is not host-visible, and on a device that cannot map memory for
    /// as long; [`BackendError::InvalidArgument`] for memory that pending work uses.
    fn mapped<'a>(&self, memory: &'a mut Self::Memory) -> Result<&'a [u8], BackendError> {
        let _ = memory;
        crate::fork::check()?;
        Err(BackendError::unsupported("the host's use of mapped memory in place"))
    }

    /// Separate address space and physical memory, on a device with
    /// [`Capabilities::VIRTUAL_MEMORY`](crate::Capabilities::VIRTUAL_MEMORY).
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Memory = Self::Memory>> {
        None
    }

    /// Physical memory for other processes, on a device with
    /// [`Capabilities::SHARED_HANDLES`](crate::Capabilities::SHARED_HANDLES).
    fn shared_handles(&self) -> Option<&dyn SharedHandles> {
        None
    }
}
