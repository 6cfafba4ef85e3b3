//! Virtual memory: reserving address space, creating physical memory, mapping and unmapping.

use crate::{AllocationRequest, BackendError, MemoryKind};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// Operations of a device on which address space is reserved once and physical memory is mapped into it piece by
/// piece. [`Backend::virtual_memory`](crate::Backend::virtual_memory) returns it.
///
/// A reservation *is* a [memory of the backend](crate::Backend::Memory), so regions, copies and kernels work
/// on it as on any other; touching a part that is not mapped, or not accessible, is an error of the work that
/// does it (on a GPU such an error may cost the program its context). All offsets and sizes are multiples of
/// [`granularity`](Self::granularity), and no size is 0.
///
/// The same physical memory may be mapped at several places at a time. Work that writes it through one place
/// is seen by work behind it, in the order of streams, through another; one kernel or copy that uses both is
/// undefined (CUDA's rule of virtual aliasing).
///
/// Shape after CUDA's driver interface (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`, `cuMemSetAccess`),
/// which the host can offer too. Costs seen on an H200: creating 9 µs, mapping 0.6 µs, setting access 20 µs
/// and unmapping 14 µs *for each piece*, however many one call covers and whatever their size; releasing 10
/// to 300 µs by size. While work is under way, creating took 1.7 ms. So: few and large pieces, mapped seldom,
/// kept.
///
/// Every method may be called from any thread. A call that fails has done nothing.
pub trait VirtualMemory: fmt::Debug + Send + Sync {
    /// The backend's memory.
    type Memory;

    /// The granularity of sizes and offsets, bytes, for memory of this kind; a power of two.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] for a kind that cannot be mapped; else errors of the driver.
    fn granularity(&self, kind: MemoryKind) -> Result<u64, BackendError>;

    /// Reserves `bytes` of address space with nothing behind it. Dropping the reservation unmaps and releases
    /// it.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for no bytes or no multiple of the granularity; else errors of the driver.
    fn reserve(&self, bytes: u64) -> Result<Self::Memory, BackendError>;

    /// Creates physical memory that is mapped nowhere yet, as [requested](AllocationRequest). Where the device has it,
    /// network cards can reach it (GPUDirect RDMA).
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] when there is none left; [`BackendError::InvalidArgument`] as for
    /// [`reserve`](Self::reserve); [`BackendError::Unsupported`] as for [`granularity`](Self::granularity);
    /// else what the driver reports.
    fn create_physical(&self, request: &AllocationRequest<'_>) -> Result<Physical, BackendError>;

    /// Maps all of `physical` at `offset` of `reservation`. Not accessible before
    /// [`set_access`](Self::set_access).
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the range leaves the reservation or is mapped already, offset
    /// or size is no multiple of the granularity, `reservation` is not one, or `physical` is another
    /// device's; else errors of the driver.
    fn map(&self, reservation: &Self::Memory, offset: u64, physical: &Physical) -> Result<(), BackendError>;

    /// Lets this device, and every other one that can access its memory, read and write a mapped range, which may
    /// span several mappings.
    ///
    /// # Errors
    /// As [`map`](Self::map); [`BackendError::InvalidArgument`] when the range cuts a mapping or part of it
    /// is not mapped.
    fn set_access(&self, reservation: &Self::Memory, offset: u64, bytes: u64) -> Result<(), BackendError>;

    /// Takes whole mappings out of a range; the addresses stay reserved. The caller knows that no work of any
    /// device uses them: of others, because [`synchronize_others`](Self::synchronize_others) returned after their last
    /// use or [`has_others`](Self::has_others) returned `false` since.
    ///
    /// # Errors
    /// As [`set_access`](Self::set_access).
    fn unmap(&self, reservation: &Self::Memory, offset: u64, bytes: u64) -> Result<(), BackendError>;

    /// Whether other devices that can access this one's memory may have pending work. Waits for nothing.
    /// `false` by default, for backends whose devices do not access each other's memory.
    fn has_others(&self) -> bool {
        false
    }

    /// Waits on the host for the work so far of all other devices that can access this one's memory. By
    /// default there are none.
    ///
    /// # Errors
    /// Errors of the driver; their work may then be pending still.
    fn synchronize_others(&self) -> Result<(), BackendError> {
        Ok(())
    }

    /// New physical memory at `offset` of `reservation`, for this device to read and write: created, mapped,
    /// made accessible, or nothing at all. The building block of allocators of one's own, such as vLLM's
    /// `CuMemAllocator`.
    ///
    /// ```
    /// use vrampool_backend::{AllocationRequest, BackendError, MemoryKind, VirtualMemory};
    /// /// One piece behind the addresses, then none, then another: the addresses stay.
    /// fn sleep_and_wake<M>(device: &dyn VirtualMemory<Memory = M>, kind: MemoryKind) -> Result<M, BackendError> {
    ///     let bytes = device.granularity(kind)?;
    ///     let reservation = device.reserve(bytes)?;
    ///     let physical = device.create_and_map(&reservation, 0, &AllocationRequest::new(bytes, kind))?;
    ///     device.unmap(&reservation, 0, physical.len())?;
    ///     drop(physical);
    ///     // Mapped, it stays without a handle.
    ///     device.create_and_map(&reservation, 0, &AllocationRequest::new(bytes, kind))?;
    ///     Ok(reservation)
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`create_physical`](Self::create_physical), [`map`](Self::map) and
    /// [`set_access`](Self::set_access).
    fn create_and_map(
        &self,
        reservation: &Self::Memory,
        offset: u64,
        request: &AllocationRequest<'_>,
    ) -> Result<Physical, BackendError> {
        let physical = self.create_physical(request)?;
        self.map(reservation, offset, &physical)?;
        match self.set_access(reservation, offset, request.bytes) {
            Ok(()) => Ok(physical),
            Err(error) => {
                // Nothing has touched the range. What went wrong first says more than what goes wrong now.
                let _ = self.unmap(reservation, offset, request.bytes);
                Err(error)
            }
        }
    }
}

/// Physical memory of a device. A clone is another handle to it. When the last one is dropped and nothing
/// maps it, the device has it back.
#[derive(Clone)]
pub struct Physical {
    bytes: u64,
    driver: Arc<dyn Any + Send + Sync>,
}

impl Physical {
    /// For a backend: `bytes` of memory that `driver` has, whose drop releases it.
    pub fn new(bytes: u64, driver: impl Any + Send + Sync) -> Self {
        Self { bytes, driver: Arc::new(driver) }
    }

    /// Its size in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is none without bytes")]
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// For a backend: what it was made of.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when another backend made it.
    pub fn driver<T: Any>(&self) -> Result<&T, BackendError> {
        self.driver
            .downcast_ref()
            .ok_or_else(|| BackendError::invalid("physical", "it is memory of another backend".to_owned()))
    }
}

impl fmt::Debug for Physical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Physical").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
