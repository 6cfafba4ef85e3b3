//! A device that measures from below what a pool takes, and that can skip waits, panic, or pass for captured.

mod state;

use state::{Leaving, State, Ticket};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use vrampool_backend::AllocationRequest;
use vrampool_backend::{Backend, BackendError, Memory, MemoryKind, Region, RegionMut, Stream};
use vrampool_backend::{Capabilities, CaptureId, DeviceId, MemoryInfo, Physical, Properties, VirtualMemory};

/// A device that counts the memory taken from the device below it.
#[derive(Debug, Clone)]
pub struct AuditDevice<B: Backend> {
    inner: B,
    properties: Properties,
    state: Arc<State>,
}

/// Memory of an [`AuditDevice`].
#[derive(Debug)]
pub struct AuditMemory<B: Backend> {
    _leaving: Leaving,
    /// The memory below. Released before `ticket`, so that the count is never below what is taken.
    pub inner: B::Memory,
    /// Unset for reserved addresses.
    ticket: Mutex<Option<Ticket>>,
}

impl<B: Backend> AuditDevice<B> {
    /// Wraps a device.
    #[must_use]
    pub fn new(inner: B) -> Self {
        let properties = inner.properties().clone();
        Self { inner, properties, state: Arc::default() }
    }

    /// Reports other properties. Copies that they exclude are refused.
    #[must_use]
    pub fn with_properties(mut self, change: impl FnOnce(&mut Properties)) -> Self {
        change(&mut self.properties);
        self
    }

    /// Returns the device below.
    #[must_use]
    pub fn inner(&self) -> &B {
        &self.inner
    }

    /// Returns the bytes that are taken now.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.state.taken.load(Ordering::SeqCst)
    }

    /// Returns the most bytes that were taken at once.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.state.peak.load(Ordering::SeqCst)
    }

    /// Returns the number of allocations that were requested, failed ones included.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.state.allocations.load(Ordering::SeqCst)
    }

    /// Returns the number of allocations that were released.
    #[must_use]
    pub fn frees(&self) -> u64 {
        self.state.frees.load(Ordering::SeqCst)
    }

    /// Reports every stream as captured, or as not captured, from now on.
    pub fn set_capturing(&self, is_capturing: bool) {
        self.state.capturing.store(is_capturing, Ordering::SeqCst);
    }

    /// Reports these streams, and no others, as captured in one graph from now on. Streams that are captured
    /// already stay in their capture.
    pub fn capture(&self, streams: &[&B::Stream]) {
        let mut captured = self.state.captured.lock().expect("no panic under it");
        let known = streams.iter().find_map(|stream| captured.get(&stream.id()).copied());
        let id = known.unwrap_or_else(|| self.next_capture());
        *captured = streams.iter().map(|stream| (stream.id(), id)).collect();
    }

    /// Reports one more stream as captured, in a capture of its own.
    pub fn capture_separately(&self, stream: &B::Stream) {
        let id = self.next_capture();
        self.state.captured.lock().expect("no panic under it").insert(stream.id(), id);
    }

    fn next_capture(&self) -> CaptureId {
        CaptureId::new(self.state.captures.fetch_add(1, Ordering::SeqCst) + 1)
    }

    /// Returns the number of calls that would fail a capture, or draw another stream into it.
    #[must_use]
    pub fn forbidden(&self) -> u64 {
        self.state.forbidden.load(Ordering::SeqCst)
    }

    fn is_captured(&self, stream: &B::Stream) -> bool {
        self.state.captured.lock().expect("no panic under it").contains_key(&stream.id())
    }

    fn note(&self, stream: &B::Stream) {
        self.state.forbidden.fetch_add(u64::from(self.is_captured(stream)), Ordering::SeqCst);
    }

    /// Panics once, in the `nth` call of that name from now on, counted from 0.
    pub fn panic_in(&self, call: &'static str, nth: u64) {
        *self.state.panics.lock().expect("no panic under it") = Some((call, nth));
    }

    /// Cancels that panic, and returns whether it was still pending.
    pub fn forget_panic(&self) -> bool {
        self.state.panics.lock().expect("no panic under it").take().is_some()
    }

    fn called(&self, name: &'static str) {
        self.state.called(name);
    }

    /// Skips every wait between streams from now on.
    pub fn remove_waits(&self) {
        self.state.without_waits.store(true, Ordering::SeqCst);
    }

    /// Calls `hook` after each release of memory.
    pub fn on_drop(&self, hook: impl Fn() + Send + 'static) {
        *self.state.on_drop.lock().expect("no panic under it") = Some(Box::new(hook));
    }

    /// Calls `hook` before each release of memory.
    pub fn before_drop(&self, hook: impl Fn() + Send + 'static) {
        *self.state.before_drop.lock().expect("no panic under it") = Some(Box::new(hook));
    }

    /// Calls `hook` once, before the next record of an event.
    pub fn before_record(&self, hook: impl FnOnce() + Send + 'static) {
        *self.state.before_record.lock().expect("no panic under it") = Some(Box::new(hook));
    }

    /// Calls `hook` before each answer whether a stream is captured.
    pub fn before_capture_query(&self, hook: impl Fn() + Send + 'static) {
        *self.state.before_capture_query.lock().expect("no panic under it") = Some(Box::new(hook));
    }

    /// Removes the hooks.
    pub fn forget_hook(&self) {
        *self.state.before_capture_query.lock().expect("no panic under it") = None;
        *self.state.on_drop.lock().expect("no panic under it") = None;
        *self.state.before_drop.lock().expect("no panic under it") = None;
    }
}

