//! For this repository's crates only; no stability guarantee.

use crate::heap::magazine;
use crate::initial::Initial;
use crate::overlap::Overlap;
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use crate::pool::builder::PoolBuilder;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{Backend, StreamId, fork};

/// Allocates from idle memory, without a call that may wait: of the device, or of a lock that is held during
/// one. `None` is no failure: [`Pool::allocate`] serves the request.
#[inline]
#[must_use]
pub fn allocate_ready<B: Backend>(pool: &Pool<B>, bytes: u64, stream: &B::Stream) -> Option<Buffer<B>> {
    pool.allocate_ready(bytes, stream)
}

/// Where a thread finds its idle blocks of a pool. It keeps nothing of the pool, which may be dropped.
#[derive(Debug, Clone, Copy)]
pub struct Hits {
    slot: u8,
    /// The address of the pool's state.
    core: usize,
}

impl Hits {
    /// Returns where a thread finds its idle blocks of `pool`.
    #[must_use]
    pub fn of<B: Backend>(pool: &Pool<B>) -> Self {
        let core = &pool.handle.core;
        Self { slot: core.slot, core: Arc::as_ptr(core) as usize }
    }

    /// Allocates from this thread's idle blocks, for work on a stream of the pool's device. `B` is the pool's. `None`
    /// is no failure: [`Pool::allocate`] serves the request.
    #[inline(always)]
    #[must_use]
    pub fn take<B: Backend>(self, bytes: u64, stream: StreamId) -> Option<Buffer<B>> {
        if fork::is_child() {
            return None;
        }
        magazine::take_at(self.slot, self.core, bytes, stream).map(Buffer::new)
    }
}

/// Releases a buffer if the pool keeps its memory, without a call that may wait. Returns the buffer otherwise;
/// dropping it releases it.
#[inline]
#[must_use]
pub fn release_ready<B: Backend>(buffer: Buffer<B>) -> Option<Buffer<B>> {
    buffer.release_ready()
}

/// Returns the offsets of the buffer's bytes in the range of the pool's arena, in order; none without an arena.
#[must_use]
pub fn parts<B: Backend>(buffer: &Buffer<B>) -> Vec<Range<u64>> {
    buffer.parts()
}

/// Returns the bound on memory that spares waits between streams, as set or read from the environment.
pub fn overlap_of<B: Backend>(builder: &PoolBuilder<B>) -> Overlap {
    builder.resolved_overlap()
}

/// Returns the bytes to map when the pool is made, as given or read from the environment.
pub fn initial_bytes<B: Backend>(builder: &PoolBuilder<B>, given: Option<Initial>) -> u64 {
    builder.initial_bytes(given)
}

/// For the C ABI, whose blocks are behind such a lock too.
pub use crate::sync::{Mutex as BriefLock, MutexGuard as BriefLockGuard};
