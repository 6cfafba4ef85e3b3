//! A wgpu device.

use crate::driver;
use crate::error::blame;
use crate::event::WgpuEvent;
use crate::gpu::GRANULARITY;
use crate::listing::{self, BACKEND};
use crate::memory::{Span, WgpuMemory, usages_of};
use crate::opening;
use crate::shared::{DeviceCore, Identity};
use crate::stream::WgpuStream;
use std::sync::Arc;
use vrampool_backend::spi::find_device;
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Capabilities, DeviceId, DeviceListing, Memory, MemoryInfo,
    Placement, Properties, Region, RegionMut, StreamId, arguments,
    fork::{self, ForkArc},
};
use wgpu::BufferUsages;

/// A [`wgpu::Device`] and its queue. A clone is another handle to the same device; it is let go with the last
/// handle, stream, event and memory.
#[derive(Debug, Clone)]
pub struct WgpuDevice {
    pub(crate) core: ForkArc<DeviceCore>,
}

impl WgpuDevice {
    /// The adapter with this number in the [`list`](crate::list), with its limits, and memory that stays
    /// mapped where it has `MAPPABLE_PRIMARY_BUFFERS`. All handles of an adapter share one device of wgpu's; where that
    /// is lost, a new one is opened. An error that nothing catches is logged.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without a driver or a device; [`BackendError::InvalidArgument`] when
    /// there is no adapter of this number; [`BackendError::WouldBlock`] in a browser, see
    /// [`request`](Self::request); else what wgpu reports.
    pub fn open(ordinal: usize) -> Result<Self, BackendError> {
        Ok(Self { core: opening::open(ordinal)?.into() })
    }

    /// As [`open`](Self::open), as a future: the way to a device in a browser, where 0 is the one adapter that the
    /// browser chooses. Elsewhere it is ready at once.
    ///
    /// ```no_run
    /// # use vrampool_wgpu::{AllocationRequest, Backend, BackendError, Placement, Region, WgpuDevice};
    /// # async fn first_word() -> Result<[u8; 4], BackendError> {
    /// let device = WgpuDevice::request(0).await?;
    /// let stream = device.create_stream()?;
    /// let memory = device.allocate(&AllocationRequest::new(4096, Placement::Device))?;
    /// let mut bytes = [0; 4];
    /// device.read(&stream, Region::new(&memory, 0, 4, &stream)?, &mut bytes).await?;
    /// # Ok(bytes)
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn request(ordinal: usize) -> Result<Self, BackendError> {
        if !cfg!(target_arch = "wasm32") {
            return Self::open(ordinal);
        }
        Ok(Self { core: opening::request(ordinal).await?.into() })
    }

    /// The device of this name: `wgpu` (the first), `wgpu:1`, or `1`.
    ///
    /// # Errors
    /// As [`open`](Self::open); for a name that is none, the error lists the names there are.
    pub fn open_by_name(name: &str) -> Result<Self, BackendError> {
        Self::open(find_device(BACKEND, name, &listing::list()?)?.ordinal)
    }

