//! A device of OpenCL.

use crate::account::Account;
use crate::deferred::Deferred;
use crate::driver::{Context, Library, Origin, RawDevice};
use crate::event::OpenClEvent;
use crate::listing::{self, Listed};
use crate::memory::{OpenClMemory, origin_of, span};
use crate::stream::{OpenClStream, QueueOrder, StreamTable};
use opencl_sys as cl;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use vrampool_backend::{
    Backend, BackendError, Capabilities, DeviceId, MemoryInfo, MemoryKind, Properties, Region, RegionMut,
    Stream,
};

pub(crate) const BACKEND: &str = "opencl";

/// A device of OpenCL in a context. A clone, and a device opened again, is another handle to the same device; the context
/// is let go with the last handle, stream and memory.
#[derive(Debug, Clone)]
pub struct OpenClDevice {
    shared: Arc<Shared>,
    order: QueueOrder,
}

/// What a device's handles, streams and memory share.
#[derive(Debug)]
pub(crate) struct Shared {
    id: DeviceId,
    properties: Properties,
    listed: Listed,
    shared_memory: SharedMemory,
    account: Arc<Account>,
    streams: StreamTable,
    deferred: Deferred,
    /// Whether everybody who opens the device by its number gets this one.
    is_common: bool,
    context: Context,
}

/// What host and device can share addresses of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedMemory {
    None,
    /// What the host has mapped at the moment.
    Coarse,
    /// Whole allocations.
    Fine {
        atomics: bool,
    },
}

impl Shared {
    pub(crate) fn id(&self) -> DeviceId {
        self.id
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn streams(&self) -> &StreamTable {
        &self.streams
    }

    pub(crate) fn deferred(&self) -> &Deferred {
        &self.deferred
    }

    pub(crate) fn shared_memory(&self) -> SharedMemory {
        self.shared_memory
    }

    fn new(context: Context, ordinal: usize, key: Key) -> Result<Self, BackendError> {
        let device = context.device();
        let listed = listing::describe(ordinal, device)?;
        let mut properties = Properties::new(BACKEND, listed.name.clone());
        properties.kind = listed.kind;
        properties.total_bytes = listed.total_bytes;
        properties.max_allocation = listed.max_allocation;
        // The device says it in bits.
        properties.alignment =
            (device.number(cl::CL_DEVICE_MEM_BASE_ADDR_ALIGN)? / 8).max(1).next_power_of_two();
        properties.capabilities =
            Capabilities::HOST_VISIBLE | Capabilities::COPY_WITHIN_MEMORY | Capabilities::CONCURRENT_STREAMS;
        let shared_memory = shared_memory(device, context.library());
        properties.capabilities.set(Capabilities::MANAGED, shared_memory != SharedMemory::None);
        let limit = match key {
            Key::Limited(limit) => limit.min(listed.total_bytes),
            Key::Common | Key::Context => listed.total_bytes,
        };
        Ok(Self {
            id: DeviceId { backend: BACKEND, key: key.number(&context, ordinal) },
            properties,
            listed,
            shared_memory,
            account: Arc::new(Account::new(limit)),
            streams: StreamTable::default(),
            deferred: Deferred::default(),
            is_common: key == Key::Common,
            context,
        })
    }

    fn free_bytes(&self) -> u64 {
        let free = self.account.free();
        self.context.device().free_bytes().map_or(free, |told| told.min(free))
    }

    fn allocate(&self, bytes: u64, origin: Origin) -> Result<crate::driver::Allocation, BackendError> {
        let charge = self.account.charge(bytes);
        let free = Some(self.free_bytes());
        let charge = charge.ok_or(BackendError::OutOfMemory { requested: bytes, free })?;
        self.context.allocate(bytes, origin, charge, free)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.deferred.finish();
    }
}

fn shared_memory(device: &RawDevice, library: &Library) -> SharedMemory {
    // A device of before OpenCL 2.0 does not know the question.
    let has = match library.shares_addresses() {
        true => device.number(cl::CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0),
        false => 0,
    };
    if has & cl::CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0 {
        SharedMemory::Fine { atomics: has & cl::CL_DEVICE_SVM_ATOMICS != 0 }
    } else if has & cl::CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0 {
        SharedMemory::Coarse
    } else {
        SharedMemory::None
    }
}

/// What a device in a context is known by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    /// Its number, because it is in the one context that all who open it share.
    Common,
    /// Its context, which is somebody else's.
    Context,
    /// Its context, which has a limit of its own.
    Limited(u64),
}

