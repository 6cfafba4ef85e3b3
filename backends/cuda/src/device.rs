//! An NVIDIA GPU.

use crate::driver::{BACKEND, Context, Current, Library, RawDevice, RawEvent};
use crate::error::from_cudarc;
use crate::event::CudaEvent;
use crate::listing;
use crate::memory::{CudaMemory, origin_of, span};
use crate::shared::DeviceCore;
use crate::stream::CudaStream;
use crate::stream_ordered;
use cudarc::driver::CudaContext;
use std::mem;
use std::sync::Arc;
use vrampool_backend::spi::{OpenDevices, find_device};
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Capabilities, CaptureId, DeviceId, DeviceListing, MemoryInfo,
    Placement, Properties, Region, RegionMut, SharedHandles, VirtualMemory, arguments,
    fork::{self, ForkArc},
};

/// An NVIDIA GPU. A clone, and a device opened again, is another handle to the same device; the context is
/// let go with the last handle, stream, event and memory.
#[derive(Debug, Clone)]
pub struct CudaDevice {
    pub(crate) core: ForkArc<DeviceCore>,
}

/// Every device that some code has a handle to: one for each context, so that one stream has one id.
static OPEN: OpenDevices<DeviceCore> = OpenDevices::new();

impl CudaDevice {
    /// The device with this number among those the process sees, in its primary context, which every other
    /// library uses too.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without a driver of CUDA 12.0 or newer or without a device;
    /// [`BackendError::InvalidArgument`] when there is no device of this number; else errors of the driver.
    pub fn open(ordinal: usize) -> Result<Self, BackendError> {
        let library = Library::get()?;
        RawDevice::at(library, ordinal)?;
        Self::of(Context::primary(library, ordinal)?)
    }

    /// The device of this name: `cuda` (the first), `cuda:1`, `1`, or a UUID as `nvidia-smi -L` shows it, or
    /// as much of its beginning as no other device has, behind `cuda:` or not.
    ///
    /// # Errors
    /// As [`open`](Self::open); for a name that is none, the error lists the names there are.
    pub fn open_by_name(name: &str) -> Result<Self, BackendError> {
        Self::open(find_device(BACKEND, name, &listing::list()?)?.ordinal)
    }

    /// The device of a context that is there already: the one the program's own kernels run in.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_context(context: Arc<CudaContext>) -> Result<Self, BackendError> {
        Self::of(Context::of(Library::get()?, context))
    }

    fn of(context: Context) -> Result<Self, BackendError> {
        fork::opening()?;
        let is_it = |device: &DeviceCore| device.context.is_same(context.cudarc());
        let core = OPEN.find_or_open(is_it, || DeviceCore::new(context.clone()))?;
        Ok(Self { core: core.into() })
    }

    /// Its number among the devices this process sees.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.core.listed.ordinal
    }

    /// The device's entry of the list.
    #[must_use]
    pub fn listed(&self) -> &DeviceListing {
        &self.core.listed
    }

    /// Its context as `cudarc` has it, for loading modules and for libraries.
    #[must_use]
    pub fn context(&self) -> &Arc<CudaContext> {
        self.core.context.cudarc()
    }

    /// Waits for all work of the device's context, on whatever streams, and of other devices that can access
    /// its memory.
    ///
    /// # Errors
    /// Errors of the driver, failures of the work included.
    pub fn synchronize_all(&self) -> Result<(), BackendError> {
        let context = &self.core.context;
        context.enter()?.synchronize_all()?;
        context.wait_for_peers()
    }

    /// The context's default stream, the "null" one: ordered with every stream that is not non-blocking.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn null_stream(&self) -> Result<CudaStream, BackendError> {
        fork::check()?;
        CudaStream::of(&self.core, self.context().default_stream())
    }

    /// The calling thread's own default stream. On another thread, what is done with it runs on the null
    /// stream, which is ordered with it: right, but slower.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn per_thread_stream(&self) -> Result<CudaStream, BackendError> {
        fork::check()?;
        CudaStream::of(&self.core, self.context().per_thread_stream())
    }

    /// A stream of the program's own. It lives as long as a handle to it. Where it is the per-thread default
    /// stream, it is the calling thread's.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a stream of another context; else errors of the driver.
    pub fn wrap_stream(&self, stream: Arc<cudarc::driver::CudaStream>) -> Result<CudaStream, BackendError> {
        if fork::is_forked() {
            mem::forget(stream);
            return Err(BackendError::Forked);
        }
        if !self.core.context.is_same(stream.context()) {
            return Err(BackendError::invalid("stream", "it belongs to another context"));
        }
        CudaStream::of(&self.core, stream)
    }

    fn check_stream(&self, stream: &CudaStream) -> Result<(), BackendError> {
        fork::check()?;
        arguments::check_stream(stream, self.core.id)
    }

    /// The context, current, for a question about the work of `stream`. `None` if it was retired: all its work is done.
    fn enter(&self, stream: &CudaStream) -> Result<Option<Current<'_>>, BackendError> {
        self.check_stream(stream)?;
        if stream.queue().is_retired() {
            return Ok(None);
        }
        self.core.context.enter().map(Some)
    }

    fn check_mapped(&self, memory: &CudaMemory) -> Result<(), BackendError> {
        fork::check()?;
        if !self.core.context.is_same(memory.allocation.context().cudarc()) {
            return Err(BackendError::invalid("memory", "it is another device's"));
        }
        if memory.kind().placement == Placement::Managed && !self.core.concurrent_managed_access {
            return Err(BackendError::unsupported("mapping managed memory while it works"));
        }
        Ok(())
    }
}