    /// A device and queue that are there already: the ones of the program's own commands. Its error handler,
    /// its callbacks and its other users are left alone. The same device again is another handle. Waits for the
    /// work that was submitted to the queue before.
    ///
    /// Host-visible memory needs Vulkan and the feature `MAPPABLE_PRIMARY_BUFFERS`; big buffers need the limits asked
    /// for when the device was made.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the queue is another device's; [`BackendError::DeviceLost`].
    pub fn from_parts(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self, BackendError> {
        Ok(Self { core: opening::adopt(device, queue)?.into() })
    }

    /// Another device to the pool, on the same device of wgpu's, that allocates at most `bytes` of memory at
    /// a time and is out of memory beyond. Its work is in no order with that of this one.
    ///
    /// # Errors
    /// [`BackendError::DeviceLost`].
    pub fn with_memory_limit(&self, bytes: u64) -> Result<Self, BackendError> {
        self.core.gpu.check()?;
        let (gpu, listed) = (Arc::clone(&self.core.gpu), self.core.listed.clone());
        Ok(Self { core: ForkArc::new(DeviceCore::new(gpu, listed, Identity::Unlisted, Some(bytes))) })
    }

    /// The adapter's entry of the list. Its number is that in the list it was opened from, and 0 for
    /// [the program's own device](Self::from_parts).
    #[must_use]
    pub fn listed(&self) -> &DeviceListing {
        &self.core.listed
    }

    /// The device, for pipelines and bind groups. To destroy it loses it.
    #[must_use]
    pub fn device(&self) -> &wgpu::Device {
        self.core.gpu.device()
    }

    /// Its queue. What is submitted there is in order with the pool's work as [`WgpuStream`] says.
    #[must_use]
    pub fn queue(&self) -> &wgpu::Queue {
        self.core.gpu.queue()
    }

    /// Waits, as a future, until all work enqueued on `stream` so far is done: [`synchronize`](Backend::synchronize)
    /// for tasks, and the only wait of a browser. Outside a browser a thread polls the device while futures wait.
    ///
    /// In a browser, errors of calls are known after the calls have returned, a lack of memory included. This reports
    /// the first one since the last report.
    ///
    /// # Errors
    /// As [`synchronize`](Backend::synchronize).
    pub async fn finish(&self, stream: &WgpuStream) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        let gpu = &self.core.gpu;
        let number = self.core.recorder.close_list(gpu)?;
        gpu.reached(number).await?;
        gpu.deferred_errors().await
    }

    /// Copies to the host, in order on `stream`: [`download`](Backend::download) as a future, which is ready when the
    /// bytes are there. Reports errors that are known later than the call, as [`finish`](Self::finish).
    ///
    /// # Errors
    /// As [`download`](Backend::download).
    pub async fn read(
        &self,
        stream: &WgpuStream,
        source: Region<'_, WgpuMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        let from = self.check_download(stream, &source, destination)?;
        self.core.download_later(from, destination).await
    }

    fn check_stream(&self, stream: &WgpuStream) -> Result<(), BackendError> {
        fork::check()?;
        arguments::check_stream(stream, self.core.id)
    }

    fn check_download<'a>(
        &self,
        stream: &WgpuStream,
        source: &'a Region<'_, WgpuMemory>,
        destination: &[u8],
    ) -> Result<Span<'a>, BackendError> {
        self.check_stream(stream)?;
        stream.check_regions(&[source], &[])?;
        arguments::same_length(source.len(), destination.len() as u64)?;
        Span::around(source, BufferUsages::COPY_SRC, "source")
    }

    fn check_mapped(&self, memory: &WgpuMemory, offset: u64, bytes: usize) -> Result<(), BackendError> {
        self.core.gpu.check_known()?;
        if memory.device.id != self.core.id {
            return Err(BackendError::invalid("memory", "it is another device's"));
        }
        if memory.kind().placement != Placement::HostVisible {
            return Err(BackendError::unsupported("mapping memory that is not host-visible"));
        }
        arguments::check_range(offset, bytes as u64, memory.len()).map(|_| ())
    }

    fn create(
        &self,
        size: u64,
        usage: BufferUsages,
        label: Option<&str>,
    ) -> Result<wgpu::Buffer, BackendError> {
        let gpu = &self.core.gpu;
        // Mapped once, the bytes count as written, so that wgpu does not clear what the host has put there.
        let mapped_at_creation = usage.contains(BufferUsages::MAP_READ | BufferUsages::MAP_WRITE);
        let buffer = gpu.create_buffer(label.unwrap_or("vrampool"), size, usage, mapped_at_creation)?;
        if mapped_at_creation {
            // Only of a buffer that is there: of one that failed it is another error.
            gpu.ask("Buffer::unmap", || buffer.unmap())?;
        }
        gpu.check()?;
        Ok(buffer)
    }
}

impl Backend for WgpuDevice {
    type Memory = WgpuMemory;
    type Stream = WgpuStream;
    type Event = WgpuEvent;

    fn id(&self) -> DeviceId {
        self.core.id
    }

    fn properties(&self) -> &Properties {
        &self.core.properties
    }

