//! Creates arenas; allocates and frees blocks.

use super::block::BlockId;
use super::error::ArenaError;
use super::free::FreeBlocks;
use super::layout::ArenaLayout;
use super::record::{BlockState, NONE, Record, Tag};
use super::table::{Table, end_of};
use super::zone::Zone;
use super::zone_state::{ZoneState, choose};
use std::sync::atomic::{AtomicU32, Ordering};

/// Sub-allocates a range of bytes that it never accesses. [The module](super) describes the algorithm.
///
/// ```
/// use vrampool::arena::{Arena, ArenaError, ArenaLayout, Zone};
/// # fn main() -> Result<(), ArenaError> {
/// let mut arena = Arena::new(ArenaLayout::new(1 << 20).alignment(256))?;
/// let block = arena.allocate(1000, Zone::Dynamic)?;
/// assert_eq!((arena.offset(block)?, arena.size(block)?), (0, 1024)); // rounded to the alignment
/// arena.free(block)?;
/// assert_eq!(arena.free(block), Err(ArenaError::StaleBlock));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Arena {
    /// Distinguishes its blocks from other arenas'.
    id: u32,
    /// Number of blocks named so far.
    serial: u64,
    /// The alignment, as a power of two.
    pub(super) shift: u32,
    pub(super) table: Table,
    pub(super) stable: ZoneState,
    pub(super) dynamic: ZoneState,
    pub(super) peak: u64,
    /// Makes the arena act as if the host had no memory for records.
    #[cfg(test)]
    pub(crate) host_is_full: bool,
}

impl Arena {
    /// Creates an arena whose bytes are all free.
    ///
    /// # Errors
    /// [`ArenaError::Alignment`], [`ArenaError::StableTooLarge`], [`ArenaError::HostMemory`].
    pub fn new(layout: ArenaLayout) -> Result<Self, ArenaError> {
        static ARENAS: AtomicU32 = AtomicU32::new(0);
        let (shift, stable, end) = layout.measure()?;
        let mut arena = Self {
            id: ARENAS.fetch_add(1, Ordering::Relaxed),
            serial: 0,
            shift,
            table: Table::new()?,
            stable: ZoneState::new(Zone::Stable, 0, stable, shift),
            dynamic: ZoneState::new(Zone::Dynamic, stable, end, shift),
            peak: 0,
            #[cfg(test)]
            host_is_full: false,
        };
        arena.reset();
        Ok(arena)
    }

    /// Creates two empty zones that [grow](Self::set_end) separately: stable from 0, dynamic from `start`.
    pub(crate) fn divided(alignment: u64, start: u64) -> Result<Self, ArenaError> {
        let mut arena = Self::new(ArenaLayout::new(0).alignment(alignment))?;
        let shift = arena.shift;
        arena.stable = ZoneState::new(Zone::Stable, 0, 0, shift);
        arena.stable.free = FreeBlocks::new(Zone::Stable, start, shift);
        arena.dynamic = ZoneState::new(Zone::Dynamic, start, start, shift);
        Ok(arena)
    }

    /// Allocates `bytes`, rounded up to the arena's alignment.
    ///
    /// The block is in the smallest sufficient hole, or at the free end of the zone if there is none.
    ///
    /// # Errors
    /// As [`allocate_aligned`](Self::allocate_aligned).
    #[inline]
    pub fn allocate(&mut self, bytes: u64, zone: Zone) -> Result<BlockId, ArenaError> {
        self.allocate_aligned(bytes, 1, zone)
    }

