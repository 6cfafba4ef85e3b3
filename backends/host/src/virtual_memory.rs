//! Virtual memory on Linux.

use crate::device::HostDevice;
use crate::driver::Reservation;
use crate::fault::Call;
use crate::memory::HostMemory;
use crate::physical::{self, Handle, Origin};
use vrampool_backend::{AllocationRequest, BackendError, MemoryKind, Physical, VirtualMemory, arguments};

/// Reservations have nothing behind them but what is mapped, which is memory of the system's that costs
/// nothing before it is touched. Physical memory is counted like memory that is
/// [allocated](vrampool_backend::Backend::allocate), once, however often it is mapped, until the last handle to it and
/// the last reservation that maps it are dropped and queued work is done.
///
/// Work that touches bytes which are not mapped or not accessible does not run; it is a failure of its
/// stream, as a kernel's panic is. Work that uses physical memory at two addresses and writes it is one too.
/// Unmapping waits for work that is under way there, and is counted in [`races`](HostDevice::races).
impl VirtualMemory for HostDevice {
    type Memory = HostMemory;

    fn granularity(&self, _: MemoryKind) -> Result<u64, BackendError> {
        Ok(self.core.granularity)
    }

    fn reserve(&self, bytes: u64) -> Result<HostMemory, BackendError> {
        self.core.faults.check(Call::Reserve)?;
        arguments::check_granularity(0, bytes, self.core.granularity)?;
        Ok(HostMemory::reserved(&self.core, Reservation::new(bytes)?))
    }

    fn create_physical(&self, request: &AllocationRequest<'_>) -> Result<Physical, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        self.core.faults.check(Call::CreatePhysical)?;
        arguments::check_granularity(0, bytes, self.core.granularity)?;
        self.core.pause_before_allocation();
        physical::create(&self.core, bytes, kind, Origin::Private, || self.core.files.take(bytes))
    }

    fn map(&self, reservation: &HostMemory, offset: u64, physical: &Physical) -> Result<(), BackendError> {
        self.core.faults.check(Call::Map)?;
        let reservation = self.check_range(reservation, offset, physical.len())?;
        let backing = self.check_physical(physical)?.backing();
        reservation.turn(&self.core.claims, offset, physical.len())?.map(physical, backing)
    }

    /// Devices of the host have no access to each other's memory: each has accounts and faults of its own.
    fn set_access(&self, reservation: &HostMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.core.faults.check(Call::SetAccess)?;
        let reservation = self.check_range(reservation, offset, bytes)?;
        reservation.turn(&self.core.claims, offset, bytes)?.allow()
    }

    fn unmap(&self, reservation: &HostMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.core.faults.check(Call::Unmap)?;
        let reservation = self.check_range(reservation, offset, bytes)?;
        reservation.turn(&self.core.claims, offset, bytes)?.unmap()
    }
}

impl HostDevice {
    pub(crate) fn check_physical<'a>(&self, physical: &'a Physical) -> Result<&'a Handle, BackendError> {
        let handle: &Handle = physical.driver()?;
        if std::sync::Arc::ptr_eq(&handle.backing().device, &self.core) {
            return Ok(handle);
        }
        Err(BackendError::invalid("physical", "it is memory of another device"))
    }

    fn check_range<'a>(
        &self,
        memory: &'a HostMemory,
        offset: u64,
        bytes: u64,
    ) -> Result<&'a Reservation, BackendError> {
        if !memory.is_of(&self.core) {
            return Err(BackendError::invalid("reservation", "it is another device's"));
        }
        let reservation = memory.reservation();
        let reservation = reservation
            .ok_or_else(|| BackendError::invalid("reservation", "it is memory of another kind"))?;
        arguments::check_granularity(offset, bytes, self.core.granularity)?;
        Ok(reservation)
    }
}
