//! A device: properties, free memory, allocation and work.

use crate::{
    AllocationRequest, BackendError, CaptureId, Event, Memory, Placement, Region, RegionMut, SharedHandles,
    Stream, VirtualMemory,
};
use bitflags::bitflags;
use std::fmt;

/// Identifies a device in this process: equal if and only if two handles are the same device (and, where it
/// matters, the same context of it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DeviceId {
    /// The backend's name.
    pub backend: &'static str,
    /// The backend's own key: a UUID, a context's address, an ordinal.
    pub key: u128,
}

impl DeviceId {
    /// The device of a backend that has this key there.
    #[must_use]
    pub const fn new(backend: &'static str, key: u128) -> Self {
        Self { backend, key }
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.key)
    }
}

/// How a device's memory relates to the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A device with memory of its own.
    #[default]
    Discrete,
    /// A device that shares the host's memory.
    Integrated,
    /// The host's own processor.
    Cpu,
}

bitflags! {
    /// What a device can do beyond the contract's core.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Capabilities: u32 {
        /// [`Placement::HostVisible`] memory, with [`Backend::write_mapped`] and [`Backend::read_mapped`].
        const HOST_VISIBLE = 1;
        /// [`Placement::Managed`] memory.
        const MANAGED = 1 << 1;
        /// [`Backend::virtual_memory`].
        const VIRTUAL_MEMORY = 1 << 2;
        /// [`Backend::shared_handles`].
        const SHARED_HANDLES = 1 << 3;
        /// Several streams run at the same time.
        const CONCURRENT_STREAMS = 1 << 4;
        /// A copy may have both ranges in one memory (they never overlap).
        const COPY_WITHIN_MEMORY = 1 << 5;
        /// [`Backend::allocate_on`]: memory comes and goes in the order of a stream.
        const STREAM_ORDERED = 1 << 6;
    }
}

/// What a device is. Fixed for its life.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// The backend's name: `host`, `cuda`, `opencl`, `wgpu`, or a third party's.
    pub backend: &'static str,
    /// The device's name, for people.
    pub name: String,
    /// Discrete, integrated or the host's processor.
    pub kind: DeviceKind,
    /// Memory in all, bytes.
    pub total_bytes: u64,
    /// The largest single allocation, bytes.
    pub max_allocation: u64,
    /// What every allocation's start is aligned to and offsets of ranges inside one should be, bytes, a power
    /// of two.
    pub alignment: u64,
    /// What offsets and lengths of copies and fills must be a multiple of, bytes. A length may be any where
    /// the region ends with its memory, or has [room](crate::Region::room) for the rest.
    pub copy_granularity: u64,
    /// What it can do beyond the core.
    pub capabilities: Capabilities,
}

impl Properties {
    /// Properties with cautious values; set the fields that the device knows better.
    #[must_use]
    pub fn new(backend: &'static str, name: impl Into<String>) -> Self {
        Self {
            backend,
            name: name.into(),
            kind: DeviceKind::Discrete,
            total_bytes: 0,
            max_allocation: u64::MAX,
            alignment: 1,
            copy_granularity: 1,
            capabilities: Capabilities::empty(),
        }
    }

    /// Whether host and device share one memory.
    #[must_use]
    pub fn is_integrated(&self) -> bool {
        self.kind != DeviceKind::Discrete
    }

    /// Where buffers should live by default: host-visible on a device that shares the host's memory (there it
    /// costs nothing and saves copies), the device's own memory elsewhere. netcl's rule for OpenCL.
    #[must_use]
    pub fn preferred_placement(&self) -> Placement {
        if self.is_integrated() && self.capabilities.contains(Capabilities::HOST_VISIBLE) {
            Placement::HostVisible
        } else {
            Placement::Device
        }
    }
}

/// What a device has left at this moment, other processes counted where the driver counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

impl MemoryInfo {
    /// `free_bytes` of `total_bytes` are free.
    #[must_use]
    pub const fn new(free_bytes: u64, total_bytes: u64) -> Self {
        Self { free_bytes, total_bytes }
    }
}

impl fmt::Display for MemoryInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes free", self.free_bytes, self.total_bytes)
    }
}

/// One device. A clone is another handle to it.
///
/// Every method may be called from any thread. A call that fails has done nothing.
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

    /// What it is.
    fn properties(&self) -> &Properties;

    /// What it has left.
    ///
    /// # Errors
    /// What the driver reports; [`BackendError::Unsupported`] where the device does not tell.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError>;

    /// Allocates memory as [requested](AllocationRequest); its contents are not defined.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] exactly when giving memory back may help; [`BackendError::Unsupported`]
    /// for a kind or an alignment that the device does not have; else what the driver reports.
    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<Self::Memory, BackendError>;

    /// As [`allocate`](Self::allocate), in the order of `stream`: work on it may use the memory at once, work
    /// on other streams behind it. Dropping the memory gives it back in the order of the same stream, so that
    /// work on other streams must be done or before it by then; [`free_on`](Self::free_on) names another.
    /// Neither waits for work. Memory of a kind that the device does not have in such an order comes and goes
    /// as by `allocate`.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`BackendError::Unsupported`] without
    /// [`Capabilities::STREAM_ORDERED`].
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
    /// What the driver reports about that work.
    fn flush(&self, stream: &Self::Stream) -> Result<(), BackendError> {
        let _ = stream;
        Ok(())
    }

    /// Returns memory to the driver that was dropped and is kept because work may still use it. Submits
    /// gathered work, and may wait for submitted work that completes without the caller. The default does
    /// nothing, for backends whose driver takes memory back by itself.
    ///
    /// # Errors
    /// What the driver reports.
    fn reclaim(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// Creates a stream, or, on a device with one queue, another handle to it.
    ///
    /// # Errors
    /// What the driver reports.
    fn create_stream(&self) -> Result<Self::Stream, BackendError>;

    /// Whether work enqueued on `stream` now would go into a graph instead of being done.
    ///
    /// # Errors
    /// What the driver reports.
    fn is_capturing(&self, stream: &Self::Stream) -> Result<bool, BackendError> {
        let _ = stream;
        Ok(false)
    }

    /// The capture that `stream` is a part of, if it [is captured](Self::is_capturing).
    ///
    /// # Errors
    /// What the driver reports.
    fn capture_of(&self, stream: &Self::Stream) -> Result<Option<CaptureId>, BackendError> {
        Ok(self.is_capturing(stream)?.then_some(CaptureId::UNKNOWN))
    }

    /// Blocks the host until all work enqueued on `stream` so far is done.
    ///
    /// # Errors
    /// What the driver reports, failures of the work itself included.
    fn synchronize(&self, stream: &Self::Stream) -> Result<(), BackendError>;

    /// Marks the end of the work enqueued on `stream` so far. Does not block.
    ///
    /// # Errors
    /// What the driver reports.
    fn record(&self, stream: &Self::Stream) -> Result<Self::Event, BackendError>;

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

    /// Address space and physical memory apart, on a device with [`Capabilities::VIRTUAL_MEMORY`].
    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Memory = Self::Memory>> {
        None
    }

    /// Physical memory for other processes, on a device with [`Capabilities::SHARED_HANDLES`].
    fn shared_handles(&self) -> Option<&dyn SharedHandles> {
        None
    }
}
