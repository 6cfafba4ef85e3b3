//! Memory of a CUDA device.

use crate::driver::{Allocation, Origin, Span};
use vrampool_backend::{BackendError, Memory, MemoryKind, Placement, Region, Usage};

/// Memory of a [`CudaDevice`](crate::CudaDevice): its own, pinned memory of the host, or managed memory.
///
/// Dropping it frees it, and may block: the driver waits for all work of the context before it takes memory back, which
/// is what keeps pending work away from memory that is allocated later. Dropping works on any thread.
#[derive(Debug)]
pub struct CudaMemory {
    allocation: Allocation,
    kind: MemoryKind,
}

impl CudaMemory {
    /// For [`Placement::HostVisible`]: asks by name that kernels reach the memory (`CU_MEMHOSTALLOC_DEVICEMAP`). On every
    /// device that [`CudaDevice`](crate::CudaDevice) opens they do in any case.
    pub const MAPPED: Usage = Usage(1);

    pub(crate) fn new(allocation: Allocation, kind: MemoryKind) -> Self {
        Self { allocation, kind }
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
            return Err(BackendError::Unsupported { operation: "mapping memory that is not host-visible" });
        }
        Span::new(&self.allocation, offset, bytes as u64)
    }
}

/// The call that makes memory of a kind.
pub(crate) fn origin_of(kind: MemoryKind) -> Origin {
    match kind.placement {
        Placement::Device => Origin::Device,
        Placement::HostVisible => Origin::Pinned { mapped: kind.usage.0 & CudaMemory::MAPPED.0 != 0 },
        Placement::Managed => Origin::Managed,
    }
}

/// The bytes that a region names.
pub(crate) fn span<'a>(region: &Region<'a, CudaMemory>) -> Result<Span<'a>, BackendError> {
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
