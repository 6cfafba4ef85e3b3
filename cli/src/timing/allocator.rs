//! The compared allocators as functions of a size: the device, an arena on it, and a pool on it. Dropping a block
//! frees it. Each returns its own type of error, so that a conversion is no part of a pair.

use vrampool::arena::{ArenaBuffer, DeviceArena, Zone};
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, BackendError, Buffer, Error, MemoryKind, Pool};

/// The device's own memory of a kind.
pub(crate) fn driver<B: Backend>(
    device: &B,
    kind: impl Into<MemoryKind>,
) -> impl FnMut(u64) -> Result<B::Memory, BackendError> {
    let kind = kind.into();
    move |bytes| device.allocate(&AllocationRequest::new(bytes, kind))
}

/// A zone of an arena, on a separate stream.
pub(crate) fn zone<B: Backend>(
    arena: DeviceArena<B>,
    zone: Zone,
) -> Result<impl FnMut(u64) -> Result<ArenaBuffer<B>, Error>, Error> {
    let stream = arena.device().create_stream()?;
    Ok(move |bytes| arena.allocate_in(bytes, zone, &stream))
}

/// A pool, on a separate stream.
pub(crate) fn pooled<B: Backend>(
    pool: Pool<B>,
) -> Result<impl FnMut(u64) -> Result<Buffer<B>, Error>, Error> {
    let stream = pool.device().create_stream()?;
    Ok(move |bytes| pool.allocate(bytes, &stream))
}
