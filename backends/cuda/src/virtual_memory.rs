//! Virtual memory of a device: checks before driver calls, and creation of physical memory.

use crate::device::CudaDevice;
use crate::driver::{Context, Library, PhysicalTraits, RawDevice, RawPhysical};
use crate::error::{INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED};
use crate::memory::CudaMemory;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vrampool_backend::AllocationRequest;
use vrampool_backend::{
    Backend, BackendError, DeviceId, MemoryKind, Physical, Placement, ShareableKind, VirtualMemory, fork,
    logging,
};

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`, which not all bindings have.
const FABRIC_SUPPORTED: i32 = 128;

/// How physical memory is made on one device: what the driver says, and what it turned out to do.
#[derive(Debug)]
pub(crate) struct PhysicalMaker {
    /// The driver's number of the device.
    device: i32,
    /// Whether the driver says that it makes handles for other processes. Of fabric handles it says so
    /// untruly.
    is_said_to_share: bool,
    /// Whether network cards can reach memory: as the driver says, until it refuses to make such memory.
    direct_rdma: AtomicBool,
    granularity: OnceLock<u64>,
    /// The kinds of handle that were tried and worked.
    pub(crate) shareable_kinds: OnceLock<Vec<ShareableKind>>,
}

impl PhysicalMaker {
    /// For a device with virtual memory.
    pub(crate) fn of(library: &Library, device: RawDevice) -> Result<Option<Self>, BackendError> {
        let has = |attribute| Ok::<_, BackendError>(device.attribute(attribute)? != 0);
        let there = has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)?;
        if !there || !library.has_virtual_memory() {
            return Ok(None);
        }
        let direct_rdma = has(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)?;
        let descriptors = has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
        // An older driver does not know the attribute, and has no such handles.
        let fabric = device.attribute_numbered(FABRIC_SUPPORTED).is_ok_and(|value| value != 0);
        Ok(Some(Self {
            device: device.handle(),
            is_said_to_share: descriptors || fabric,
            direct_rdma: direct_rdma.into(),
            granularity: OnceLock::new(),
            shareable_kinds: OnceLock::new(),
        }))
    }

    pub(crate) fn is_said_to_share(&self) -> bool {
        self.is_said_to_share
    }

    /// The driver's number of the device.
    pub(crate) fn device(&self) -> i32 {
        self.device
    }

    pub(crate) fn granularity(&self, context: &Context) -> Result<u64, BackendError> {
        if let Some(&known) = self.granularity.get() {
            return Ok(known);
        }
        let (bytes, _) = self.with_rdma_or_without(None, |traits| context.granularity(traits))?;
        match bytes.is_power_of_two() {
            true => Ok(*self.granularity.get_or_init(|| bytes)),
            false => Err(BackendError::unsupported("a granularity that is no power of two")),
        }
    }

    pub(crate) fn create(
        &self,
        context: &Context,
        bytes: u64,
        shareable: Option<ShareableKind>,
    ) -> Result<RawPhysical, BackendError> {
        let create = |traits| context.create_physical(bytes, traits);
        let (physical, direct_rdma) = self.with_rdma_or_without(shareable, create)?;
        if shareable.is_none() && !direct_rdma {
            // Relaxed: a hint, which saves a refused call.
            self.direct_rdma.store(false, Relaxed);
        }
        Ok(physical)
    }

    /// What `ask` answers for memory that network cards can reach; where it is refused, for memory that they
    /// cannot.
    fn with_rdma_or_without<T>(
        &self,
        shareable: Option<ShareableKind>,
        ask: impl Fn(PhysicalTraits) -> Result<T, BackendError>,
    ) -> Result<(T, bool), BackendError> {
        let with = |direct_rdma| {
            let answer = ask(PhysicalTraits { device: self.device, direct_rdma, shareable });
            answer.map(|answer| (answer, direct_rdma))
        };
        match self.direct_rdma.load(Relaxed) {
            true => with(true).or_else(|error| if is_refusal(&error) { with(false) } else { Err(error) }),
            false => with(false),
        }
    }
}

/// Whether the driver answers so when it does not make what was asked for.
fn is_refusal(error: &BackendError) -> bool {
    let refusals = [INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED].map(i64::from);
    matches!(error, BackendError::Driver { code, .. } if refusals.contains(code))
}

impl CudaDevice {
    /// Makes the device's context current on this thread, whatever was before, and leaves it so: for the
    /// program's own calls of the driver. What is called here needs no context and leaves none behind.
    ///
    /// The context is let go with the last handle to the device, and a thread that has it current is told so
    /// by the driver.
    ///
    /// # Errors
    /// What the driver reports.
    pub fn ensure_context(&self) -> Result<(), BackendError> {
        self.core().context().make_current()
    }

    pub(crate) fn maker(&self) -> Result<&PhysicalMaker, BackendError> {
        self.core().maker().ok_or(BackendError::unsupported("virtual memory"))
    }

    /// Physical memory of `bytes` bytes, refused where the driver need not be asked.
    pub(crate) fn make_physical(
        &self,
        bytes: u64,
        kind: MemoryKind,
        shareable: Option<ShareableKind>,
    ) -> Result<Physical, BackendError> {
        let (maker, granularity) = (self.maker()?, self.granularity(kind)?);
        check_size(bytes, granularity)?;
        if bytes > self.properties().total_bytes {
            let free = self.memory_info().ok().map(|info| info.free_bytes);
            return Err(BackendError::out_of_memory(bytes, free));
        }
        Ok(Physical::new(bytes, maker.create(self.core().context(), bytes, shareable)?))
    }

    /// What the driver made, of this device.
    pub(crate) fn raw_physical<'a>(&self, physical: &'a Physical) -> Result<&'a RawPhysical, BackendError> {
        let raw = physical.driver::<RawPhysical>()?;
        match self.core().context().is_same(raw.context().cudarc()) {
            true => Ok(raw),
            false => Err(BackendError::invalid("physical", "it is memory of another device")),
        }
    }

    fn check_reservation(&self, reservation: &CudaMemory, offset: u64) -> Result<(), BackendError> {
        fork::check()?;
        if !self.core().context().is_same(reservation.allocation().context().cudarc()) {
            return Err(BackendError::invalid("reservation", "it is another device's"));
        }
        let granularity = self.maker()?.granularity(self.core().context())?;
        match offset.is_multiple_of(granularity) {
            true => Ok(()),
            false => Err(BackendError::invalid(
                "offset",
                format!("{offset} is no multiple of the granularity, {granularity}"),
            )),
        }
    }

    /// The driver's number of a device of this crate's.
    fn number_of(id: DeviceId) -> Result<i32, BackendError> {
        let device = Self::opened(id).ok_or_else(|| {
            BackendError::invalid("devices", format!("{id} is no CUDA device that is open"))
        })?;
        device.maker().map(PhysicalMaker::device)
    }
}

pub(crate) fn check_size(bytes: u64, granularity: u64) -> Result<(), BackendError> {
    match bytes > 0 && bytes.is_multiple_of(granularity) {
        true => Ok(()),
        false => Err(BackendError::invalid(
            "bytes",
            format!("{bytes} is none, or no multiple of the granularity, {granularity}"),
        )),
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
            Placement::Device => self.maker()?.granularity(self.core().context()),
            _ => Err(BackendError::unsupported("mapping memory that is not the device's own")),
        }
    }

    fn reserve(&self, bytes: u64) -> Result<CudaMemory, BackendError> {
        let kind = Placement::Device.into();
        check_size(bytes, self.granularity(kind)?)?;
        Ok(CudaMemory::new(self.core().context().reserve(bytes)?, kind))
    }

    fn create_physical(&self, request: &AllocationRequest<'_>) -> Result<Physical, BackendError> {
        let &AllocationRequest { bytes, kind, .. } = request;
        request.check_alignment(self.granularity(kind)?)?;
        self.make_physical(bytes, kind, None)
    }

    fn map(&self, reservation: &CudaMemory, offset: u64, physical: &Physical) -> Result<(), BackendError> {
        let raw = self.raw_physical(physical)?;
        self.check_reservation(reservation, offset)?;
        reservation.allocation().map(offset, raw)
    }

    /// Without `devices`, this one and all others that can access its memory.
    /// [`BackendError::InvalidArgument`] too for a device that nobody has open.
    fn set_access(
        &self,
        reservation: &CudaMemory,
        offset: u64,
        bytes: u64,
        devices: &[DeviceId],
    ) -> Result<(), BackendError> {
        self.check_reservation(reservation, offset)?;
        let own = self.maker()?.device();
        let access = |numbers: &[i32]| {
            reservation.allocation().set_access(offset, bytes, numbers, numbers.contains(&own))
        };
        if !devices.is_empty() {
            return access(&devices.iter().map(|&id| Self::number_of(id)).collect::<Result<Vec<_>, _>>()?);
        }
        let peers = self.core().context().peers();
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

    /// Waits for all work of other devices that can access the memory and that the process uses.
    fn unmap(&self, reservation: &CudaMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.check_reservation(reservation, offset)?;
        reservation.allocation().context().settle_peers()?;
        reservation.allocation().unmap(offset, bytes)
    }

    fn unmap_settled(&self, reservation: &CudaMemory, offset: u64, bytes: u64) -> Result<(), BackendError> {
        self.check_reservation(reservation, offset)?;
        reservation.allocation().unmap(offset, bytes)
    }

    /// Whether the process has the primary context of another device that can access this one's memory.
    fn has_others(&self) -> bool {
        !fork::is_child() && self.core().context().has_active_peers()
    }

    fn settle_others(&self) -> Result<(), BackendError> {
        fork::check()?;
        self.core().context().settle_peers()
    }
}
