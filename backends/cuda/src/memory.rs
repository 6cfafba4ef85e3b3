//! Memory of a CUDA device.

use crate::driver::{Allocation, Context, Origin, RawPool, Span};
use crate::stream_core::StreamCore;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use vrampool_backend::spi::Grant;
use vrampool_backend::{BackendError, Memory, MemoryKind, Placement, Region, Usage, fork::ForkArc};

/// Memory of a [`CudaDevice`](crate::CudaDevice): its own, pinned memory of the host, or managed memory.
///
/// Dropping it frees it, and may block: the driver waits for all work of the context before it takes memory
/// back, which is what keeps pending work away from memory that is allocated later. Dropping works on any
/// thread.
///
/// Memory that came in the order of a stream ([`DriverPool`](crate::DriverPool), [`Backend::allocate_on`]) is
/// freed in the order of that stream, without a wait: the code that used it on another stream makes that one wait
/// first, or releases it by [`Backend::free_on`].
///
/// A [reservation](vrampool_backend::VirtualMemory::reserve) is one of these too, with what is mapped there
/// behind its addresses.
///
/// [`Backend::allocate_on`]: vrampool_backend::Backend::allocate_on
/// [`Backend::free_on`]: vrampool_backend::Backend::free_on
#[derive(Debug)]
pub struct CudaMemory {
    pub(crate) allocation: Allocation,
    kind: MemoryKind,
    /// The streams that use the memory, if the host may use it too.
    users: Mutex<Users>,
    /// Dropped after the allocation: the bytes that are charged to a [`DriverPool`](crate::DriverPool), which it
    /// keeps.
    _charge: Option<(Grant, ForkArc<RawPool>)>,
}

impl CudaMemory {
    /// For [`Placement::HostVisible`]: asks by name that kernels reach the memory
    /// (`CU_MEMHOSTALLOC_DEVICEMAP`). On every device that [`CudaDevice`](crate::CudaDevice) opens they do in
    /// any case.
    pub const MAPPED: Usage = Usage(1);

    pub(crate) fn new(allocation: Allocation, kind: MemoryKind) -> Self {
        Self { allocation, kind, users: Mutex::default(), _charge: None }
    }

    /// An allocation of a driver's pool, charged to that pool.
    pub(crate) fn charged(allocation: Allocation, grant: Grant, pool: &ForkArc<RawPool>) -> Self {
        Self { _charge: Some((grant, pool.clone())), ..Self::new(allocation, Placement::Device.into()) }
    }

    /// Of what kind it is.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// Notes that work on `stream` uses it.
    pub(crate) fn used_on(&self, stream: &Arc<StreamCore>) {
        if self.kind.placement != Placement::Device {
            self.users.lock().add(stream);
        }
    }

    /// All bytes, once the work that uses them is complete.
    pub(crate) fn in_place(&mut self) -> Result<&[u8], BackendError> {
        if self.kind.placement != Placement::HostVisible {
            return Err(BackendError::unsupported("the host's use of memory in place that is not pinned"));
        }
        let users = self.users.get_mut();
        users.wait(self.allocation.context())?;
        *users = Users::default();
        self.allocation.bytes_in_place()
    }

    /// A range for the host's own reads and writes.
    pub(crate) fn mapped(&self, offset: u64, bytes: usize) -> Result<Span<'_>, BackendError> {
        if self.kind.placement == Placement::Device {
            return Err(BackendError::unsupported("mapping memory that is not host-visible"));
        }
        Span::new(&self.allocation, offset, bytes as u64)
    }
}

/// The streams with work that may use a memory.
#[derive(Debug, Default)]
struct Users {
    streams: Vec<Weak<StreamCore>>,
    /// Whether streams were dropped with work that may be pending.
    is_incomplete: bool,
}

impl Users {
    fn add(&mut self, stream: &Arc<StreamCore>) {
        let before = self.streams.len();
        self.streams.retain(|user| user.strong_count() > 0);
        self.is_incomplete |= self.streams.len() < before;
        if !self.streams.iter().any(|user| std::ptr::eq(user.as_ptr(), Arc::as_ptr(stream))) {
            self.streams.push(Arc::downgrade(stream));
        }
    }

    /// Waits for their work, or for all work of the context where one of them cannot be waited for.
    fn wait(&self, context: &Context) -> Result<(), BackendError> {
        let current = context.enter()?;
        let mut is_incomplete = self.is_incomplete;
        for stream in &self.streams {
            match stream.upgrade() {
                // It was waited for.
                Some(stream) if stream.queue().is_retired() => {}
                Some(stream) if !stream.queue().is_of_another_thread() => {
                    current.synchronize(stream.queue())?;
                }
                _ => is_incomplete = true,
            }
        }
        if is_incomplete { current.synchronize_all() } else { Ok(()) }
    }
}

/// The call that makes memory of a kind.
pub(crate) fn origin_of(kind: MemoryKind) -> Result<Origin, BackendError> {
    match kind.placement {
        Placement::Device => Ok(Origin::Device),
        Placement::HostVisible => Ok(Origin::Pinned { mapped: kind.usage.0 & CudaMemory::MAPPED.0 != 0 }),
        Placement::Managed => Ok(Origin::Managed),
        _ => Err(BackendError::unsupported("this placement")),
    }
}

/// The bytes that a region names.
pub(crate) fn span<'a>(region: &'a Region<'_, CudaMemory>) -> Result<Span<'a>, BackendError> {
    Span::new(&region.memory().allocation, region.offset(), region.len())
}

impl Memory for CudaMemory {
    fn len(&self) -> u64 {
        self.allocation.len()
    }

    fn address(&self) -> Option<u64> {
        Some(self.allocation.address())
    }

    fn release(&self) -> bool {
        self.allocation.free_early()
    }
}
