//! A device of OpenCL.

use crate::driver::{BACKEND, Context, Library, RawDevice};
use crate::event::OpenClEvent;
use crate::listing;
use crate::memory::{OpenClMemory, origin_of, span};
use crate::shared::{DeviceCore, Options};
use crate::stream::OpenClStream;
use opencl_sys as cl;
use vrampool_backend::spi::find_device;
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, DeviceId, DeviceKind, DeviceListing, MemoryInfo, Properties,
    Region, RegionMut, arguments,
    fork::{self, ForkArc},
};

/// A device of OpenCL in a context. A clone, and a device opened again, is another handle to the same device;
/// the context is let go with the last handle, stream and memory.
#[derive(Debug, Clone)]
pub struct OpenClDevice {
    pub(crate) core: ForkArc<DeviceCore>,
}

/// How an [`OpenClDevice`] in a context of its own is to be.
///
/// ```no_run
/// use vrampool_opencl::{Backend, OpenClDevice};
/// let device = OpenClDevice::builder(0).memory_limit(1 << 30).build()?;
/// assert_eq!(device.memory_info()?.free_bytes, 1 << 30);
/// # Ok::<(), vrampool_opencl::BackendError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct OpenClBuilder {
    options: Options,
}

impl OpenClBuilder {
    /// The most memory that is taken, bytes: for a device that is shared with others, and to see what a
    /// program does when memory is out. Default, and at most: all the device has.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.options.limit = Some(bytes);
        self
    }

    /// Sets the kind that the device reports. Default: the driver's. A device configured as discrete has
    /// separate memory and pinned memory of the host that is kept mapped, also where both are the same.
    pub fn kind(mut self, kind: DeviceKind) -> Self {
        self.options.kind = Some(kind);
        self
    }

    /// Opens the device.
    ///
    /// # Errors
    /// As [`OpenClDevice::open`].
    pub fn build(self) -> Result<OpenClDevice, BackendError> {
        let (library, device) = at(self.options.ordinal)?;
        let make = || Ok((Context::create(library, device)?, self.options));
        Ok(OpenClDevice { core: DeviceCore::find_or(|_| false, make)? })
    }
}

impl OpenClDevice {
    /// The device with this number among those of all platforms, in the context that all its handles share.
    /// If that context is lost, a new one is created.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without a library of OpenCL 1.2 or newer, a platform or a device;
    /// [`BackendError::InvalidArgument`] when there is no device of this number; else errors of the driver.
    pub fn open(ordinal: usize) -> Result<Self, BackendError> {
        let (library, device) = at(ordinal)?;
        let options = Options { ordinal, is_common: true, ..Options::default() };
        let make = || Ok((Context::create(library, device)?, options));
        Ok(Self { core: DeviceCore::find_or(|core| core.is_common(&device), make)? })
    }

    /// The device of this name: `opencl` (the first GPU, or where there is none the first device), `opencl:1`
    /// or `1`.
    ///
    /// # Errors
    /// As [`open`](Self::open); for a name that is none, the error lists the names there are.
    pub fn open_by_name(name: &str) -> Result<Self, BackendError> {
        Self::open(find_device(BACKEND, name, &listing::list()?)?.ordinal)
    }

    /// The device with this number in a context of its own, opened as you choose.
    pub fn builder(ordinal: usize) -> OpenClBuilder {
        OpenClBuilder { options: Options { ordinal, ..Options::default() } }
    }

    /// The device of another owner's context, which every handle to it here shares.
    pub(crate) fn of_foreign(context: Context, ordinal: usize) -> Result<Self, BackendError> {
        let device = context.device().handle();
        let (searched, options) = (context.clone(), Options { ordinal, ..Options::default() });
        let is_it =
            |core: &DeviceCore| core.context.is_same(&searched) && core.context.device().handle() == device;
        Ok(Self { core: DeviceCore::find_or(is_it, || Ok((context, options)))? })
    }

    /// The device's entry of the list.
    #[must_use]
    pub fn listed(&self) -> &DeviceListing {
        &self.core.listed
    }

    /// Its context, for programs, kernels and libraries. It is good for as long as a handle to the device, or
    /// a count of the caller's own (`clRetainContext`), is there.
    #[must_use]
    pub fn context(&self) -> cl::cl_context {
        self.core.context.handle().raw()
    }

    /// Its number in the driver.
    #[must_use]
    pub fn device(&self) -> cl::cl_device_id {
        self.core.context.device().handle().raw()
    }

    /// A parameter of `clGetDeviceInfo` that is one number, such as `CL_DEVICE_MAX_WORK_GROUP_SIZE`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a parameter that is not one number; else errors of the driver.
    pub fn info(&self, parameter: cl::cl_device_info) -> Result<u64, BackendError> {
        fork::check()?;
        self.core.context.device().info_number(parameter)
    }

    /// Bytes of dropped memory that are not free yet, because work may still use them or the driver is still
    /// at it: see [`OpenClMemory`].
    #[must_use]
    pub fn deferred_bytes(&self) -> u64 {
        if fork::is_forked() {
            return 0;
        }
        self.core.deferred.sweep();
        self.core.deferred.bytes()
    }

    fn check_stream(&self, stream: &OpenClStream) -> Result<(), BackendError> {
        fork::check()?;
        arguments::check_stream(stream, self.core.id)
    }