    /// Allocates `bytes`, rounded up to the arena's alignment, at a multiple of `alignment`.
    ///
    /// The offset is also a multiple of the arena's alignment. Skipped bytes stay free. An alignment of at
    /// most the arena's takes a bounded number of steps and the smallest sufficient hole. With a larger
    /// alignment, a hole may have the size but no aligned place. These are tried in order, so that any
    /// request that can be served is served:
    ///
    /// 1. a few holes, from the smallest sufficient size;
    /// 2. a hole that is large enough at any offset;
    /// 3. the free end of the zone;
    /// 4. all holes between `bytes` and `bytes + alignment`.
    ///
    /// # Errors
    /// [`ArenaError::NoSpace`] if no free block of the zone holds the request;
    /// [`ArenaError::NoStableZone`], [`ArenaError::ZeroBytes`], [`ArenaError::Alignment`],
    /// [`ArenaError::Overflow`] if it can never be served; [`ArenaError::TooManyBlocks`],
    /// [`ArenaError::HostMemory`].
    #[inline]
    pub fn allocate_aligned(
        &mut self,
        bytes: u64,
        alignment: u64,
        zone: Zone,
    ) -> Result<BlockId, ArenaError> {
        let index =
            if alignment == 1 { self.place(bytes, zone) } else { self.place_aligned(bytes, alignment, zone) };
        self.named(index, (bytes, alignment, zone))
    }

    /// Returns the newest block, or the error of a failed request.
    #[inline]
    pub(super) fn named(&mut self, index: u32, request: (u64, u64, Zone)) -> Result<BlockId, ArenaError> {
        match index {
            NONE => Err(self.refusal(request)),
            index => Ok(BlockId::new(self.serial, index, self.id)),
        }
    }

    /// Returns the newest block, unless the request failed.
    #[inline]
    pub(super) fn newest(&self, index: u32) -> Option<BlockId> {
        (index != NONE).then(|| BlockId::new(self.serial, index, self.id))
    }

    /// Returns the record of a new block, or `NONE`.
    fn place(&mut self, bytes: u64, zone: Zone) -> u32 {
        if zone == Zone::Stable && self.dynamic.start == 0 {
            return NONE;
        }
        self.place_by(bytes, zone, FreeBlocks::cut_smallest)
    }

    /// Cuts a new block from a zone's free blocks. A result this small is returned in a register.
    #[inline(always)]
    pub(super) fn place_by(
        &mut self,
        bytes: u64,
        zone: Zone,
        cut: impl FnOnce(&mut FreeBlocks, &mut Table, u64) -> u32,
    ) -> u32 {
        let Some(size) = self.round(bytes) else { return NONE };
        if self.table.reserve(1).is_err() {
            return NONE;
        }
        let Self { table, stable, dynamic, .. } = self;
        let index = cut(&mut choose(stable, dynamic, zone).free, table, size);
        if index != NONE {
            self.occupy(index, size, zone, self.shift);
        }
        index
    }