impl Key {
    fn number(self, context: &Context, ordinal: usize) -> u128 {
        match self {
            Self::Common => {
                // Relaxed: only distinctness matters.
                (u128::from(REPLACED.load(Ordering::Relaxed)) << 64) | ordinal as u128
            }
            Self::Context | Self::Limited(_) => {
                let context = u128::from(context.handle().number());
                (1 << 127) | (context << 64) | ordinal as u128
            }
        }
    }
}

/// Every device that somebody has a handle to: one for each device of each context, so that one queue has one id.
static OPEN: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
/// How many common contexts were lost and given up. Part of the key of those that come after.
static REPLACED: AtomicU64 = AtomicU64::new(0);

/// Upgraded under the lock and let go behind it: the last handle to a device must not be dropped there.
fn find_open(is_it: impl Fn(&Shared) -> bool) -> Option<Arc<Shared>> {
    let devices: Vec<_> = OPEN.lock().iter().filter_map(Weak::upgrade).collect();
    devices.into_iter().find(|device| is_it(device))
}

impl OpenClDevice {
    /// The device with this number among those of all platforms, in the context that all who open it share. Where that
    /// context is broken, in a new one.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without a library of OpenCL 1.2 or newer, a platform or a device;
    /// [`BackendError::InvalidArgument`] when there is no device of this number; else what the driver reports.
    pub fn open(ordinal: usize) -> Result<Self, BackendError> {
        let (library, device) = at(ordinal)?;
        static OPENING: Mutex<()> = Mutex::new(());
        let _alone = OPENING.lock();
        let is_it = |shared: &Shared| shared.is_common && shared.context.device().handle() == device.handle();
        if let Some(shared) = find_open(is_it) {
            return Ok(shared.into());
        }
        Self::of(Context::create(library, device)?, ordinal, Key::Common)
    }

    /// The device of this name: `opencl` (the first GPU, or where there is none the first device), `opencl:1` or `1`.
    ///
    /// # Errors
    /// As [`open`](Self::open); for a name that is none, the error lists the names there are.
    pub fn open_by_name(name: &str) -> Result<Self, BackendError> {
        Self::open(listing::find(name, &listing::list()?)?)
    }

    /// As [`open`](Self::open), in a context of its own that takes at most `bytes` of the device's memory: for a device
    /// that is shared with others, and for seeing what a program does when memory is out.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_limit(ordinal: usize, bytes: u64) -> Result<Self, BackendError> {
        let (library, device) = at(ordinal)?;
        Self::of(Context::create(library, device)?, ordinal, Key::Limited(bytes))
    }

    /// The device of somebody else's context, which every handle to it here shares.
    pub(crate) fn of_foreign(context: Context, ordinal: usize) -> Result<Self, BackendError> {
        let is_it = |shared: &Shared| {
            shared.context.is_same(&context) && shared.context.device().handle() == context.device().handle()
        };
        match find_open(is_it) {
            Some(shared) => Ok(shared.into()),
            None => Self::of(context, ordinal, Key::Context),
        }
    }

    fn of(context: Context, ordinal: usize, key: Key) -> Result<Self, BackendError> {
        let shared = Arc::new(Shared::new(context, ordinal, key)?);
        let mut open = OPEN.lock();
        open.retain(|device| device.strong_count() > 0);
        open.push(Arc::downgrade(&shared));
        drop(open);
        Ok(shared.into())
    }

    /// A handle to the same device whose [`create_stream`](Backend::create_stream) makes queues of this order.
    #[must_use]
    pub fn with_queue_order(mut self, order: QueueOrder) -> Self {
        self.order = order;
        self
    }

    /// What the list says of it.
    #[must_use]
    pub fn listed(&self) -> &Listed {
        &self.shared.listed
    }

    /// Its context, for programs, kernels and libraries. It is good for as long as a handle to the device, or a count of
    /// the caller's own (`clRetainContext`), is there.
    #[must_use]
    pub fn context(&self) -> cl::cl_context {
        self.shared.context.handle().raw()
    }

    /// Its number in the driver.
    #[must_use]
    pub fn device(&self) -> cl::cl_device_id {
        self.shared.context.device().handle().raw()
    }

    /// Bytes of dropped memory that are not free yet, because work may still use them: see [`OpenClMemory`].
    #[must_use]
    pub fn deferred_bytes(&self) -> u64 {
        self.shared.deferred.sweep();
        self.shared.deferred.bytes()
    }

    /// A stream on a queue that runs work in any order that its barriers leave. What this crate enqueues is in order all
    /// the same.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn create_out_of_order_stream(&self) -> Result<OpenClStream, BackendError> {
        self.create_stream_of(QueueOrder::OutOfOrder)
    }

    fn create_stream_of(&self, order: QueueOrder) -> Result<OpenClStream, BackendError> {
        Ok(OpenClStream::of(&self.shared, self.shared.context.create_queue(order)?))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    fn check_stream(&self, stream: &OpenClStream) -> Result<(), BackendError> {
        if stream.device() == self.shared.id {
            return Ok(());
        }
        Err(BackendError::invalid("stream", format!("it is one of device {}", stream.device())))
    }

    fn check_mapped(&self, memory: &OpenClMemory) -> Result<(), BackendError> {
        match self.shared.context.is_same(memory.allocation().context()) {
            true => Ok(()),
            false => Err(BackendError::invalid("memory", "it is another device's")),
        }
    }
}