impl<B: Backend> Memory for AuditMemory<B> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn address(&self) -> Option<u64> {
        self.inner.address()
    }

    fn release(&self) -> bool {
        let is_released = self.inner.release();
        if is_released {
            drop(self.ticket.lock().expect("no panic under it").take());
        }
        is_released
    }
}

/// Returns the same range of the memory below.
fn below<B: Backend>(region: Region<'_, AuditMemory<B>>) -> Result<Region<'_, B::Memory>, BackendError> {
    region.project(|memory| Ok(&memory.inner))
}

fn below_mut<B: Backend>(
    region: RegionMut<'_, AuditMemory<B>>,
) -> Result<RegionMut<'_, B::Memory>, BackendError> {
    region.project(|memory| Ok(&memory.inner))
}

impl<B: Backend> AuditDevice<B> {
    fn book(&self, bytes: u64, inner: B::Memory) -> AuditMemory<B> {
        AuditMemory { _leaving: self.leaving(), inner, ticket: Mutex::new(Some(self.ticket(bytes))) }
    }

    fn leaving(&self) -> Leaving {
        Leaving(Arc::clone(&self.state))
    }

    fn ticket(&self, bytes: u64) -> Ticket {
        let taken = self.state.taken.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.state.peak.fetch_max(taken, Ordering::SeqCst);
        Ticket { bytes, state: Arc::clone(&self.state) }
    }
}

/// Physical memory below, released before `ticket`.
struct AuditPhysical {
    inner: Physical,
    _ticket: Ticket,
}

/// Counts the bytes, allocations and releases of physical memory. Reserved addresses count as nothing.
impl<B: Backend> VirtualMemory for AuditDevice<B> {
    type Memory = AuditMemory<B>;

    fn granularity(&self, kind: MemoryKind) -> Result<u64, BackendError> {
        self.below()?.granularity(kind)
    }

    fn reserve(&self, bytes: u64) -> Result<AuditMemory<B>, BackendError> {
        self.called("reserve");
        Ok(AuditMemory {
            _leaving: self.leaving(),
            inner: self.below()?.reserve(bytes)?,
            ticket: Mutex::default(),
        })
    }

    fn create_physical(&self, request: &AllocationRequest<'_>) -> Result<Physical, BackendError> {
        let bytes = request.bytes;
        self.called("create_physical");
        self.state.allocations.fetch_add(1, Ordering::SeqCst);
        let inner = self.below()?.create_physical(request)?;
        Ok(Physical::new(bytes, AuditPhysical { inner, _ticket: self.ticket(bytes) }))
    }

    fn map(
        &self,
        reservation: &AuditMemory<B>,
        offset: u64,
        physical: &Physical,
    ) -> Result<(), BackendError> {
        self.called("map");
        self.below()?.map(&reservation.inner, offset, &physical.driver::<AuditPhysical>()?.inner)
    }

    fn set_access(&self, reservation: &AuditMemory<B>, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.called("set_access");
        self.below()?.set_access(&reservation.inner, offset, bytes)
    }

    fn unmap(&self, reservation: &AuditMemory<B>, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.called("unmap");
        self.below()?.unmap(&reservation.inner, offset, bytes)
    }

    fn has_others(&self) -> bool {
        self.below().is_ok_and(VirtualMemory::has_others)
    }

    fn synchronize_others(&self) -> Result<(), BackendError> {
        self.below()?.synchronize_others()
    }
}

impl<B: Backend> AuditDevice<B> {
    fn below(&self) -> Result<&dyn VirtualMemory<Memory = B::Memory>, BackendError> {
        self.inner.virtual_memory().ok_or(BackendError::unsupported("virtual memory"))
    }
}

impl<B: Backend> Backend for AuditDevice<B> {
    type Memory = AuditMemory<B>;
    type Stream = B::Stream;
    type Event = B::Event;

    fn id(&self) -> DeviceId {
        self.inner.id()
    }

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn memory_info(&self) -> Result<MemoryInfo, BackendError> {
        self.inner.memory_info()
    }