impl Backend for CudaDevice {
    type Memory = CudaMemory;
    type Stream = CudaStream;
    type Event = CudaEvent;

    fn id(&self) -> DeviceId {
        self.core.id
    }

    fn label(&self) -> String {
        self.core.listed.uuid_text().unwrap_or_else(|| self.id().to_string())
    }

    fn properties(&self) -> &Properties {
        &self.core.properties
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        let (free_bytes, total_bytes) = self.core.context.enter()?.memory_info()?;
        Ok(MemoryInfo::new(free_bytes, total_bytes))
    }

    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<CudaMemory, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        let properties = &self.core.properties;
        fork::check()?;
        arguments::check_size(bytes, u64::MAX)?;
        match kind.placement {
            // The driver need not be asked.
            Placement::Device if bytes > properties.total_bytes => {
                let free = self.memory_info().ok().map(|info| info.free_bytes);
                return Err(BackendError::out_of_memory(bytes, free));
            }
            Placement::Managed if !properties.capabilities.contains(Capabilities::MANAGED) => {
                return Err(BackendError::unsupported("managed memory"));
            }
            _ => {}
        }
        let allocation = self.core.context.allocate(bytes, origin_of(kind)?)?;
        Ok(CudaMemory::new(allocation, kind))
    }

    /// From the device's current pool, as `cuMemAllocAsync` does it.
    fn allocate_on(
        &self,
        request: &AllocationRequest<'_>,
        stream: &CudaStream,
    ) -> Result<CudaMemory, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        self.check_stream(stream)?;
        if kind.placement != Placement::Device || bytes == 0 || bytes > self.core.properties.total_bytes {
            return self.allocate(request);
        }
        Ok(CudaMemory::new(stream_ordered::allocate_current(&self.core, bytes, stream.stream_core())?, kind))
    }

    fn free_on(&self, mut memory: CudaMemory, stream: &CudaStream) {
        if self.check_stream(stream).is_ok() {
            memory.allocation.free_behind(stream.stream_core());
        }
    }

    fn create_stream(&self) -> Result<CudaStream, BackendError> {
        // Leaves this thread's context as it was.
        let _current = self.core.context.enter()?;
        let create = || self.context().new_stream();
        // `cudarc` keeps an error of a destructor for the next call, whichever call makes it: not this one's, so it
        // is put back.
        let stream =
            create().or_else(|earlier| create().inspect(|_| self.context().record_err::<()>(Err(earlier))));
        let library = self.core.context.library();
        CudaStream::of(&self.core, stream.map_err(|error| from_cudarc(library, "cuStreamCreate", error))?)
    }

    fn is_capturing(&self, stream: &CudaStream) -> Result<bool, BackendError> {
        self.enter(stream)?.map_or(Ok(false), |current| current.is_capturing(stream.queue()))
    }

    fn capture_of(&self, stream: &CudaStream) -> Result<Option<CaptureId>, BackendError> {
        let Some(current) = self.enter(stream)? else { return Ok(None) };
        Ok(current.capture_of(stream.queue())?.map(CaptureId::new))
    }

    fn synchronize(&self, stream: &CudaStream) -> Result<(), BackendError> {
        self.enter(stream)?.map_or(Ok(()), |current| current.synchronize(stream.queue()))
    }

    fn record(&self, stream: &CudaStream) -> Result<CudaEvent, BackendError> {
        self.check_stream(stream)?;
        let context = &self.core.context;
        if stream.queue().is_retired() {
            // All its work is done, and an event that was never recorded is complete.
            return Ok(CudaEvent::new(Arc::new(RawEvent::new(context)?), &self.core));
        }
        let event = CudaEvent::new(self.core.events.take(context)?, &self.core);
        context.enter()?.record(stream.queue(), &event.raw)?;
        Ok(event)
    }

    fn is_idle(&self, stream: &CudaStream) -> Result<bool, BackendError> {
        self.enter(stream)?.map_or(Ok(true), |current| current.is_idle(stream.queue()))
    }

    fn wait(&self, stream: &CudaStream, event: &CudaEvent) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.context.enter()?.wait(stream.queue(), &event.raw)
    }

    fn copy(
        &self,
        stream: &CudaStream,
        source: Region<'_, CudaMemory>,
        destination: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(Some(&source), Some(&destination))?;
        arguments::same_length(source.len(), destination.len())?;
        self.core.context.enter()?.copy(stream.queue(), span(&source)?, span(&destination)?)
    }

    fn fill(
        &self,
        stream: &CudaStream,
        destination: RegionMut<'_, CudaMemory>,
        value: u8,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(None, Some(&destination))?;
        self.core.context.enter()?.fill(stream.queue(), span(&destination)?, value)
    }

    fn upload(
        &self,
        stream: &CudaStream,
        source: &[u8],
        destination: RegionMut<'_, CudaMemory>,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(None, Some(&destination))?;
        arguments::same_length(source.len() as u64, destination.len())?;
        self.core.context.enter()?.upload(stream.queue(), source, span(&destination)?)
    }

    fn download(
        &self,
        stream: &CudaStream,
        source: Region<'_, CudaMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        stream.check_regions(Some(&source), None)?;
        arguments::same_length(source.len(), destination.len() as u64)?;
        self.core.context.enter()?.download(stream.queue(), span(&source)?, destination)
    }

    fn write_mapped(&self, memory: &CudaMemory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.check_mapped(memory)?;
        memory.mapped(offset, bytes.len())?.write(bytes)
    }

    fn read_mapped(&self, memory: &CudaMemory, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.check_mapped(memory)?;
        memory.mapped(offset, bytes.len())?.read(bytes)
    }

    fn mapped<'a>(&self, memory: &'a mut CudaMemory) -> Result<&'a [u8], BackendError> {
        self.check_mapped(memory)?;
        memory.in_place()
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Memory = CudaMemory>> {
        self.properties().capabilities.contains(Capabilities::VIRTUAL_MEMORY).then_some(self)
    }

    fn shared_handles(&self) -> Option<&dyn SharedHandles> {
        self.properties().capabilities.contains(Capabilities::SHARED_HANDLES).then_some(self)
    }
}
