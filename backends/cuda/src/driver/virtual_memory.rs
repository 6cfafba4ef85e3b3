//! Virtual memory of the driver.

use super::allocation::{Allocation, Origin};
use super::context::{Context, Current};
use super::layouts::{AccessDescriptor, Location, PhysicalProperties, handle_type, windows_attributes};
use crate::error::{INVALID_VALUE, OUT_OF_MEMORY};
use parking_lot::MutexGuard;
use std::ffi::c_int;
use std::ops::Range;
use vrampool_backend::spi::Mappings;
use vrampool_backend::{BackendError, Scarce, ShareableKind, arguments};

/// `CU_MEM_ALLOCATION_TYPE_PINNED`
const PINNED: c_int = 1;
/// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`
const MINIMUM: c_int = 0;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`
const READ_AND_WRITE: c_int = 3;

/// The purpose of physical memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PhysicalTraits {
    /// The driver's number of its device.
    pub(crate) device: c_int,
    /// Whether network cards are to reach it.
    pub(crate) direct_rdma: bool,
    /// As what it can be exported.
    pub(crate) shareable: Option<ShareableKind>,
    /// Whether other libraries, which find it by its address, can export it as a file descriptor: PyTorch for another
    /// process, NCCL for its peers.
    pub(crate) is_found_by_address: bool,
}

impl PhysicalTraits {
    fn properties(self) -> PhysicalProperties {
        PhysicalProperties {
            kind: PINNED,
            shareable: self
                .shareable
                .or(self.is_found_by_address.then_some(ShareableKind::FileDescriptor))
                .map_or(0, handle_type),
            location: Location::device(self.device),
            windows: windows_attributes(self.shareable),
            direct_rdma: u8::from(self.direct_rdma),
            ..PhysicalProperties::default()
        }
    }
}

/// Physical memory. Dropping it gives the handle up; the driver keeps the memory while it is mapped anywhere,
/// or another process has it.
#[derive(Debug)]
pub(crate) struct RawPhysical {
    /// A `CUmemGenericAllocationHandle`.
    handle: u64,
    bytes: u64,
    shareable: Option<ShareableKind>,
    context: Context,
}

impl RawPhysical {
    /// # Safety
    /// `handle` is of memory on the device of `context`, and the caller gives it away: nothing else releases
    /// it.
    pub(super) unsafe fn adopt(
        context: &Context,
        handle: u64,
        bytes: u64,
        shareable: Option<ShareableKind>,
    ) -> Self {
        Self { handle, bytes, shareable, context: context.clone() }
    }

    pub(super) fn handle(&self) -> u64 {
        self.handle
    }

    /// Where it is, if the driver reports it.
    pub(super) fn location(&self) -> Option<Location> {
        let ask = self.context.library.virtual_memory().ok()?.cuMemGetAllocationPropertiesFromHandle;
        let mut properties = PhysicalProperties::default();
        let _current = self.context.enter().ok()?;
        // SAFETY: this value keeps its handle alive; the properties that the call writes are as CUDA's header
        // has them.
        let code = unsafe { ask(&raw mut properties, self.handle) };
        (code == 0).then_some(properties.location)
    }

    /// As what it can be exported.
    pub(crate) fn shareable(&self) -> Option<ShareableKind> {
        self.shareable
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }
}

impl Drop for RawPhysical {
    fn drop(&mut self) {
        // On a lost device the memory was released with its context.
        let Ok(current) = self.context.enter() else { return };
        let Ok(functions) = self.context.library.virtual_memory() else { return };
        let _relaxed = current.relaxed();
        // SAFETY: this value owned the handle. Mappings of the memory, and so work that uses it, keep the
        // memory.
        let _ = unsafe { (functions.cuMemRelease)(self.handle) };
    }
}

impl Context {
    /// The granularity of sizes and offsets of this memory.
    pub(crate) fn granularity(&self, of: PhysicalTraits) -> Result<u64, BackendError> {
        let functions = self.library.virtual_memory()?;
        let (mut bytes, properties) = (0, of.properties());
        let _current = self.enter()?;
        let ask = functions.cuMemGetAllocationGranularity;
        // SAFETY: the properties are as CUDA's header has them and live here, as does the size that the call
        // writes.
        let code = unsafe { ask(&raw mut bytes, &raw const properties, MINIMUM) };
        self.library.check("cuMemGetAllocationGranularity", code)?;
        Ok(bytes as u64)
    }

    /// Addresses with nothing behind them.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Allocation, BackendError> {
        let functions = self.library.virtual_memory()?;
        let (mut address, size) = (0, size(bytes)?);
        let current = self.enter()?;
        let _relaxed = current.relaxed();
        // SAFETY: the call writes one address, which lives here; alignment and place are left to the driver.
        let code = unsafe { (functions.cuMemAddressReserve)(&raw mut address, size, 0, 0, 0) };
        match code {
            OUT_OF_MEMORY => return Err(BackendError::lacks(bytes, Scarce::Addresses)),
            INVALID_VALUE => {
                let reason = format!("the driver reserves no {bytes} bytes of address space");
                return Err(BackendError::invalid("bytes", reason));
            }
            code => self.library.check("cuMemAddressReserve", code)?,
        }
        // SAFETY: the driver gave these addresses just now, and nothing else has them.
        Ok(unsafe { Allocation::adopt(self, address, bytes, Origin::Reserved) })
    }

    pub(crate) fn create_physical(
        &self,
        bytes: u64,
        of: PhysicalTraits,
    ) -> Result<RawPhysical, BackendError> {
        let functions = self.library.virtual_memory()?;
        let (mut handle, size, properties) = (0, size(bytes)?, of.properties());
        let current = self.enter()?;
        let _relaxed = current.relaxed();
        // SAFETY: the properties are as CUDA's header has them and live here, as does the handle that the
        // call writes.
        let code = unsafe { (functions.cuMemCreate)(&raw mut handle, size, &raw const properties, 0) };
        current.served("cuMemCreate", code, bytes)?;
        // SAFETY: the driver made the handle just now, and nothing else has it.
        Ok(unsafe { RawPhysical::adopt(self, handle, bytes, of.shareable) })
    }
}

impl Current<'_> {
    pub(super) fn served(&self, call: &'static str, code: c_int, requested: u64) -> Result<(), BackendError> {
        if code == OUT_OF_MEMORY {
            let free = self.memory_info().ok().map(|(free, _)| free);
            return Err(BackendError::out_of_memory(requested, free));
        }
        self.context.library.check(call, code)
    }

    /// Waits for all work of the context, and returns whether it could. Freeing memory waits for it too, and unlike
    /// waiting for a context does so, and no harm, while a stream of it is captured.
    fn is_drained(&self) -> bool {
        self.context.allocate(1, Origin::Device).is_ok() || self.synchronize_all().is_ok()
    }
}

/// Reservations. The table of mappings is locked while the driver is called: it says what the driver has.
impl Allocation {
    /// Maps all of `physical` at `offset`.
    pub(crate) fn map(&self, offset: u64, physical: &RawPhysical) -> Result<(), BackendError> {
        self.map_first(physical.bytes, offset, physical)
    }

    /// As [`map`](Self::map), of `bytes` bytes, which the driver refuses unless it has so many.
    pub(super) fn map_first(
        &self,
        bytes: u64,
        offset: u64,
        physical: &RawPhysical,
    ) -> Result<(), BackendError> {
        let ((mut mappings, range), size) = (self.mappings_of(offset, bytes)?, size(bytes)?);
        mappings.check_free(&range)?;
        let functions = self.context().library.virtual_memory()?;
        let current = self.context().enter()?;
        let _relaxed = current.relaxed();
        // SAFETY: the range is one of a reservation, which this value owns, and nothing is mapped there; the
        // handle is alive. The driver keeps the memory for as long as it is mapped.
        let code = unsafe { (functions.cuMemMap)(self.address() + offset, size, 0, physical.handle, 0) };
        current.served("cuMemMap", code, bytes)?;
        mappings.insert(&range, ());
        Ok(())
    }

    /// Lets the devices of these numbers of the driver's, of which the context's is one, use whole mappings.
    pub(crate) fn set_access(&self, offset: u64, bytes: u64, devices: &[c_int]) -> Result<(), BackendError> {
        let ((mut mappings, range), size) = (self.mappings_of(offset, bytes)?, size(bytes)?);
        mappings.check_whole(&range)?;
        let allow = |&device| AccessDescriptor { location: Location::device(device), flags: READ_AND_WRITE };
        let access: Vec<_> = devices.iter().map(allow).collect();
        let functions = self.context().library.virtual_memory()?;
        let current = self.context().enter()?;
        let _relaxed = current.relaxed();
        let (start, set) = (self.address() + offset, functions.cuMemSetAccess);
        // SAFETY: the range is made of whole mappings in a reservation, which this value owns; the call reads
        // the number of descriptors that it is passed, which are as CUDA's header has them.
        let code = unsafe { set(start, size, access.as_ptr(), access.len()) };
        current.served("cuMemSetAccess", code, bytes)?;
        mappings.make_accessible(&range);
        Ok(())
    }

    /// Takes whole mappings out. The caller knows that no work of any device uses them; if some does, it
    /// fails.
    pub(crate) fn unmap(&self, offset: u64, bytes: u64) -> Result<(), BackendError> {
        let (mut mappings, range) = self.mappings_of(offset, bytes)?;
        mappings.check_whole(&range)?;
        let current = self.context().enter()?;
        let _relaxed = current.relaxed();
        self.unmap_now(&range)?;
        mappings.remove(&range);
        Ok(())
    }

    fn unmap_now(&self, range: &Range<u64>) -> Result<(), BackendError> {
        let (library, size) = (self.context().library, size(range.end - range.start)?);
        // SAFETY: the range is made of whole mappings in a reservation, which this value owns. Work that
        // touches it from now on fails, and touches nothing else, because the addresses stay reserved.
        let code = unsafe { (library.virtual_memory()?.cuMemUnmap)(self.address() + range.start, size) };
        library.check("cuMemUnmap", code)
    }

    /// Unmaps everything once the context's work is complete, and releases the addresses. For the drop.
    pub(super) fn unreserve(&self, current: &Current<'_>) -> Result<(), BackendError> {
        let (library, size) = (self.context().library, size(self.len())?);
        // Nothing else has this value any more.
        let runs = self.mappings().map(|mappings| mappings.lock().runs()).unwrap_or_default();
        if !runs.is_empty() && (!current.is_drained() || self.context().wait_for_peers().is_err()) {
            // Better mapped for good than unmapped under work. What brings this about is a lost device.
            return Ok(());
        }
        for run in &runs {
            self.unmap_now(run)?;
        }
        // SAFETY: this value owned the reservation, all of it, and nothing is mapped there any more.
        let code = unsafe { (library.virtual_memory()?.cuMemAddressFree)(self.address(), size) };
        library.check("cuMemAddressFree", code)
    }

    /// The table, locked, and a range that does not leave the reservation.
    fn mappings_of(
        &self,
        offset: u64,
        bytes: u64,
    ) -> Result<(MutexGuard<'_, Mappings<()>>, Range<u64>), BackendError> {
        let mappings =
            self.mappings().ok_or_else(|| BackendError::invalid("reservation", "it is other memory"))?;
        let range = arguments::check_range(offset, bytes, self.len())?;
        Ok((mappings.lock(), range))
    }
}

fn size(bytes: u64) -> Result<usize, BackendError> {
    usize::try_from(bytes).map_err(|_| BackendError::invalid("bytes", "more than an address space has"))
}
