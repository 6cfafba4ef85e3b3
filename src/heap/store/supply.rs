//! The source of a pool's misses, and its memory.

use crate::error::Error;
use crate::heap::ErasedSupply;
use crate::heap::arena::{ArenaBuffer, ArenaError, DeviceArena};
use crate::heap::stats::PoolStats;
use crate::source::{Key, Source};
use std::ops::Range;
use vrampool_backend::spi::{Grant, Ledger};
use vrampool_backend::{AllocationRequest, Backend, HeldMemory, Memory, Region, RegionMut, logging};

/// A device, and the arena on it if one serves misses.
#[derive(Debug)]
pub(crate) struct Supply<B: Backend> {
    pub(crate) device: B,
    pub(crate) source: Source,
    /// The one that [`Source::Arena`] and [`Source::Virtual`] are about.
    pub(crate) arena: Option<DeviceArena<B>>,
    /// Whether the arena was built for the pool, and not by the program.
    pub(crate) owns_arena: bool,
    /// Whether it is the arena, of fixed size, of the pool above.
    pub(crate) is_of_parent: bool,
    /// Whether nothing of the arena is moved for the pool.
    pub(crate) addresses_stay: bool,
    /// Whether nothing of the pool is moved for those above and beside it.
    pub(crate) blocks_stay: bool,
    /// Counts and bounds what the pool and its children take from the device: blocks and mapped pages, but no arena of
    /// fixed size, which a root reserves as a whole.
    pub(crate) ledger: Ledger,
}

impl<B: Backend> Supply<B> {
    /// The end of the highest live block of an arena of fixed size; 0 for other sources.
    pub(crate) fn highest_end(&self) -> u64 {
        self.arena.as_ref().filter(|arena| !arena.is_growing()).map_or(0, DeviceArena::highest_end)
    }

    /// The arena, if its holes may be closed by moving blocks.
    pub(crate) fn movable(&self) -> Option<&DeviceArena<B>> {
        self.arena.as_ref().filter(|arena| !arena.is_growing() && !self.addresses_stay)
    }

    /// The pool's own arena, if it grows.
    pub(crate) fn own_growing_arena(&self) -> Option<&DeviceArena<B>> {
        self.arena.as_ref().filter(|arena| self.owns_arena && arena.is_growing())
    }

    /// The arena, if no pool above has it.
    pub(crate) fn exclusive_arena(&self) -> Option<&DeviceArena<B>> {
        self.arena.as_ref().filter(|_| !self.is_of_parent)
    }

    /// Sets whether free memory of an arena that no pool above has stays where it is.
    pub(crate) fn set_private(&self, is_private: bool) {
        self.exclusive_arena().into_iter().for_each(|arena| arena.set_private(is_private));
    }

    /// Lets the device release memory that it keeps for work.
    pub(crate) fn reclaim(&self) {
        if let Err(error) = self.device.reclaim()
            && !error.is_device_lost()
            && !error.is_would_block()
        {
            logging::warn!("device {}: dropped memory is not released: {error}", self.device.id());
        }
    }

    /// Applies a limit to an arena of the pool's own. One of fixed size keeps its size, and refuses less;
    /// a growing one keeps what is live.
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        let Some(arena) = self.arena.as_ref().filter(|_| self.owns_arena) else { return Ok(()) };
        if arena.is_growing() {
            return arena.set_limit(bytes, true);
        }
        let needed_bytes = arena.reserved_bytes();
        match needed_bytes <= bytes {
            true => Ok(()),
            false => Err(ArenaError::CapacityInUse { capacity_bytes: bytes, needed_bytes }.into()),
        }
    }

    /// Whether memory of `key` is the driver's, rather than an arena's.
    pub(crate) fn asks_driver(&self, key: Key) -> bool {
        self.arena.as_ref().is_none_or(|arena| arena.kind() != key.kind)
    }

    /// Memory of `key`. Before an arena maps more for it, `reclaim` may return to it the memory that serves
    /// instead.
    pub(crate) fn allocate(
        &self,
        key: Key,
        label: &str,
        stream: &B::Stream,
        reclaim: Option<impl FnMut() -> bool>,
    ) -> Result<SourceMemory<B>, Error> {
        let request = AllocationRequest::new(key.class, key.kind).with_label(label);
        match &self.arena {
            Some(arena) if arena.kind() == key.kind => {
                let block = arena.allocate_reclaiming(key.class, stream, reclaim)?;
                if self.blocks_stay {
                    block.stay();
                }
                Ok(SourceMemory::Arena(block))
            }
            _ => {
                // In addition to the accounts, because arenas beside it hold whole pages, free ones as well.
                let grant = self.ledger.reserve(key.class)?;
                if self.source == Source::Driver {
                    let memory = self.device.allocate_on(&request, stream)?;
                    return Ok(SourceMemory::Driver(memory, self.device.clone(), grant));
                }
                Ok(SourceMemory::Direct(self.device.allocate(&request)?, grant))
            }
        }
    }
}