    /// By `VK_EXT_memory_budget`, Metal's recommended working set or DirectX's budget, or of the
    /// [limit](WgpuDevice::with_memory_limit), whichever is less.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.core.gpu.check_known()?;
        let total_bytes = self.core.properties.total_bytes;
        let driver = driver::heap(self.device()).and_then(|heap| heap.free);
        let limit = self.core.free_bytes();
        match driver.into_iter().chain(limit).min() {
            Some(free) => Ok(MemoryInfo::new(free.min(total_bytes), total_bytes)),
            None => Err(BackendError::unsupported("reading how much memory is free")),
        }
    }

    /// The buffer has the request's label.
    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<WgpuMemory, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        fork::check()?;
        let properties = &self.core.properties;
        let usage = usages_of(kind, properties.capabilities.contains(Capabilities::HOST_VISIBLE))?;
        arguments::check_size(bytes, properties.max_allocation)?;
        let size = bytes.next_multiple_of(GRANULARITY);
        // wgpu releases the memory of dropped buffers only when it is polled.
        self.core.limit_dropped()?;
        let grant = self.core.reserve(size)?;
        let buffer = match self.create(size, usage, request.label) {
            Err(error) if error.is_out_of_memory() => {
                self.core.reclaim()?;
                self.create(size, usage, request.label)
            }
            other => other,
        };
        let buffer = buffer.map_err(|error| match error {
            BackendError::OutOfMemory { .. } => {
                let free = self.memory_info().ok().map(|info| info.free_bytes);
                BackendError::out_of_memory(bytes, free)
            }
            other => blame("usage", other),
        })?;
        Ok(WgpuMemory::new(buffer, bytes, kind, grant, &self.core))
    }

    fn flush(&self, stream: &WgpuStream) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        stream.flush()
    }

    /// Waits for all work of the device, and lets go of idle staging buffers too.
    fn reclaim(&self) -> Result<(), BackendError> {
        fork::check()?;
        self.core.reclaim()
    }

    fn create_stream(&self) -> Result<WgpuStream, BackendError> {
        self.core.gpu.check_known()?;
        Ok(WgpuStream { id: StreamId::next(), device: self.core.clone() })
    }

    fn synchronize(&self, stream: &WgpuStream) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.recorder.finish(&self.core.gpu)
    }

    fn record(&self, stream: &WgpuStream) -> Result<WgpuEvent, BackendError> {
        self.check_stream(stream)?;
        self.core.gpu.check_known()?;
        Ok(WgpuEvent { batch: self.core.recorder.mark().into(), device: self.core.clone() })
    }

    /// There is nothing to do: what is enqueued later is done later.
    fn wait(&self, stream: &WgpuStream, event: &WgpuEvent) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        if event.device.id != self.core.id {
            return Err(BackendError::invalid("event", "it is another device's"));
        }
        self.core.gpu.check_known()
    }

    fn copy(
        &self,
        stream: &WgpuStream,
        source: Region<'_, WgpuMemory>,
        destination: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(&[&source], &[&destination])?;
        arguments::same_length(source.len(), destination.len())?;
        let from = Span::around(&source, BufferUsages::COPY_SRC, "source")?;
        let to = Span::new(&destination, BufferUsages::COPY_DST, "destination")?;
        if from.buffer == to.buffer {
            return Err(BackendError::unsupported("copying within one buffer"));
        }
        self.core.copy(from, to)
    }

    fn fill(
        &self,
        stream: &WgpuStream,
        destination: RegionMut<'_, WgpuMemory>,
        value: u8,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(&[], &[&destination])?;
        let to = Span::new(&destination, BufferUsages::COPY_DST, "destination")?;
        self.core.fill(to, value)
    }

    fn upload(
        &self,
        stream: &WgpuStream,
        source: &[u8],
        destination: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(&[], &[&destination])?;
        arguments::same_length(source.len() as u64, destination.len())?;
        self.core.upload(source, Span::new(&destination, BufferUsages::COPY_DST, "destination")?)
    }

    fn download(
        &self,
        stream: &WgpuStream,
        source: Region<'_, WgpuMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        self.core.download(self.check_download(stream, &source, destination)?, destination)
    }

    fn write_mapped(&self, memory: &WgpuMemory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.check_mapped(memory, offset, bytes.len())?;
        let _turn = memory.host_turn();
        driver::write(self.device(), memory.buffer(), offset, bytes)
    }

    fn read_mapped(&self, memory: &WgpuMemory, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.check_mapped(memory, offset, bytes.len())?;
        let _turn = memory.host_turn();
        driver::read(self.device(), memory.buffer(), offset, bytes)
    }
}
