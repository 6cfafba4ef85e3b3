//! The state that handles, streams and memory of a device share, and the registry of open devices.

use crate::deferred::Deferred;
use crate::driver::{Allocation, BACKEND, Context, Library, Origin, RawDevice};
use crate::listing;
use crate::releases::Releases;
use crate::stream_core::StreamTable;
use opencl_sys as cl;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::spi::{Ledger, OpenDevices, allocate_with_dropped};
use vrampool_backend::{
    BackendError, Capabilities, DeviceId, DeviceKind, DeviceListing, Properties, fork::ForkArc,
};

/// The common state of a device's handles, streams and memory.
#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) id: DeviceId,
    pub(crate) properties: Properties,
    pub(crate) listed: DeviceListing,
    pub(crate) shared_memory: SharedMemory,
    pub(crate) ledger: Ledger,
    pub(crate) streams: Arc<StreamTable>,
    pub(crate) deferred: Deferred,
    /// Whether each caller that opens the device by its number gets this one.
    is_common: bool,
    pub(crate) context: Context,
}

/// The memory whose addresses host and device can share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedMemory {
    None,
    // Memory that the host has mapped at the moment.
    Coarse,
    // Whole allocations.
    Fine { atomics: bool },
}

impl DeviceCore {
    /// The one that is open and that `is_it`, or a new one in the context that `make` makes.
    pub(crate) fn find_or(
        is_it: impl Fn(&Self) -> bool,
        make: impl FnOnce() -> Result<(Context, Options), BackendError>,
    ) -> Result<ForkArc<Self>, BackendError> {
        let core = OPEN.find_or_open(is_it, || {
            let (context, options) = make()?;
            Self::new(context, options)
        })?;
        Ok(core.into())
    }

    fn new(context: Context, options: Options) -> Result<Self, BackendError> {
        let device = context.device();
        let listed = listing::describe(options.ordinal, device)?;
        let mut properties = Properties::new(BACKEND, listed.device.clone());
        properties.kind = options.kind.unwrap_or(listed.kind);
        let total_bytes = listed.total_bytes.unwrap_or_default();
        let limit = options.limit.unwrap_or(u64::MAX).min(total_bytes);
        properties.total_bytes = total_bytes;
        properties.max_allocation = device.number(cl::CL_DEVICE_MAX_MEM_ALLOC_SIZE)?;
        // The device says it in bits.
        let alignment = device.number(cl::CL_DEVICE_MEM_BASE_ADDR_ALIGN)? / 8;
        properties.alignment = alignment.clamp(1, 1 << 32).next_power_of_two();
        properties.capabilities =
            Capabilities::HOST_VISIBLE | Capabilities::COPY_WITHIN_MEMORY | Capabilities::CONCURRENT_STREAMS;
        let shared_memory = shared_memory(device, context.library());
        properties.capabilities.set(Capabilities::MANAGED, shared_memory != SharedMemory::None);
        let key = match options.is_common {
            // Relaxed: only distinctness matters.
            true => (u128::from(REPLACED.load(Ordering::Relaxed)) << 64) | options.ordinal as u128,
            false => {
                let (context, device) = (context.handle().number(), device.handle().number());
                (1 << 127) | (u128::from(context) << 64) | u128::from(device)
            }
        };
        let releases = (properties.kind == DeviceKind::Discrete).then(Releases::default);
        let deferred = Deferred::new(releases);
        Ok(Self {
            id: DeviceId::new(BACKEND, key),
            properties,
            listed,
            shared_memory,
            ledger: Ledger::new(limit),
            streams: Arc::default(),
            deferred,
            is_common: options.is_common,
            context,
        })
    }

    /// Whether it is the one that all callers share that open `device`. One that is lost gives way.
    pub(crate) fn is_common(&self, device: &RawDevice) -> bool {
        if !self.is_common || self.context.device().handle() != device.handle() {
            return false;
        }
        let lost = self.context.is_lost();
        if lost {
            REPLACED.fetch_add(1, Ordering::Relaxed);
        }
        !lost
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let free = self.ledger.free();
        self.context.device().free_bytes().map_or(free, |reported| reported.min(free))
    }

    /// Allocates memory. When there is none, waits for dropped memory to become free.
    pub(crate) fn allocate(&self, bytes: u64, origin: Origin) -> Result<Allocation, BackendError> {
        let finish = || {
            self.deferred.finish();
            Ok(())
        };
        allocate_with_dropped(|| self.deferred.bytes(), finish, || self.allocate_now(bytes, origin))
    }

    fn allocate_now(&self, bytes: u64, origin: Origin) -> Result<Allocation, BackendError> {
        let grant = self.ledger.reserve(bytes);
        let free = Some(self.free_bytes());
        let grant = grant.map_err(|error| match error {
            BackendError::OutOfMemory { .. } => BackendError::out_of_memory(bytes, free),
            error => error,
        })?;
        self.context.allocate(bytes, origin, grant, free)
    }
}

impl Drop for DeviceCore {
    fn drop(&mut self) {
        self.deferred.finish();
    }
}

fn shared_memory(device: &RawDevice, library: &Library) -> SharedMemory {
    // A device of before OpenCL 2.0 does not know the question.
    let has = match library.shares_addresses() {
        true => device.number(cl::CL_DEVICE_SVM_CAPABILITIES).unwrap_or(0),
        false => 0,
    };
    if has & cl::CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0 {
        SharedMemory::Fine { atomics: has & cl::CL_DEVICE_SVM_ATOMICS != 0 }
    } else if has & cl::CL_DEVICE_SVM_COARSE_GRAIN_BUFFER != 0 {
        SharedMemory::Coarse
    } else {
        SharedMemory::None
    }
}

/// How a device is opened.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Its number among all devices.
    pub(crate) ordinal: usize,
    /// Whether each caller that opens the device by its number gets this one.
    pub(crate) is_common: bool,
    /// The most bytes that are taken.
    pub(crate) limit: Option<u64>,
    /// The reported kind.
    pub(crate) kind: Option<DeviceKind>,
}

/// Every device that some code has a handle to: one for each device of each context, so that one queue has one
/// id.
static OPEN: OpenDevices<DeviceCore> = OpenDevices::new();
/// How often a common context was seen to be lost, and not used again. Part of the key of those that come
/// after.
static REPLACED: AtomicU64 = AtomicU64::new(0);
