//! For this repository's crates only; no stability guarantee.

use crate::error::Error;
use crate::heap::arena::Refusal;
use crate::heap::{PoolCore, at_address, magazine};
use crate::pool::{Buffer, Pool, PoolBuilder};
use crate::source::Source;
use std::mem;
use std::ops::Range;
use vrampool_backend::{Backend, Stream, StreamId, fork};

/// Allocates from idle memory, without a call that may wait: of the device, or of a lock that is held during
/// one. `None` is no failure: [`Pool::allocate`] serves the request.
#[inline]
#[must_use]
pub fn allocate_ready<B: Backend>(pool: &Pool<B>, bytes: u64, stream: &B::Stream) -> Option<Buffer<B>> {
    if fork::is_forked() {
        return None;
    }
    let (core, stream, mut dropped) = (&pool.handle.core, stream.id(), [None, None]);
    let taken = magazine::take(core, bytes, stream);
    taken.or_else(|| core.take_ready::<B>(bytes, stream, &mut dropped)).map(Buffer::new)
}

pub use crate::heap::magazine::Numbers;

/// Lets this thread [allocate](take_known) from idle memory of `pool` for work on `stream` by `numbers`, if that serves
/// requests of `bytes` bytes. Keeps no handle of the pool, which may be dropped.
#[inline]
pub fn know<B: Backend>(numbers: Numbers, bytes: u64, pool: &Pool<B>, stream: StreamId) {
    magazine::know(numbers, bytes, &pool.handle.core, stream);
}

/// Removes all numbers that this thread [knows](know).
pub fn forget_known() {
    magazine::forget_known();
}

/// Allocates from this thread's idle blocks by numbers that it [knows](know). `B` is the pool's. `None` is no failure:
/// [`Pool::allocate`] serves the request. Not for a forked child.
#[inline(always)]
#[must_use]
pub fn take_known<B: Backend>(numbers: Numbers, bytes: u64) -> Option<Buffer<B>> {
    magazine::take_known(numbers, bytes).map(Buffer::new)
}

/// As [`take_known`], from idle memory that threads share, for requests that [`take_known`] does not serve.
#[inline]
#[must_use]
pub fn take_known_large<B: Backend>(numbers: Numbers, bytes: u64) -> Option<Buffer<B>> {
    let mut dropped = [None, None];
    magazine::with_known(numbers, |_, pool, stream| pool.take_ready::<B>(bytes, stream, &mut dropped))
        .map(Buffer::new)
}

/// Drops a buffer. Not for a forked child.
#[inline(always)]
pub fn release<B: Backend>(mut buffer: Buffer<B>) {
    if let Some(block) = buffer.block.take() {
        PoolCore::release(block);
    }
}

/// Releases a buffer if the pool keeps its memory, without a call that may wait. Returns the buffer otherwise;
/// dropping it releases it.
#[inline]
#[must_use]
pub fn release_ready<B: Backend>(mut buffer: Buffer<B>) -> Option<Buffer<B>> {
    if fork::is_forked() {
        return Some(buffer);
    }
    buffer.block.take().and_then(PoolCore::release_ready).map(Buffer::new)
}

/// Allocates at an address, of idle memory or an arena that no pool above has; `None` if there are not so many bytes.
///
/// # Errors
/// As [`Pool::allocate`].
pub fn allocate_at<B: Backend>(
    pool: &Pool<B>,
    address: u64,
    bytes: u64,
    stream: &B::Stream,
) -> Result<Option<Buffer<B>>, Error> {
    fork::check()?;
    Ok(at_address::allocate_at::<B>(&pool.handle.core, address, bytes, stream)?.map(Buffer::new))
}

/// Checks that the limits have room for buffers of these sizes, each rounded to its class, in place of all that is live
/// in the pool.
///
/// # Errors
/// [`Error::OutOfMemory`] if they have not.
pub fn check_room<B: Backend>(pool: &Pool<B>, sizes: impl Iterator<Item = u64>) -> Result<(), Error> {
    let classes = sizes.map(|bytes| pool.class_of(bytes).unwrap_or(bytes));
    at_address::check_room::<B>(&pool.handle.core, classes.fold(0, u64::saturating_add))
}

/// Returns the most bytes that the limits of a pool and of those above it admit in addition to what is live, once all
/// idle memory is released.
#[must_use]
pub fn room<B: Backend>(pool: &Pool<B>) -> u64 {
    if fork::is_forked() { 0 } else { pool.handle.core.depot().accounts.room() }
}

/// Hands a buffer to `stream`, without a wait for its users, whose work is complete.
///
/// # Errors
/// Those of the device.
pub fn adopt<B: Backend>(buffer: &mut Buffer<B>, stream: &B::Stream) -> Result<(), Error> {
    buffer.block_mut().adopt::<B>(stream)
}

/// Notes a use by `stream`, also by a graph that is captured on it, without any order.
///
/// # Errors
/// [`Error::WrongDevice`], [`Error::Asleep`](crate::Error::Asleep).
pub fn note_use<B: Backend>(buffer: &Buffer<B>, stream: &B::Stream) -> Result<(), Error> {
    buffer.block().pool.check_device(stream)?;
    buffer.block().record_stream::<B>(stream)
}

/// Releases all idle memory of a pool, private memory as well. Returns its bytes.
#[must_use]
pub fn release_private<B: Backend>(pool: &Pool<B>) -> u64 {
    let (core, supply) = (&pool.handle.core, pool.handle.core.supply::<B>());
    let mut depot = core.depot();
    let is_private = mem::replace(&mut depot.accounts.is_private, false);
    let idle = depot.evict(u64::MAX);
    depot.accounts.is_private = is_private;
    drop(depot);
    let released = core.release_blocks(idle);
    supply.set_private(false);
    let of_arena = core.trim_for_device();
    supply.set_private(is_private);
    released + of_arena
}

/// Calls `act`. What would wait in it until an arena is detached or attached is
/// [`Error::Asleep`](crate::Error::Asleep).
pub fn refuse_while_changing<T>(act: impl FnOnce() -> T) -> T {
    let _refusal = Refusal::new();
    act()
}

/// Returns the offsets of the buffer's bytes in the range of the pool's arena, in order; none without an arena.
#[must_use]
pub fn parts<B: Backend>(buffer: &Buffer<B>) -> Vec<Range<u64>> {
    buffer.block().extent::<B>().parts()
}

/// Sets the source of a pool whose settings state none.
pub fn default_source<B: Backend>(builder: &mut PoolBuilder<B>, source: Source) {
    builder.inherited.source = Some(source);
}

/// Returns the limit of the pool that a builder makes, for memory beside pools.
///
/// # Errors
/// As [`PoolBuilder::build`], if the settings state none.
pub fn limit_of<B: Backend>(builder: &PoolBuilder<B>) -> Result<Option<u64>, Error> {
    builder.limit_bytes()
}

/// For the C ABI, whose blocks are behind such a lock too.
pub use crate::sync::{Mutex as BriefLock, MutexGuard as BriefLockGuard};