    /// As [`place`](Self::place), at a multiple of `alignment`.
    fn place_aligned(&mut self, bytes: u64, alignment: u64, zone: Zone) -> u32 {
        let granule = self.alignment();
        if !alignment.is_power_of_two() {
            return NONE;
        }
        if alignment <= granule {
            return self.place(bytes, zone);
        }
        let Some(size) = self.round(bytes) else { return NONE };
        // Free bytes may remain before and after the block.
        if zone == Zone::Stable && self.dynamic.start == 0 || self.table.reserve(2).is_err() {
            return NONE;
        }
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, zone);
        let Some((hole, offset)) = space.free.aligned(table, size, alignment, granule) else { return NONE };
        let index = space.carve(table, hole, offset, size);
        self.occupy(index, size, zone, alignment.trailing_zeros());
        index
    }

    #[inline]
    pub(super) fn occupy(&mut self, index: u32, bytes: u64, zone: Zone, alignment: u32) {
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, zone);
        space.used += bytes;
        space.live += 1;
        self.serial += 1;
        table[index].go_live(self.serial, alignment as u8);
        self.peak = self.peak.max(self.stable.used + self.dynamic.used);
    }

    /// The error of a request that nothing serves.
    #[cold]
    pub(crate) fn refusal(&mut self, (bytes, alignment, zone): (u64, u64, Zone)) -> ArenaError {
        let Some(size) = self.round(bytes) else {
            return if bytes == 0 { ArenaError::ZeroBytes } else { ArenaError::Overflow { bytes } };
        };
        if !alignment.is_power_of_two() {
            return ArenaError::Alignment { alignment };
        }
        if zone == Zone::Stable && self.dynamic.start == 0 {
            return ArenaError::NoStableZone;
        }
        if let Err(error) = self.table.reserve(2) {
            return error;
        }
        ArenaError::NoSpace {
            bytes: size,
            alignment: alignment.max(self.alignment()),
            zone,
            available_bytes: self.available(zone),
            largest_bytes: self.largest_free_block(zone),
        }
    }

    /// Frees a block, and merges it with free neighbours.
    ///
    /// # Errors
    /// [`ArenaError::StaleBlock`] if the block was already freed, [`ArenaError::ForeignBlock`] if it is
    /// another arena's, [`ArenaError::Moving`].
    #[inline]
    pub fn free(&mut self, block: BlockId) -> Result<(), ArenaError> {
        let usual = self.table.get(block.index()).is_some_and(|record| record.is_still(block.serial()));
        if !usual || block.arena() != self.id {
            return Err(self.still_tag(block).err().unwrap_or(ArenaError::StaleBlock));
        }
        let (is_newest, index) = (block.serial() == self.serial, block.index());
        let Self { table, stable, dynamic, .. } = self;
        let space = if table[index].offset < dynamic.start { stable } else { dynamic };
        space.used -= table[index].bytes;
        space.live -= 1;
        if is_newest {
            space.merge_newest(table, index);
        } else {
            space.merge(table, index);
        }
        Ok(())
    }

    /// Frees everything, including moving blocks. Earlier blocks become stale; the peak stays.
    pub fn reset(&mut self) {
        let Self { table, stable, dynamic, .. } = self;
        table.clear();
        for (zone, space) in [(Zone::Stable, stable), (Zone::Dynamic, dynamic)] {
            space.free.clear();
            space.changes += 1;
            (space.used, space.held, space.live) = (0, 0, 0);
            let (start, bytes) = (space.start, space.end - space.start);
            if bytes > 0 {
                let all = table.take(start, bytes, end_of(zone));
                space.merge(table, all);
            }
        }
    }

    #[inline]
    pub(super) fn serial(&self) -> u64 {
        self.serial
    }

    /// Rounds a size up; `None` for 0, or if it overflows.
    #[inline]
    pub(super) fn round(&self, bytes: u64) -> Option<u64> {
        let below = self.alignment() - 1;
        // 0 results from 0 and from an overflow.
        let size = (bytes.wrapping_sub(1) | below).wrapping_add(1);
        (size > 0).then_some(size)
    }

    /// Returns the tag of a live block, moving or not.
    #[inline]
    pub(super) fn live_tag(&self, block: BlockId) -> Result<Tag, ArenaError> {
        if block.arena() != self.id {
            return Err(ArenaError::ForeignBlock);
        }
        let record = self.table.get(block.index()).filter(|record| record.serial() == block.serial());
        match record.and_then(Record::tag) {
            Some(tag) if matches!(tag.state, BlockState::Live | BlockState::Moving) => Ok(tag),
            _ => Err(ArenaError::StaleBlock),
        }
    }

    /// Returns the tag of a live block that is not being moved.
    pub(super) fn still_tag(&self, block: BlockId) -> Result<Tag, ArenaError> {
        let tag = self.live_tag(block)?;
        if tag.state == BlockState::Moving { Err(ArenaError::Moving) } else { Ok(tag) }
    }

    pub(super) fn name(&self, index: u32) -> BlockId {
        BlockId::new(self.table[index].serial(), index, self.id)
    }

    #[inline]
    pub(crate) fn zone_at(&self, offset: u64) -> Zone {
        if offset < self.dynamic.start { Zone::Stable } else { Zone::Dynamic }
    }

    #[inline]
    pub(super) fn space(&self, zone: Zone) -> &ZoneState {
        match zone {
            Zone::Stable => &self.stable,
            Zone::Dynamic => &self.dynamic,
        }
    }
}
