//! Address space and physical memory apart: reserve, create, map, unmap.

use crate::{Backend, BackendError, DeviceId, MemoryKind};
use std::fmt;

/// A device on which address space is reserved once and physical memory is mapped into it piece by piece.
///
/// A reservation *is* a [`Backend::Memory`], so regions, copies and kernels work on it as on any other memory; touching
/// a part that is not mapped is an error of the work that does it. All offsets and sizes are multiples of
/// [`granularity`](Self::granularity).
///
/// Shape after CUDA's driver interface (`cuMemAddressReserve`, `cuMemCreate`, `cuMemMap`, `cuMemSetAccess`), which the
/// host can offer too. Costs seen on an H200: creating 5 to 7 µs whatever the size up to 256 MiB, mapping 0.3 µs, setting
/// access 15 to 17 µs *a call*, unmapping 11 µs, releasing 7 to 53 µs: few and large pieces, access once over a range.
pub trait VirtualMemory: Backend {
    /// Physical memory. Dropping it gives it back; while it is mapped, the mapping keeps it.
    type Physical: fmt::Debug + Send + Sync + 'static;

    /// What sizes and offsets must be a multiple of, bytes, for memory of this kind.
    ///
    /// # Errors
    /// What the driver reports.
    fn granularity(&self, kind: MemoryKind) -> Result<u64, BackendError>;

    /// Reserves `bytes` of address space with nothing behind it. Dropping the reservation unmaps and releases it.
    ///
    /// # Errors
    /// What the driver reports.
    fn reserve(&self, bytes: u64) -> Result<Self::Memory, BackendError>;

    /// Creates physical memory that is mapped nowhere yet.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] when there is none left; else what the driver reports.
    fn create_physical(&self, bytes: u64, kind: MemoryKind) -> Result<Self::Physical, BackendError>;

    /// Maps all of `physical` at `offset` of `reservation`. Not readable before [`set_access`](Self::set_access).
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the range leaves the reservation, is mapped already, or `reservation` is
    /// not one; else what the driver reports.
    fn map(
        &self,
        reservation: &Self::Memory,
        offset: u64,
        physical: &Self::Physical,
    ) -> Result<(), BackendError>;

    /// Lets `devices` (this one when empty) read and write a mapped range, which may span several mappings.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    fn set_access(
        &self,
        reservation: &Self::Memory,
        offset: u64,
        bytes: u64,
        devices: &[DeviceId],
    ) -> Result<(), BackendError>;

    /// Takes whole mappings out of a range; the addresses stay reserved. The caller knows that no work uses them.
    ///
    /// # Errors
    /// As [`map`](Self::map); [`BackendError::InvalidArgument`] when the range cuts a mapping.
    fn unmap(&self, reservation: &Self::Memory, offset: u64, bytes: u64) -> Result<(), BackendError>;

    /// Puts other physical memory where a mapping is. Devices that must do more than unmap and map override it (on
    /// ROCm the physical pages come back only after the addresses were freed and reserved again).
    ///
    /// # Errors
    /// As [`map`](Self::map) and [`unmap`](Self::unmap). When mapping fails the range is left unmapped.
    fn remap(
        &self,
        reservation: &Self::Memory,
        offset: u64,
        bytes: u64,
        physical: &Self::Physical,
    ) -> Result<(), BackendError> {
        self.unmap(reservation, offset, bytes)?;
        self.map(reservation, offset, physical)
    }
}
