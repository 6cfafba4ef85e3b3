//! The host device with switches: leaves waits out, runs something in the middle of a call, lacks a
//! capability.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use vrampool::backend::AllocationRequest;
use vrampool::backend::{Capabilities, DeviceId, MemoryInfo, Properties};
use vrampool::host::{HostDevice, HostEvent, HostMemory, HostStream};
use vrampool::{Backend, BackendError, Region, RegionMut};

type Hook = Box<dyn FnOnce() + Send>;

#[derive(Clone)]
pub(crate) struct Probe {
    pub(crate) inner: HostDevice,
    properties: Properties,
    without_waits: Arc<AtomicBool>,
    on_record: Arc<Mutex<Option<Hook>>>,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl Probe {
    pub(crate) fn new(inner: HostDevice) -> Self {
        let properties = inner.properties().clone();
        Self { inner, properties, without_waits: Arc::default(), on_record: Arc::default() }
    }

    pub(crate) fn with_properties(mut self, change: impl FnOnce(&mut Properties)) -> Self {
        change(&mut self.properties);
        self
    }

    /// Leaves out every wait between streams from now on.
    pub(crate) fn remove_waits(&self) {
        self.without_waits.store(true, Ordering::SeqCst);
    }

    /// Runs `hook` within the next call that records an event, before it does.
    pub(crate) fn on_record(&self, hook: impl FnOnce() + Send + 'static) {
        *self.on_record.lock().expect("no panic under it") = Some(Box::new(hook));
    }
}

impl Backend for Probe {
    type Memory = HostMemory;
    type Stream = HostStream;
    type Event = HostEvent;

    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.inner.memory_info()
    }

    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<HostMemory, BackendError> {
        self.inner.allocate(request)
    }

    fn create_stream(&self) -> Result<HostStream, BackendError> {
        self.inner.create_stream()
    }

    fn synchronize(&self, stream: &HostStream) -> Result<(), BackendError> {
        self.inner.synchronize(stream)
    }

    fn record(&self, stream: &HostStream) -> Result<HostEvent, BackendError> {
        let hook = self.on_record.lock().expect("no panic under it").take();
        if let Some(hook) = hook {
            hook();
        }
        self.inner.record(stream)
    }

    fn wait(&self, stream: &HostStream, event: &HostEvent) -> Result<(), BackendError> {
        if self.without_waits.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.inner.wait(stream, event)
    }

    fn copy(
        &self,
        stream: &HostStream,
        source: Region<'_, HostMemory>,
        destination: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        let within = std::ptr::eq(source.memory(), destination.as_region().memory());
        if within && !self.properties.capabilities.contains(Capabilities::COPY_WITHIN_MEMORY) {
            return Err(BackendError::unsupported("copying within one memory"));
        }
        let granularity = self.properties.copy_granularity;
        if source.len() % granularity != 0 || source.offset() % granularity != 0 {
            return Err(BackendError::invalid("range", "it is off the copy granularity"));
        }
        self.inner.copy(stream, source, destination)
    }

    fn fill(
        &self,
        stream: &HostStream,
        destination: RegionMut<'_, HostMemory>,
        value: u8,
    ) -> Result<(), BackendError> {
        self.inner.fill(stream, destination, value)
    }

    fn upload(
        &self,
        stream: &HostStream,
        source: &[u8],
        destination: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        self.inner.upload(stream, source, destination)
    }

    fn download(
        &self,
        stream: &HostStream,
        source: Region<'_, HostMemory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        self.inner.download(stream, source, destination)
    }
}
