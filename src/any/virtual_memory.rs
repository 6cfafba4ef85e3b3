//! Virtual memory for the enums, by the variant.
#![allow(dead_code, unused_imports, unused_variables, reason = "no backend may be compiled in")]

use super::variants::{AnyDevice, AnyMemory, on_each};
use vrampool_backend::AllocationRequest;
use vrampool_backend::{Backend, BackendError, MemoryKind, Physical, VirtualMemory};

fn absent() -> BackendError {
    BackendError::unsupported("virtual memory")
}

/// Runs the same code on the virtual memory of any variant's device.
macro_rules! on_virtual {
    ($any:expr, $memory:ident => $result:expr) => {
        on_each!($any, device => {
            let $memory = device.virtual_memory().ok_or_else(absent)?;
            $result
        })
    };
}

/// By the device behind it; what that has not is not supported.
impl VirtualMemory for AnyDevice {
    type Memory = AnyMemory;

    fn granularity(&self, kind: MemoryKind) -> Result<u64, BackendError> {
        on_virtual!(self, memory => memory.granularity(kind))
    }

    fn reserve(&self, bytes: u64) -> Result<AnyMemory, BackendError> {
        on_virtual!(self, memory => Ok(memory.reserve(bytes)?.into()))
    }

    fn create_physical(&self, request: &AllocationRequest<'_>) -> Result<Physical, BackendError> {
        on_virtual!(self, memory => memory.create_physical(request))
    }

    fn map(&self, reservation: &AnyMemory, offset: u64, physical: &Physical) -> Result<(), BackendError> {
        on_virtual!(self, memory => memory.map(reservation.try_into()?, offset, physical))
    }

    fn set_access(&self, reservation: &AnyMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        on_virtual!(self, memory => memory.set_access(reservation.try_into()?, offset, bytes))
    }

    fn unmap(&self, reservation: &AnyMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        on_virtual!(self, memory => memory.unmap(reservation.try_into()?, offset, bytes))
    }

    fn create_and_map(
        &self,
        reservation: &AnyMemory,
        offset: u64,
        request: &AllocationRequest<'_>,
    ) -> Result<Physical, BackendError> {
        on_virtual!(self, memory => memory.create_and_map(reservation.try_into()?, offset, request))
    }

    fn has_others(&self) -> bool {
        on_each!(self, device => device.virtual_memory().is_some_and(VirtualMemory::has_others))
    }

    fn synchronize_others(&self) -> Result<(), BackendError> {
        on_virtual!(self, memory => memory.synchronize_others())
    }
}
