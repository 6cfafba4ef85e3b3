//! The compared allocators: the device, an arena on it, and a pool on it.

use vrampool::arena::{ArenaBuffer, DeviceArena, Zone};
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, BackendError, Buffer, Error, MemoryKind, Pool, Source};

/// Allocates blocks, each freed before the allocator goes.
pub(crate) trait Allocator {
    type Block;
    /// Its own, so that turning it into another is no part of a pair.
    type Error: Into<Error>;

    fn allocate(&mut self, bytes: u64) -> Result<Self::Block, Self::Error>;

    fn free(&mut self, block: Self::Block) -> Result<(), Self::Error>;

    /// A larger block in place of this one, whose contents are not kept.
    fn grow(&mut self, block: Self::Block, bytes: u64) -> Result<Self::Block, Self::Error> {
        self.free(block)?;
        self.allocate(bytes)
    }
}

/// The device's own allocate and drop.
#[derive(Debug)]
pub(crate) struct Driver<B> {
    device: B,
    kind: MemoryKind,
}

impl<B: Backend> Driver<B> {
    pub(crate) fn new(device: &B) -> Self {
        Self::of_kind(device, device.properties().preferred_placement().into())
    }

    /// Of a kind of memory of its own.
    pub(crate) fn of_kind(device: &B, kind: MemoryKind) -> Self {
        Self { device: device.clone(), kind }
    }
}

impl<B: Backend> Allocator for Driver<B> {
    type Block = B::Memory;
    type Error = BackendError;

    fn allocate(&mut self, bytes: u64) -> Result<B::Memory, BackendError> {
        self.device.allocate(&AllocationRequest::new(bytes, self.kind))
    }

    fn free(&mut self, memory: B::Memory) -> Result<(), BackendError> {
        drop(memory);
        Ok(())
    }
}

/// One region of a [`DeviceArena`].
#[derive(Debug)]
pub(crate) struct OnDevice<B: Backend> {
    arena: DeviceArena<B>,
    region: Zone,
    stream: B::Stream,
}

impl<B: Backend> OnDevice<B> {
    /// The dynamic region of an arena of `bytes`, or of as many as the device gives at once.
    pub(crate) fn new(device: &B, bytes: u64) -> Result<Self, Error> {
        let bytes = bytes.min(device.properties().max_allocation);
        let arena = DeviceArena::builder(device).limit(bytes).build()?;
        Self::region(&arena, Zone::Dynamic)
    }

    pub(crate) fn region(arena: &DeviceArena<B>, region: Zone) -> Result<Self, Error> {
        let stream = arena.device().create_stream()?;
        Ok(Self { arena: arena.clone(), region, stream })
    }
}

impl<B: Backend> Allocator for OnDevice<B> {
    type Block = ArenaBuffer<B>;
    type Error = Error;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> Result<ArenaBuffer<B>, Error> {
        self.arena.allocate_in(bytes, self.region, &self.stream)
    }

    #[inline]
    fn free(&mut self, buffer: ArenaBuffer<B>) -> Result<(), Error> {
        drop(buffer);
        Ok(())
    }
}

/// A pool.
#[derive(Debug)]
pub(crate) struct Pooled<B: Backend> {
    pool: Pool<B>,
    stream: B::Stream,
}

impl<B: Backend> Pooled<B> {
    /// Keeps `bytes`, and `buffers` of them in one bucket.
    pub(crate) fn new(device: &B, bytes: u64, buffers: u64) -> Result<Self, Error> {
        let pool = Pool::builder(device).max_cached_bytes(bytes).max_buffers_per_bucket(buffers).build()?;
        Self::of(&pool)
    }

    /// Returns all to an arena of `bytes`, or of as many as the device gives at once.
    pub(crate) fn keeping_nothing(device: &B, bytes: u64) -> Result<Self, Error> {
        let bytes = bytes.min(device.properties().max_allocation);
        Self::of(&Pool::builder(device).source(Source::Arena).limit(bytes).max_cached_bytes(0).build()?)
    }

    /// A handle to `pool`, with a stream of its own.
    pub(crate) fn of(pool: &Pool<B>) -> Result<Self, Error> {
        Ok(Self { pool: pool.clone(), stream: pool.device().create_stream()? })
    }
}

impl<B: Backend> Allocator for Pooled<B> {
    type Block = Buffer<B>;
    type Error = Error;

    #[inline]
    fn allocate(&mut self, bytes: u64) -> Result<Buffer<B>, Error> {
        self.pool.allocate(bytes, &self.stream)
    }

    #[inline]
    fn free(&mut self, buffer: Buffer<B>) -> Result<(), Error> {
        drop(buffer);
        Ok(())
    }
}
