//! Memory of the host device, and how much of it there is.

use crate::device::Shared;
use crate::driver::{Block, Span};
use crate::fault::Call;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use vrampool_backend::{BackendError, Memory, MemoryKind, Region};

/// Memory of a [`HostDevice`](crate::HostDevice). Starts zeroed. Dropping it frees it, once work that uses it is done.
#[derive(Debug)]
pub struct HostMemory {
    allocation: Arc<Allocation>,
}

/// What a memory and the work that uses it share.
#[derive(Debug)]
pub(crate) struct Allocation {
    block: Block,
    kind: MemoryKind,
    device: Arc<Shared>,
}

/// Bytes of a device: all, taken, and taken by memory that is dropped but still in use by queued work.
#[derive(Debug)]
pub(crate) struct Capacity {
    bytes: Mutex<Bytes>,
    freed: Condvar,
}

#[derive(Debug)]
struct Bytes {
    total: u64,
    taken: u64,
    dropped: u64,
}

impl Capacity {
    pub(crate) fn new(total: u64) -> Self {
        Self { bytes: Mutex::new(Bytes { total, taken: 0, dropped: 0 }), freed: Condvar::new() }
    }

    pub(crate) fn set_total(&self, total: u64) {
        self.bytes.lock().total = total;
        self.freed.notify_all();
    }

    /// (free, total)
    pub(crate) fn info(&self) -> (u64, u64) {
        let bytes = self.bytes.lock();
        (bytes.total.saturating_sub(bytes.taken), bytes.total)
    }

    /// Takes bytes, after waiting for dropped memory where that may help and `may_wait`.
    fn take(&self, requested: u64, may_wait: bool) -> Result<(), BackendError> {
        let mut bytes = self.bytes.lock();
        loop {
            let free = bytes.total.saturating_sub(bytes.taken);
            if requested <= free {
                bytes.taken += requested;
                return Ok(());
            }
            if !may_wait || bytes.dropped == 0 || requested > free.saturating_add(bytes.dropped) {
                return Err(BackendError::OutOfMemory { requested, free: Some(free) });
            }
            self.freed.wait(&mut bytes);
        }
    }
}

impl HostMemory {
    pub(crate) fn new(
        device: &Arc<Shared>,
        bytes: u64,
        kind: MemoryKind,
        may_wait: bool,
    ) -> Result<Self, BackendError> {
        let capacity = device.capacity();
        capacity.take(bytes, may_wait)?;
        match Block::new(bytes) {
            Some(block) => {
                Ok(Self { allocation: Arc::new(Allocation { block, kind, device: Arc::clone(device) }) })
            }
            None => {
                capacity.bytes.lock().taken -= bytes;
                Err(BackendError::OutOfMemory { requested: bytes, free: None })
            }
        }
    }

    /// Of what kind it is.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.allocation.kind
    }

    pub(crate) fn is_of(&self, device: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.allocation.device, device)
    }

    pub(crate) fn allocation(&self) -> Arc<Allocation> {
        Arc::clone(&self.allocation)
    }

    pub(crate) fn span(&self, offset: u64, len: u64) -> Span<'_> {
        // A range that overflows becomes one that leaves the block, which `Claims::with` refuses.
        Span { block: &self.allocation.block, range: offset..offset.saturating_add(len) }
    }
}

impl Memory for HostMemory {
    fn len(&self) -> u64 {
        self.allocation.block.len()
    }

    fn address(&self) -> Option<u64> {
        Some(self.allocation.block.address())
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        let shared = &self.allocation.device;
        // Counting cannot fail, and a lost device frees all the same.
        let _ = shared.faults().check(Call::Free);
        // Queued work may still hold the allocation; until it is done the bytes count as taken, and as dropped.
        shared.capacity().bytes.lock().dropped += self.len();
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        let capacity = self.device.capacity();
        let mut bytes = capacity.bytes.lock();
        bytes.taken -= self.block.len();
        bytes.dropped -= self.block.len();
        drop(bytes);
        capacity.freed.notify_all();
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
        Span { block: &self.allocation.block, range: self.offset..self.offset + self.len }
    }
}