    fn allocate(&self, request: &AllocationRequest<'_>) -> Result<Self::Memory, BackendError> {
        let bytes = request.bytes;
        // Booked before the device is asked, and only then: what the pool asked for at once, it meant to hold
        // at once.
        self.state.allocations.fetch_add(1, Ordering::SeqCst);
        Ok(self.book(bytes, self.inner.allocate(request)?))
    }

    fn allocate_on(
        &self,
        request: &AllocationRequest<'_>,
        stream: &Self::Stream,
    ) -> Result<Self::Memory, BackendError> {
        let bytes = request.bytes;
        self.state.allocations.fetch_add(1, Ordering::SeqCst);
        self.note(stream);
        Ok(self.book(bytes, self.inner.allocate_on(request, stream)?))
    }

    fn free_on(&self, memory: Self::Memory, stream: &Self::Stream) {
        let AuditMemory { _leaving: leaving, inner, ticket: _ticket } = memory;
        drop(leaving);
        self.inner.free_on(inner, stream);
    }

    fn flush(&self, stream: &Self::Stream) -> Result<(), BackendError> {
        self.inner.flush(stream)
    }

    fn reclaim(&self) -> Result<(), BackendError> {
        self.inner.reclaim()
    }

    fn create_stream(&self) -> Result<Self::Stream, BackendError> {
        self.inner.create_stream()
    }

    fn is_capturing(&self, stream: &Self::Stream) -> Result<bool, BackendError> {
        self.state.run(&self.state.before_capture_query);
        Ok(self.state.capturing.load(Ordering::SeqCst) || self.is_captured(stream))
    }

    fn capture_of(&self, stream: &Self::Stream) -> Result<Option<CaptureId>, BackendError> {
        self.state.run(&self.state.before_capture_query);
        let own = self.state.captured.lock().expect("no panic under it").get(&stream.id()).copied();
        Ok(own.or(self.state.capturing.load(Ordering::SeqCst).then_some(CaptureId::UNKNOWN)))
    }

    fn synchronize(&self, stream: &Self::Stream) -> Result<(), BackendError> {
        self.note(stream);
        self.called("synchronize");
        self.inner.synchronize(stream)
    }

    fn record(&self, stream: &Self::Stream) -> Result<Self::Event, BackendError> {
        self.note(stream);
        self.called("record");
        let hook = self.state.before_record.lock().expect("no panic under it").take();
        if let Some(hook) = hook {
            hook();
        }
        self.inner.record(stream)
    }

    fn wait(&self, stream: &Self::Stream, event: &Self::Event) -> Result<(), BackendError> {
        self.note(stream);
        self.called("wait");
        if self.state.without_waits.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.inner.wait(stream, event)
    }

    fn copy(
        &self,
        stream: &Self::Stream,
        source: Region<'_, Self::Memory>,
        destination: RegionMut<'_, Self::Memory>,
    ) -> Result<(), BackendError> {
        self.called("copy");
        let is_within = std::ptr::eq(source.memory(), destination.as_region().memory());
        if is_within && !self.properties.capabilities.contains(Capabilities::COPY_WITHIN_MEMORY) {
            return Err(BackendError::unsupported("copying within one memory"));
        }
        let granularity = self.properties.copy_granularity;
        if source.len() % granularity != 0 || source.offset() % granularity != 0 {
            return Err(BackendError::invalid("range", "it is off the copy granularity"));
        }
        self.inner.copy(stream, below(source)?, below_mut(destination)?)
    }

    fn fill(
        &self,
        stream: &Self::Stream,
        destination: RegionMut<'_, Self::Memory>,
        value: u8,
    ) -> Result<(), BackendError> {
        self.inner.fill(stream, below_mut(destination)?, value)
    }

    fn upload(
        &self,
        stream: &Self::Stream,
        source: &[u8],
        destination: RegionMut<'_, Self::Memory>,
    ) -> Result<(), BackendError> {
        self.called("upload");
        self.inner.upload(stream, source, below_mut(destination)?)
    }

    fn download(
        &self,
        stream: &Self::Stream,
        source: Region<'_, Self::Memory>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        self.called("download");
        self.inner.download(stream, below(source)?, destination)
    }

    fn write_mapped(&self, memory: &Self::Memory, offset: u64, bytes: &[u8]) -> Result<(), BackendError> {
        self.inner.write_mapped(&memory.inner, offset, bytes)
    }

    fn read_mapped(&self, memory: &Self::Memory, offset: u64, bytes: &mut [u8]) -> Result<(), BackendError> {
        self.inner.read_mapped(&memory.inner, offset, bytes)
    }

    fn mapped<'a>(&self, memory: &'a mut Self::Memory) -> Result<&'a [u8], BackendError> {
        self.inner.mapped(&mut memory.inner)
    }

    fn virtual_memory(&self) -> Option<&dyn VirtualMemory<Memory = AuditMemory<B>>> {
        self.inner.virtual_memory().map(|_| self as &dyn VirtualMemory<Memory = AuditMemory<B>>)
    }
}