impl<B: Backend> ErasedSupply for Supply<B> {
    /// Releases free memory of the pool's own arena, without waiting for the last buffer.
    fn end(&self) {
        // It is less.
        let _ends = self.ledger.set_share(0);
        self.set_private(false);
        if let Some(arena) = self.arena.as_ref().filter(|arena| self.owns_arena && arena.used() > 0) {
            arena.forget_parked();
            if let Err(error) = arena.release(0) {
                logging::warn!("arena of {} bytes: {error}", arena.reserved_bytes());
            }
        }
        self.reclaim();
    }

    fn release(&self, idle_bytes: u64) -> Result<(), Error> {
        let growing = self.arena.as_ref().filter(|arena| arena.is_growing());
        let released = growing.map_or(Ok(()), |arena| arena.release(idle_bytes).map(drop));
        self.reclaim();
        released
    }

    fn mapped_bytes(&self) -> Option<u64> {
        self.arena.as_ref().filter(|arena| arena.is_growing()).map(DeviceArena::reserved_bytes)
    }

    fn complete(&self, mut stats: PoolStats, peak_end: u64) -> PoolStats {
        stats.source.kind = self.source;
        match self.exclusive_arena() {
            Some(arena) => stats.with_arena(arena, peak_end),
            None => stats,
        }
    }
}

/// Memory from a source.
#[derive(Debug)]
pub(crate) enum SourceMemory<B: Backend> {
    /// Its grant is returned after it.
    Direct(B::Memory, #[expect(dead_code, reason = "dropping it returns the bytes")] Grant),
    Arena(ArenaBuffer<B>),
    /// With the device that frees it in stream order.
    Driver(B::Memory, B, Grant),
    /// Memory that was released: the record is kept for reuse and is no block.
    Released,
}

impl<B: Backend> SourceMemory<B> {
    /// The memory, which keeps an arena's block where it is.
    pub(crate) fn memory(&self) -> HeldMemory<'_, B::Memory> {
        match self {
            Self::Arena(buffer) => buffer.memory(),
            _ => HeldMemory::new(self.range(), None),
        }
    }

    /// The memory, whether or not a block of it may move.
    pub(crate) fn range(&self) -> &B::Memory {
        match self {
            Self::Direct(memory, _) | Self::Driver(memory, ..) => memory,
            Self::Arena(buffer) => buffer.range(),
            Self::Released => unreachable!("a block has its memory until it is dropped"),
        }
    }

    /// Where it is at this moment, where the device has addresses, and whether it stays there.
    pub(crate) fn address(&self) -> Option<(u64, bool)> {
        match self {
            Self::Arena(buffer) => buffer.place(),
            _ => Some((self.range().address()?, true)),
        }
    }

    /// Where in its arena its bytes are, in order; nothing elsewhere.
    pub(crate) fn parts(&self) -> Vec<Range<u64>> {
        match self {
            Self::Arena(buffer) => buffer.parts(),
            _ => Vec::new(),
        }
    }

    /// Its first `len` bytes for reading. The pool's block records the users of device and driver memory; an arena's
    /// block records its own.
    pub(crate) fn region(&self, len: u64, stream: &B::Stream) -> Result<Region<'_, B::Memory>, Error> {
        match self {
            Self::Arena(buffer) => buffer.region(len, stream),
            _ => Ok(Region::new(self.range(), 0, len, stream)?),
        }
    }

    /// Its first `len` bytes for writing; else as [`region`](Self::region).
    pub(crate) fn region_mut(
        &mut self,
        len: u64,
        stream: &B::Stream,
    ) -> Result<RegionMut<'_, B::Memory>, Error> {
        match self {
            Self::Arena(buffer) => buffer.region_mut(len, stream),
            // The whole block belongs to the borrower.
            _ => Ok(RegionMut::new(self.range(), 0, len, stream)?.with_room(u64::MAX)),
        }
    }
}
