//! How an arena on a device is to be.

use super::state::State;
use super::{DeviceArena, Shared};
use crate::arena::Layout;
use crate::error::Error;
use crate::sync::{Condvar, Mutex};
use parking_lot::Mutex as LongMutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use vrampool_backend::{Backend, BackendError, Memory, MemoryKind, Placement};

/// What a limit of 0 leaves free on a device, bytes (cuArena's).
const DEVICE_MARGIN: u64 = 256 << 20;

/// What a limit of 0 leaves free of host memory, bytes (cuArena's).
const HOST_MARGIN: u64 = 512 << 20;

/// How a [`DeviceArena`] is to be.
///
/// ```
/// # use vrampool::{DeviceArena, Placement, arena::Region, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// let device = HostDevice::builder().capacity(1 << 30).build();
/// let arena = DeviceArena::builder(&device).stable_bytes(64 << 20).memory(Placement::HostVisible).build()?;
/// assert_eq!(arena.capacity(), 512 << 20); // what is free, less the margin
/// assert_eq!(arena.capacity_of(Region::Stable), 64 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ArenaBuilder<B: Backend> {
    device: B,
    limit: u64,
    clamp: bool,
    stable_bytes: u64,
    kind: MemoryKind,
}

impl<B: Backend> ArenaBuilder<B> {
    pub(super) fn new(device: &B) -> Self {
        Self {
            device: device.clone(),
            limit: 0,
            clamp: false,
            stable_bytes: 0,
            kind: device.properties().preferred_placement().into(),
        }
    }

    /// The range's size, bytes. 0, the default, is what is free on the device less a margin of 256 MiB (512 MiB for host
    /// memory), or all of it where that is less.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// A limit above what is free becomes what is free, rather than an error.
    pub fn clamp(mut self) -> Self {
        self.clamp = true;
        self
    }

    /// Bytes at the front that are the stable region, in which nothing moves. Default: 0, none.
    pub fn stable_bytes(mut self, bytes: u64) -> Self {
        self.stable_bytes = bytes;
        self
    }

    /// The kind of memory. Default: what the device prefers.
    pub fn memory(mut self, kind: impl Into<MemoryKind>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Reserves the range.
    ///
    /// # Errors
    /// [`Error::Arena`] for a layout that cannot be, [`Error::Backend`] when the device has not enough memory, which a
    /// limit above what is free means unless it is [clamped](Self::clamp).
    pub fn build(self) -> Result<DeviceArena<B>, Error> {
        let bytes = self.bytes()?;
        let properties = self.device.properties();
        let alignment = properties.alignment.max(properties.copy_granularity.next_power_of_two());
        let layout = Layout::new(bytes).alignment(alignment).stable_bytes(self.stable_bytes);
        let state = State::reserve(&self.device, self.kind, layout, bytes)?;
        let id = self.device.id();
        log::info!("arena on {id}: {bytes} bytes reserved, {} of them stable", self.stable_bytes);
        log::debug!("arena on {id}: {:?}, at {:?}", self.kind, state.range.address());
        let shared = Shared {
            id,
            device: self.device,
            kind: self.kind,
            state: Mutex::new(state),
            settled: Condvar::new(),
            compacting: LongMutex::new(()),
            waits: AtomicU64::new(0),
        };
        Ok(DeviceArena { shared: Arc::new(shared) })
    }

    fn bytes(&self) -> Result<u64, Error> {
        if self.limit > 0 && !self.clamp {
            return Ok(self.limit);
        }
        let free = self.device.memory_info()?.free_bytes;
        if free == 0 {
            return Err(BackendError::OutOfMemory { requested: self.limit.max(1), free: Some(0) }.into());
        }
        if self.limit > 0 {
            return Ok(self.limit.min(free));
        }
        let margin = if self.kind.placement == Placement::HostVisible { HOST_MARGIN } else { DEVICE_MARGIN };
        Ok(if free > margin { free - margin } else { free })
    }
}
