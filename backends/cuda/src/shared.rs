//! The state that all handles of a device share.

use crate::driver::{BACKEND, Context, RawDevice};
use crate::event_cache::EventCache;
use crate::listing;
use crate::physical::PhysicalMaker;
use crate::stream_core::StreamTable;
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::sync::Arc;
use vrampool_backend::{BackendError, Capabilities, DeviceId, DeviceListing, Properties};

/// The alignment that CUDA's programming guide guarantees: "aligned to at least 256 bytes".
const ALIGNMENT: u64 = 256;

/// The common state of a device's handles, streams and events.
#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) id: DeviceId,
    pub(crate) properties: Properties,
    pub(crate) listed: DeviceListing,
    /// Whether the host may access managed memory while the device works.
    pub(crate) concurrent_managed_access: bool,
    pub(crate) events: EventCache,
    pub(crate) streams: Arc<StreamTable>,
    /// Creates physical memory, on a device with virtual memory.
    pub(crate) maker: Option<PhysicalMaker>,
    pub(crate) context: Context,
}

impl DeviceCore {
    pub(crate) fn new(context: Context) -> Result<Self, BackendError> {
        let library = context.library();
        let ordinal = context.cudarc().ordinal();
        let device = RawDevice::at(library, ordinal)?;
        let has = |attribute| Ok::<_, BackendError>(device.attribute(attribute)? != 0);
        if !has(Attribute::CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)? {
            return Err(BackendError::unsupported("one address space for host and device"));
        }
        let listed = listing::describe(library, ordinal)?;
        let mut properties = Properties::new(BACKEND, listed.device.clone());
        properties.kind = listed.kind;
        properties.total_bytes = listed.total_bytes.unwrap_or_default();
        properties.max_allocation = properties.total_bytes;
        properties.alignment = ALIGNMENT;
        properties.capabilities = Capabilities::HOST_VISIBLE | Capabilities::COPY_WITHIN_MEMORY;
        let managed = has(Attribute::CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY)?;
        properties.capabilities.set(Capabilities::MANAGED, managed);
        let pools = has(Attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)?;
        properties.capabilities.set(Capabilities::STREAM_ORDERED, pools);
        let concurrent = has(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS)?;
        properties.capabilities.set(Capabilities::CONCURRENT_STREAMS, concurrent);
        let maker = PhysicalMaker::of(library, device)?;
        properties.capabilities.set(Capabilities::VIRTUAL_MEMORY, maker.is_some());
        let shares = maker.as_ref().is_some_and(|maker| maker.is_said_to_share);
        properties.capabilities.set(Capabilities::SHARED_HANDLES, shares);
        // A device has at most one primary context. Its other contexts are distinguished by their address.
        let key = match listed.uuid {
            Some(uuid) if context.cudarc().is_primary() => uuid,
            _ => context.cudarc().cu_ctx() as usize as u128,
        };
        Ok(Self {
            id: DeviceId::new(BACKEND, key),
            properties,
            listed,
            concurrent_managed_access: has(Attribute::CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS)?,
            events: EventCache::default(),
            streams: Arc::default(),
            maker,
            context,
        })
    }
}