impl From<Arc<Shared>> for OpenClDevice {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared, order: QueueOrder::InOrder }
    }
}

fn at(ordinal: usize) -> Result<(&'static Library, RawDevice), BackendError> {
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

fn same_length(left: u64, right: u64) -> Result<(), BackendError> {
    if left == right {
        return Ok(());
    }
    Err(BackendError::invalid("length", format!("{left} bytes cannot be copied to {right}")))
}

impl Backend for OpenClDevice {
    type Memory = OpenClMemory;
    type Stream = OpenClStream;
    type Event = OpenClEvent;

    fn id(&self) -> DeviceId {
        self.shared.id
    }

    fn properties(&self) -> &Properties {
        &self.shared.properties
    }

    /// By what was taken through this device's handles, and by what the driver says where it has AMD's extension: the
    /// standard has no such question.
    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.shared.deferred.sweep();
        let (total_bytes, free_bytes) = (self.shared.account.limit(), self.shared.free_bytes());
        Ok(MemoryInfo { free_bytes, total_bytes })
    }

    fn allocate(&self, bytes: u64, kind: MemoryKind) -> Result<OpenClMemory, BackendError> {
        if bytes == 0 {
            return Err(BackendError::invalid("bytes", "an allocation has at least 1"));
        }
        let most = self.shared.properties.max_allocation;
        if bytes > most {
            return Err(BackendError::invalid(
                "bytes",
                format!("{bytes} are more than the {most} that one allocation of this device may have"),
            ));
        }
        let origin = origin_of(kind, &self.shared)?;
        self.shared.deferred.sweep();
        let allocation = match self.shared.allocate(bytes, origin) {
            // What was dropped under work is free when that is done.
            Err(error) if error.is_out_of_memory() && self.shared.deferred.finish() => {
                self.shared.allocate(bytes, origin)
            }
            answer => answer,
        }?;
        Ok(OpenClMemory::new(&self.shared, allocation, kind))
    }

    fn create_stream(&self) -> Result<OpenClStream, BackendError> {
        self.create_stream_of(self.order)
    }

    fn synchronize(&self, stream: &OpenClStream) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        self.shared.context.synchronize(stream.raw())
    }

    fn record(&self, stream: &OpenClStream) -> Result<OpenClEvent, BackendError> {
        self.check_stream(stream)?;
        Ok(OpenClEvent::new(self.shared.context.record(stream.raw())?))
    }

    fn wait(&self, stream: &OpenClStream, event: &OpenClEvent) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        if !self.shared.context.is_same(event.raw().context()) {
            return Err(BackendError::invalid("event", "it is one of another context"));
        }
        self.shared.context.wait(stream.raw(), &[event.raw()])
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
        same_length(source.len(), destination.len())?;
        source.memory().use_on(stream);
        destination.memory().use_on(stream);
        if source.memory().is_mapped() && destination.memory().is_mapped() {
            destination.memory().give_to_kernels(stream)?;
        }
        self.shared.context.copy(stream.raw(), span(&source)?, span(&destination)?)
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
        self.shared.context.fill(stream.raw(), span(&destination)?, value)
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
        same_length(source.len() as u64, destination.len())?;
        destination.memory().check_host(cl::CL_MEM_HOST_READ_ONLY)?;
        destination.memory().give_to_kernels(stream)?;
        destination.memory().use_on(stream);
        self.shared.context.upload(stream.raw(), source, span(&destination)?)
    }

    fn download(
        &self,
        stream: &OpenClStream,
        source: Region<'_, OpenClMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        self.check_stream(stream)?;
        stream.check_regions(Some(&source), None)?;
        same_length(source.len(), destination.len() as u64)?;
        source.memory().check_host(cl::CL_MEM_HOST_WRITE_ONLY)?;
        source.memory().give_to_kernels(stream)?;
        source.memory().use_on(stream);
        self.shared.context.download(stream.raw(), span(&source)?, destination)
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
