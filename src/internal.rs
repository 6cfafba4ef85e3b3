//! For vrampool's own crates: no release keeps any of it as it is.

use crate::pool::Pool;
use crate::pool::buffer::Buffer;
#[cfg(feature = "trace")]
use crate::recorder::Recorder;
use std::ops::Range;
use vrampool_backend::Backend;
#[cfg(feature = "trace")]
use vrampool_backend::StreamId;

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

/// Returns the offsets of the buffer's bytes in the range of the pool's arena, in order; none without an arena.
#[must_use]
pub fn parts<B: Backend>(buffer: &Buffer<B>) -> Vec<Range<u64>> {
    buffer.parts()
}

/// Returns the recorder's number, from 1, which is unique among recorders of the process.
#[cfg(feature = "trace")]
#[must_use]
pub fn recorder_number(recorder: &Recorder) -> u64 {
    recorder.number()
}

/// Records an allocation as [`Recorder::note_allocation`], but only on its fast path and without a handle.
///
/// The fast path applies if this thread last recorded with the recorder of this
/// [number](recorder_number) and no periodic work is due. Otherwise this returns `None`, and nothing is
/// recorded yet.
#[cfg(feature = "trace")]
#[must_use]
#[inline]
pub fn note_allocation_of(recorder: u64, bytes: u64, stream: StreamId) -> Option<u64> {
    Recorder::note_allocation_of(recorder, bytes, stream)
}

/// Records a free as [`Recorder::note_free`], but only on the fast path of [`note_allocation_of`]. The number
/// must not be 0. Returns whether the free is recorded.
#[cfg(feature = "trace")]
#[must_use]
#[inline]
pub fn note_free_of(recorder: u64, number: u64, stream: StreamId) -> bool {
    Recorder::note_free_of(recorder, number, stream)
}

/// For the C ABI, whose blocks are behind such a lock too.
pub use crate::sync::{Mutex as BriefLock, MutexGuard as BriefLockGuard};