    fn check_mapped(&self, memory: &OpenClMemory) -> Result<(), BackendError> {
        fork::check()?;
        match self.core.context.is_same(memory.allocation.context()) {
            true => Ok(()),
            false => Err(BackendError::invalid("memory", "it is another device's")),
        }
    }
}

fn at(ordinal: usize) -> Result<(&'static Library, RawDevice), BackendError> {
    fork::opening()?;
    let library = Library::get()?;
    let devices = RawDevice::all(library)?;
    match devices.get(ordinal) {
        Some(&device) => Ok((library, device)),
        None => {
            let reason = format!("there is no device {ordinal}; there are {}", devices.len());
            Err(BackendError::invalid("device", reason))
        }
    }
}

impl Backend for OpenClDevice {
    type Memory = OpenClMemory;
    type Stream = OpenClStream;
    type Event = OpenClEvent;

    fn id(&self) -> DeviceId {
        self.core.id
    }

    fn properties(&self) -> &Properties {
        &self.core.properties
    }

    /// By what was taken through this device's handles, and by what the driver says where it has AMD's
    /// extension: the standard has no such question.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        fork::check()?;
        self.core.deferred.sweep();
        let total_bytes = self.core.ledger.limit().unwrap_or(self.core.properties.total_bytes);
        let free_bytes = self.core.free_bytes();
        Ok(MemoryInfo::new(free_bytes, total_bytes))
    }

    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<OpenClMemory, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        fork::check()?;
        arguments::check_size(bytes, self.core.properties.max_allocation)?;
        let origin = origin_of(kind, &self.core)?;
        self.core.deferred.sweep();
        let allocation = self.core.allocate(bytes, origin);
        Ok(OpenClMemory::new(&self.core, allocation?, kind))
    }

    /// Frees what no work uses any more. Does not wait: work may be waiting for an event of the program's
    /// own.
    fn reclaim(&self) -> Result<(), BackendError> {
        fork::check()?;
        self.core.deferred.sweep();
        Ok(())
    }

    fn create_stream(&self) -> Result<OpenClStream, BackendError> {
        fork::check()?;
        Ok(OpenClStream::of(&self.core, self.core.context.create_queue()?))
    }

    fn synchronize(&self, stream: &OpenClStream) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.core.context.synchronize(stream.raw())
    }

    fn record(&self, stream: &OpenClStream) -> Result<OpenClEvent, BackendError> {
        self.check_stream(stream)?;
        Ok(OpenClEvent { raw: self.core.context.record(stream.raw())? })
    }

    fn wait(&self, stream: &OpenClStream, event: &OpenClEvent) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        if !self.core.context.is_same(event.raw.context()) {
            return Err(BackendError::invalid("event", "it belongs to another context"));
        }
        self.core.context.wait(stream.raw(), &[&event.raw])
    }

    fn copy(
        &self,
        stream: &OpenClStream,
        source: Region<'_, OpenClMemory>,
        destination: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(Some(&source), Some(&destination))?;
        arguments::same_length(source.len(), destination.len())?;
        source.memory().use_on(stream);
        destination.memory().use_on(stream);
        if source.memory().allocation.is_mapped() && destination.memory().allocation.is_mapped() {
            destination.memory().give_to_kernels(stream)?;
        }
        self.core.context.copy(stream.raw(), span(&source)?, span(&destination)?)
    }

    fn fill(
        &self,
        stream: &OpenClStream,
        destination: RegionMut<'_, OpenClMemory>,
        value: u8,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(None, Some(&destination))?;
        destination.memory().give_to_kernels(stream)?;
        destination.memory().use_on(stream);
        self.core.context.fill(stream.raw(), span(&destination)?, value)
    }

    fn upload(
        &self,
        stream: &OpenClStream,
        source: &[u8],
        destination: RegionMut<'_, OpenClMemory>,
    ) -> Result<(), BackendError> {
        let destination = destination.as_region();
        self.check_stream(stream)?;
        stream.check_regions(None, Some(&destination))?;
        arguments::same_length(source.len() as u64, destination.len())?;
        destination.memory().check_host(cl::CL_MEM_HOST_READ_ONLY)?;
        destination.memory().give_to_kernels(stream)?;
        destination.memory().use_on(stream);
        self.core.context.upload(stream.raw(), source, span(&destination)?)
    }

    fn download(
        &self,
        stream: &OpenClStream,
        source: Region<'_, OpenClMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        stream.check_regions(Some(&source), None)?;
        arguments::same_length(source.len(), destination.len() as u64)?;
        source.memory().check_host(cl::CL_MEM_HOST_WRITE_ONLY)?;
        source.memory().give_to_kernels(stream)?;
        source.memory().use_on(stream);
        self.core.context.download(stream.raw(), span(&source)?, destination)
    }

    fn write_mapped(&self, memory: &OpenClMemory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.check_mapped(memory)?;
        memory.mapped(offset, bytes.len(), cl::CL_MEM_HOST_READ_ONLY)?.write(bytes)
    }

    fn read_mapped(&self, memory: &OpenClMemory, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.check_mapped(memory)?;
        memory.mapped(offset, bytes.len(), cl::CL_MEM_HOST_WRITE_ONLY)?.read(bytes)
    }
}
