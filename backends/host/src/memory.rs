//! Memory of the host device.

use crate::driver::{Block, Bytes, Reservation, Span};
use crate::fault::Call;
use crate::shared::DeviceCore;
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::{BackendError, Memory, MemoryKind, Placement, Region, fork};

/// Memory of a [`HostDevice`](crate::HostDevice). Starts zeroed. Dropping it frees it, once work that uses it
/// is done.
#[derive(Debug)]
pub struct HostMemory {
    allocation: Arc<Allocation>,
    /// Held while the host itself reads or writes the bytes.
    host: Mutex<()>,
}

/// The common state of a memory and the work that uses it.
#[derive(Debug)]
pub(crate) struct Allocation {
    bytes: Bytes,
    kind: MemoryKind,
    device: Arc<DeviceCore>,
    /// Whether its memory was dropped while queued work held it.
    is_dropped: AtomicBool,
    /// Whether its bytes were released before the drop.
    is_released: AtomicBool,
}

impl HostMemory {
    pub(crate) fn new(
        device: &Arc<DeviceCore>,
        bytes: u64,
        kind: MemoryKind,
        may_wait: bool,
    ) -> Result<Self, BackendError> {
        let capacity = &device.capacity;
        capacity.take(bytes, may_wait)?;
        loop {
            if let Some(block) = Block::new(bytes, &device.slabs) {
                return Ok(Self::of(device, Bytes::Own(block), kind));
            }
            if !may_wait || !capacity.wait_for_dropped() {
                break;
            }
        }
        capacity.untake(bytes);
        Err(BackendError::out_of_memory(bytes, device.group_bytes()))
    }

    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there are no reservations"))]
    pub(crate) fn reserved(device: &Arc<DeviceCore>, reservation: Reservation) -> Self {
        Self::of(device, Bytes::Reserved(reservation), MemoryKind::default())
    }

    fn of(device: &Arc<DeviceCore>, bytes: Bytes, kind: MemoryKind) -> Self {
        let (is_dropped, is_released) = Default::default();
        let allocation =
            Arc::new(Allocation { bytes, kind, device: Arc::clone(device), is_dropped, is_released });
        Self { allocation, host: Mutex::new(()) }
    }

    /// The turn of one thread of the host's.
    pub(crate) fn host_turn(&self) -> MutexGuard<'_, ()> {
        self.host.lock()
    }

    /// The bytes, if no queued work uses them.
    pub(crate) fn unused(&mut self) -> Result<&[u8], BackendError> {
        const PENDING: &str = "work that uses it is pending; synchronize the streams that use it first";
        let allocation = Arc::get_mut(&mut self.allocation);
        match &mut allocation.ok_or_else(|| BackendError::invalid("memory", PENDING))?.bytes {
            Bytes::Own(block) => Ok(block.bytes()),
            // Its pages may be mapped at other addresses too.
            Bytes::Reserved(_) => Err(BackendError::unsupported("the host's use of a reservation in place")),
        }
    }

    /// Of what kind it is. A reservation is of the default one, whatever is mapped there.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.allocation.kind
    }

    pub(crate) fn is_of(&self, device: &Arc<DeviceCore>) -> bool {
        Arc::ptr_eq(&self.allocation.device, device)
    }

    /// Whether the host may use a range by itself.
    pub(crate) fn is_host_visible(&self, range: &Range<u64>) -> bool {
        match &self.allocation.bytes {
            Bytes::Own(_) => self.kind().placement != Placement::Device,
            Bytes::Reserved(reservation) => reservation.is_host_visible(range),
        }
    }

    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there are no reservations"))]
    pub(crate) fn reservation(&self) -> Option<&Reservation> {
        match &self.allocation.bytes {
            Bytes::Own(_) => None,
            Bytes::Reserved(reservation) => Some(reservation),
        }
    }

    pub(crate) fn allocation(&self) -> Arc<Allocation> {
        Arc::clone(&self.allocation)
    }

    pub(crate) fn span(&self, offset: u64, len: u64) -> Span<'_> {
        // A range that overflows becomes one that leaves the memory, which `Claims::with` refuses.
        Span { bytes: &self.allocation.bytes, range: offset..offset.saturating_add(len) }
    }
}

impl Memory for HostMemory {
    fn len(&self) -> u64 {
        self.allocation.bytes.len()
    }

    fn address(&self) -> Option<u64> {
        Some(self.allocation.bytes.address())
    }

    /// Releases a mapping that no queued work uses. Its addresses stay, and have zeros.
    fn release(&self) -> bool {
        let Allocation { bytes: Bytes::Own(block), device, is_released, .. } = &*self.allocation else {
            return false;
        };
        if Arc::strong_count(&self.allocation) > 1 || is_released.swap(true, Ordering::AcqRel) {
            return false;
        }
        let discard = |[]: [&[u8]; 0], [bytes]: [&mut [u8]; 1]| block.discard(bytes);
        let is_discarded = device.claims.with([], [self.span(0, block.len())], discard) == Ok(true);
        if is_discarded {
            device.capacity.untake(block.len());
        } else {
            is_released.store(false, Ordering::Release);
        }
        is_discarded
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if fork::is_forked() {
            return std::mem::forget(Arc::clone(&self.allocation));
        }
        let core = &self.allocation.device;
        // Counting cannot fail, and a lost device frees all the same.
        let _ = core.faults.check(Call::Free);
        match &self.allocation.bytes {
            // Nothing else can get it any more.
            Bytes::Own(_) if Arc::strong_count(&self.allocation) == 1 || self.allocation.is_released() => {}
            // Until queued work is done the bytes count as taken, and as dropped.
            Bytes::Own(block) => {
                core.capacity.drop_later(block.len());
                // Relaxed: the count of handles orders it before the drop of the last one.
                self.allocation.is_dropped.store(true, Ordering::Relaxed);
            }
            Bytes::Reserved(reservation) => reservation.let_go(),
        }
    }
}

impl Allocation {
    fn is_released(&self) -> bool {
        self.is_released.load(Ordering::Acquire)
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // Memory that is mapped into a reservation is released on its own.
        if !self.is_released()
            && let Bytes::Own(block) = &self.bytes
        {
            match *self.is_dropped.get_mut() {
                true => self.device.capacity.release(block.len()),
                false => self.device.capacity.untake(block.len()),
            }
        }
    }
}

/// A range of a memory that queued work keeps alive.
#[derive(Debug)]
pub(crate) struct HeldRange {
    allocation: Arc<Allocation>,
    offset: u64,
    len: u64,
}

impl HeldRange {
    pub(crate) fn new(region: &Region<'_, HostMemory>) -> Self {
        Self { allocation: region.memory().allocation(), offset: region.offset(), len: region.len() }
    }

    pub(crate) fn span(&self) -> Span<'_> {
        Span { bytes: &self.allocation.bytes, range: self.offset..self.offset + self.len }
    }
}
