//! Creation of physical memory of a device.

use crate::driver::{Context, Library, PhysicalTraits, RawDevice, RawPhysical};
use crate::error::{INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use vrampool_backend::{BackendError, ShareableKind};

/// `CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED`, which not all bindings have.
const FABRIC_SUPPORTED: i32 = 128;

/// How physical memory is made on one device: what the driver says, and what it turned out to do.
#[derive(Debug)]
pub(crate) struct PhysicalMaker {
    /// The driver's number of the device.
    pub(crate) device: i32,
    /// Whether the driver says that it makes handles for other processes. Of fabric handles it says so
    /// untruly.
    pub(crate) is_said_to_share: bool,
    /// Whether network cards can reach memory: as the driver says, until it refuses to make such memory.
    direct_rdma: AtomicBool,
    /// Whether other libraries can export memory that they find by its address: as above.
    is_found_by_address: AtomicBool,
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
            is_found_by_address: (descriptors && cfg!(unix)).into(),
            granularity: OnceLock::new(),
            shareable_kinds: OnceLock::new(),
        }))
    }

    pub(crate) fn granularity(&self, context: &Context) -> Result<u64, BackendError> {
        if let Some(&known) = self.granularity.get() {
            return Ok(known);
        }
        let (bytes, _) = self.with_extras_or_without(None, |traits| context.granularity(traits))?;
        match bytes.is_power_of_two() {
            true => Ok(*self.granularity.get_or_init(|| bytes)),
            false => Err(BackendError::unsupported("a granularity that is not a power of two")),
        }
    }

    pub(crate) fn create(
        &self,
        context: &Context,
        bytes: u64,
        shareable: Option<ShareableKind>,
    ) -> Result<RawPhysical, BackendError> {
        let create = |traits| context.create_physical(bytes, traits);
        let (physical, made) = self.with_extras_or_without(shareable, create)?;
        if shareable.is_none() {
            // Relaxed: hints, which save refused calls.
            self.direct_rdma.fetch_and(made.direct_rdma, Relaxed);
            self.is_found_by_address.fetch_and(made.is_found_by_address, Relaxed);
        }
        Ok(physical)
    }

    /// The result of `ask` for memory that network cards can reach and other libraries can export; where that is refused, for
    /// memory with one of the two, and then with neither.
    fn with_extras_or_without<T>(
        &self,
        shareable: Option<ShareableKind>,
        ask: impl Fn(PhysicalTraits) -> Result<T, BackendError>,
    ) -> Result<(T, PhysicalTraits), BackendError> {
        let direct_rdma = self.direct_rdma.load(Relaxed);
        let is_found_by_address = shareable.is_none() && self.is_found_by_address.load(Relaxed);
        let with = |direct_rdma, is_found_by_address| {
            let traits = PhysicalTraits { device: self.device, direct_rdma, shareable, is_found_by_address };
            ask(traits).map(|answer| (answer, traits))
        };
        let all = [(true, true), (false, true), (true, false)];
        for (rdma, by_address) in all {
            if (rdma && !direct_rdma) || (by_address && !is_found_by_address) {
                continue;
            }
            match with(rdma, by_address) {
                Err(error) if is_refusal(&error) => {}
                answered => return answered,
            }
        }
        with(false, false)
    }
}

/// Whether the driver answers so when it does not make what was asked for.
pub(crate) fn is_refusal(error: &BackendError) -> bool {
    let refusals = [INVALID_VALUE, NOT_PERMITTED, NOT_SUPPORTED].map(i64::from);
    matches!(error, BackendError::Driver { code, .. } if refusals.contains(code))
}
