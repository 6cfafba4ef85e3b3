//! For vrampool's own crates: no release keeps any of it as it is.

use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use vrampool_backend::Backend;

/// Allocates from idle memory, without a call that may wait: of the device, or of a lock that is held during
/// one. `None` is no failure: [`Pool::allocate`] serves the request.
#[inline]
#[must_use]
pub fn allocate_ready<B: Backend>(pool: &Pool<B>, bytes: u64, stream: &B::Stream) -> Option<Buffer<B>> {
    pool.allocate_ready(bytes, stream)
}

/// Releases a buffer if the pool keeps its memory, without a call that may wait. Returns the buffer otherwise;
/// dropping it releases it.
#[inline]
#[must_use]
pub fn release_ready<B: Backend>(buffer: Buffer<B>) -> Option<Buffer<B>> {
    buffer.release_ready()
}

/// For the C ABI, whose blocks are behind such a lock too.
pub use crate::sync::{Mutex as BriefLock, MutexGuard as BriefLockGuard};
