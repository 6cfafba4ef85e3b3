//! The handle of an arena, and its requests.

use super::{ArenaBuffer, ArenaBuilder, DeviceArena, Zone};
use crate::error::{Error, Owner};
use std::mem;
use std::sync::Arc;
use vrampool_backend::{Backend, fork};

impl<B: Backend> Clone for DeviceArena<B> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<B: Backend> Drop for DeviceArena<B> {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The core is never dropped in a forked child.
            mem::forget(Arc::clone(&self.core));
        }
    }
}

impl<B: Backend> DeviceArena<B> {
    /// Returns a builder for an arena on `device`.
    pub fn builder(device: &B) -> ArenaBuilder<B> {
        ArenaBuilder::new(device)
    }

    /// Allocates a block of `bytes` bytes (at least 1) in the dynamic zone, for work on `stream`.
    ///
    /// In a [growing](ArenaBuilder::growing) arena, a request for which memory, addresses or mappings are
    /// exhausted may block on the host before it fails: for pending work on memory to release, and for other
    /// devices of the process. It holds no lock meanwhile. Other requests never wait for the device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no hole is large enough; [`Error::Arena`] if the request is invalid;
    /// [`Error::WrongDevice`]; [`Error::Backend`] if the device refuses an event or a
    /// wait; [`Error::Capture`] if that would be between a captured and an uncaptured stream.
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<ArenaBuffer<B>, Error> {
        self.allocate_in(bytes, Zone::Dynamic, stream)
    }

    /// Allocates a block in the given zone. Blocks in the stable zone never move.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); also if the arena has no stable zone and it is requested.
    pub fn allocate_in(&self, bytes: u64, zone: Zone, stream: &B::Stream) -> Result<ArenaBuffer<B>, Error> {
        let allocated = self.core.allocate((bytes, zone), stream, None::<fn() -> bool>);
        allocated.map_err(|error| self.explain(error, Some(bytes)))
    }

    /// As [`allocate`](Self::allocate), for a pool whose search at once found nothing, without the arena's figures in
    /// an error. Before a growing arena maps more, it calls `reclaim`, which may free memory that serves instead.
    pub(crate) fn allocate_reclaiming(
        &self,
        bytes: u64,
        stream: &B::Stream,
        reclaim: Option<impl FnMut() -> bool>,
    ) -> Result<ArenaBuffer<B>, Error> {
        self.core.allocate((bytes, Zone::Dynamic), stream, reclaim)
    }

    /// Adds the arena's figures to a lack of memory.
    #[cold]
    pub(super) fn explain(&self, error: Error, requested: Option<u64>) -> Error {
        error.held_by(|error| {
            error.requested_bytes = requested.unwrap_or(error.requested_bytes);
            error.class_bytes = self.align_up(error.requested_bytes).unwrap_or(error.requested_bytes);
            error.live_bytes = self.used();
            error.live_requested_bytes = error.live_bytes;
            error.held_bytes = self.reserved_bytes().max(error.live_bytes);
            error.idle_bytes = error.held_bytes - error.live_bytes;
            error.owner = Owner::Arena;
            error.can_compact = !self.is_growing();
        })
    }
}
