//! Memory of a CUDA device.

use crate::charge::{Charge, Leave};
use crate::driver::{Allocation, Origin, Span};
use crate::stream_core::StreamCore;
use std::sync::Arc;
use vrampool_backend::{BackendError, Memory, MemoryKind, Placement, Region, Usage};

/// Memory of a [`CudaDevice`](crate::CudaDevice): its own, pinned memory of the host, or managed memory.
///
/// Dropping it frees it, and may block: the driver waits for all work of the context before it takes memory
/// back, which is what keeps pending work away from memory that is allocated later. Dropping works on any
/// thread.
///
/// Memory that came in the order of a stream ([`DriverPool`](crate::DriverPool), [`Backend::allocate_on`]) is
/// freed in the order of that stream, without a wait: whoever used it on another stream makes that one wait
/// first, or gives it back by [`Backend::free_on`].
///
/// A [reservation](vrampool_backend::VirtualMemory::reserve) is one of these too, with what is mapped there
/// behind its addresses.
///
/// [`Backend::allocate_on`]: vrampool_backend::Backend::allocate_on
/// [`Backend::free_on`]: vrampool_backend::Backend::free_on
#[derive(Debug)]
pub struct CudaMemory {
    /// Dropped before the allocation, if there are hooks to be told.
    _leave: Option<Leave>,
    allocation: Allocation,
    kind: MemoryKind,
    /// Dropped after the allocation: what it counts as used in a [`DriverPool`](crate::DriverPool), until it
    /// is given back.
    _charge: Option<Charge>,
}

impl CudaMemory {
    /// For [`Placement::HostVisible`]: asks by name that kernels reach the memory
    /// (`CU_MEMHOSTALLOC_DEVICEMAP`). On every device that [`CudaDevice`](crate::CudaDevice) opens they do in
    /// any case.
    pub const MAPPED: Usage = Usage(1);

    pub(crate) fn new(allocation: Allocation, kind: MemoryKind) -> Self {
        Self { _leave: None, allocation, kind, _charge: None }
    }

    /// The first `bytes` of what a driver's pool gave, on whose account it is.
    pub(crate) fn charged(allocation: Allocation, bytes: u64, charge: Charge) -> Self {
        let kind = Placement::Device.into();
        Self { _leave: charge.leave(), allocation: allocation.shown_as(bytes), kind, _charge: Some(charge) }
    }

    /// Has it freed in the order of `stream`, if it came in the order of one. All work on it is on `stream`
    /// or before it.
    pub(crate) fn free_behind(&mut self, stream: &Arc<StreamCore>) {
        self.allocation.free_behind(stream);
    }

    /// Of what kind it is.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    pub(crate) fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub(crate) fn into_allocation(self) -> Allocation {
        self.allocation
    }

    /// A range for the host's own reads and writes.
    pub(crate) fn mapped(&self, offset: u64, bytes: usize) -> Result<Span<'_>, BackendError> {
        if self.kind.placement == Placement::Device {
            return Err(BackendError::unsupported("mapping memory that is not host-visible"));
        }
        Span::new(&self.allocation, offset, bytes as u64)
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
    Span::new(region.memory().allocation(), region.offset(), region.len())
}

impl Memory for CudaMemory {
    fn len(&self) -> u64 {
        self.allocation.len()
    }

    fn address(&self) -> Option<u64> {
        Some(self.allocation.address())
    }
}
