//! Virtual memory of a device: checks before driver calls.

use crate::device::CudaDevice;
use crate::driver::RawPhysical;
use crate::memory::CudaMemory;
use crate::physical::{PhysicalMaker, is_refusal};
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, MemoryKind, Physical, Placement, ShareableKind, VirtualMemory,
    arguments, fork, logging,
};

impl CudaDevice {
    /// Makes the device's context current on this thread, whatever was before, and leaves it so: for the
    /// program's own calls of the driver. What is called here needs no context and leaves none behind.
    ///
    /// The context is let go with the last handle to the device, and a thread that has it current gets an error
    /// by the driver.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn ensure_context(&self) -> Result<(), BackendError> {
        self.core.context.make_current()
    }

    pub(crate) fn maker(&self) -> Result<&PhysicalMaker, BackendError> {
        self.core.maker.as_ref().ok_or(BackendError::unsupported("virtual memory"))
    }

    /// Physical memory of `bytes` bytes, refused where the driver need not be asked.
    pub(crate) fn make_physical(
        &self,
        bytes: u64,
        kind: MemoryKind,
        shareable: Option<ShareableKind>,
    ) -> Result<Physical, BackendError> {
        let (maker, granularity) = (self.maker()?, self.granularity(kind)?);
        arguments::check_granularity(0, bytes, granularity)?;
        if bytes > self.properties().total_bytes {
            let free = self.memory_info().ok().map(|info| info.free_bytes);
            return Err(BackendError::out_of_memory(bytes, free));
        }
        Ok(Physical::new(bytes, maker.create(&self.core.context, bytes, shareable)?))
    }

    /// The driver's allocation, of this device.
    pub(crate) fn raw_physical<'a>(&self, physical: &'a Physical) -> Result<&'a RawPhysical, BackendError> {
        let raw = physical.driver::<RawPhysical>()?;
        match self.core.context.is_same(raw.context().cudarc()) {
            true => Ok(raw),
            false => Err(BackendError::invalid("physical", "it is memory of another device")),
        }
    }

    fn check_reservation(
        &self,
        reservation: &CudaMemory,
        offset: u64,
        bytes: u64,
    ) -> Result<(), BackendError> {
        fork::check()?;
        if !self.core.context.is_same(reservation.allocation.context().cudarc()) {
            return Err(BackendError::invalid("reservation", "it is another device's"));
        }
        arguments::check_granularity(offset, bytes, self.maker()?.granularity(&self.core.context)?)
    }
}

/// The device's own memory alone. A reservation is a [`CudaMemory`] of [`Placement::Device`]; copies and
/// fills of a part that is not mapped, or not accessible, are refused, while a kernel that touches one loses
/// the context. Dropping a reservation in which something is mapped waits for all work of the context, as
/// dropping other memory does. Nothing here is spoilt by, or spoils, a capture.
impl VirtualMemory for CudaDevice {
    type Memory = CudaMemory;

    fn granularity(&self, kind: MemoryKind) -> Result<u64, BackendError> {
        match kind.placement {
            Placement::Device => self.maker()?.granularity(&self.core.context),
            _ => Err(BackendError::unsupported("mapping memory that is not the device's own")),
        }
    }

    fn reserve(&self, bytes: u64) -> Result<CudaMemory, BackendError> {
        let kind = Placement::Device.into();
        arguments::check_granularity(0, bytes, self.granularity(kind)?)?;
        Ok(CudaMemory::new(self.core.context.reserve(bytes)?, kind))
    }

    fn create_physical(&self, request: &AllocationRequest<'_>) -> Result<Physical, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        self.make_physical(bytes, kind, None)
    }

    fn map(&self, reservation: &CudaMemory, offset: u64, physical: &Physical) -> Result<(), BackendError> {
        let raw = self.raw_physical(physical)?;
        self.check_reservation(reservation, offset, physical.len())?;
        reservation.allocation.map(offset, raw)
    }

    fn set_access(&self, reservation: &CudaMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.check_reservation(reservation, offset, bytes)?;
        let own = self.maker()?.device;
        let access = |numbers: &[i32]| reservation.allocation.set_access(offset, bytes, numbers);
        let peers = self.core.context.peers();
        if peers.is_empty() {
            return access(&[own]);
        }
        match access(&[&[own], &*peers].concat()) {
            // A driver may refuse a peer that it says to be one.
            Err(error) if is_refusal(&error) => {
                logging::warn!("{}: its memory is not accessible to other devices: {error}", self.id());
                access(&[own])
            }
            answer => answer,
        }
    }

    fn unmap(&self, reservation: &CudaMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.check_reservation(reservation, offset, bytes)?;
        reservation.allocation.unmap(offset, bytes)
    }

    /// Whether the process has the primary context of another device that can access this one's memory.
    fn has_others(&self) -> bool {
        !fork::is_forked() && self.core.context.has_active_peers()
    }

    fn synchronize_others(&self) -> Result<(), BackendError> {
        fork::check()?;
        self.core.context.wait_for_peers()
    }
}
