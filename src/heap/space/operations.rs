//! Creates arenas; allocates and frees blocks; sets the end of a zone.

use super::block::BlockId;
use super::error::ArenaError;
use super::layout::ArenaLayout;
use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::{
    BlockState, FreeBlock, FreeBlocks, NONE, Record, RoomRule, Table, ZoneState, choose,
};
use std::sync::atomic::{AtomicU32, Ordering};

/// Sub-allocates a range of bytes that it never accesses. [The module](super) describes the algorithm.
///
/// ```
/// use vrampool::arena::{Arena, ArenaError, ArenaLayout, Zone};
/// # fn main() -> Result<(), ArenaError> {
/// let mut arena = Arena::new(ArenaLayout::new(1 << 20).alignment(256))?;
/// let block = arena.allocate(1000, Zone::Dynamic)?;
/// assert_eq!((arena.offset(block)?, arena.used()), (0, 1024)); // rounded to the alignment
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
}

impl Arena {
    /// Creates an arena whose bytes are all free.
    ///
    /// # Errors
    /// [`ArenaError::Alignment`], [`ArenaError::StableTooLarge`].
    pub fn new(layout: ArenaLayout) -> Result<Self, ArenaError> {
        static ARENAS: AtomicU32 = AtomicU32::new(0);
        let (shift, stable, end) = layout.measure()?;
        let mut arena = Self {
            id: ARENAS.fetch_add(1, Ordering::Relaxed),
            serial: 0,
            shift,
            table: Table::new(),
            stable: ZoneState::new(Zone::Stable, 0, stable, shift),
            dynamic: ZoneState::new(Zone::Dynamic, stable, end, shift),
            peak: 0,
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
    /// [`ArenaError::NoSpace`] if no free block of the zone holds it; [`ArenaError::NoStableZone`],
    /// [`ArenaError::ZeroBytes`], [`ArenaError::Overflow`] for an invalid request.
    #[inline]
    pub fn allocate(&mut self, bytes: u64, zone: Zone) -> Result<BlockId, ArenaError> {
        let size = self.round(bytes).unwrap_or(0);
        match self.room_by(size, RoomRule::Smallest(zone)).filter(|_| size > 0) {
            Some(room) => Ok(self.allocate_front(room, size)),
            None => Err(self.refusal((bytes, zone))),
        }
    }

    /// The free block that a rule selects for `size`, a multiple of the alignment.
    #[inline(always)]
    pub(crate) fn room_by(&self, size: u64, rule: RoomRule) -> Option<FreeBlock> {
        self.room(match rule {
            RoomRule::Smallest(zone) if !self.has(zone) => NONE,
            RoomRule::Smallest(zone) => self.space(zone).free.smallest(&self.table, size),
            RoomRule::LowestHole => self.dynamic.free.lowest_hole(&self.table, size),
        })
    }

    #[inline(always)]
    pub(super) fn room(&self, index: u32) -> Option<FreeBlock> {
        (index != NONE && !self.table.is_full()).then(|| self.free_block(index))
    }

    #[inline(always)]
    pub(super) fn free_block(&self, index: u32) -> FreeBlock {
        FreeBlock { extent: self.table[index].extent(), index }
    }

    /// Allocates `size`, a multiple of the alignment, at the front of a free block that holds them. Call it before
    /// anything else changes the arena.
    #[inline(never)]
    pub(crate) fn allocate_front(&mut self, room: FreeBlock, size: u64) -> BlockId {
        let zone = self.zone_at(room.extent.start);
        let Self { table, stable, dynamic, .. } = self;
        let index = choose(stable, dynamic, zone).free.cut(table, room.index, size);
        self.occupy(index, size, zone);
        BlockId::new(self.serial, index, self.id)
    }

    /// Returns the newest block, or the error of a failed request.
    #[inline]
    pub(super) fn named(&self, index: u32, request: (u64, Zone)) -> Result<BlockId, ArenaError> {
        match index {
            NONE => Err(self.refusal(request)),
            index => Ok(BlockId::new(self.serial, index, self.id)),
        }
    }

    /// Whether there is such a zone.
    #[inline]
    pub(super) fn has(&self, zone: Zone) -> bool {
        zone == Zone::Dynamic || self.dynamic.start > 0
    }

    #[inline(always)]
    pub(super) fn occupy(&mut self, index: u32, bytes: u64, zone: Zone) {
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, zone);
        space.used += bytes;
        self.serial += 1;
        table[index].go_live(self.serial);
        self.peak = self.peak.max(self.stable.used + self.dynamic.used);
    }

    /// The error of a request that nothing serves.
    #[cold]
    pub(crate) fn refusal(&self, (bytes, zone): (u64, Zone)) -> ArenaError {
        let Some(size) = self.round(bytes) else {
            return if bytes == 0 { ArenaError::ZeroBytes } else { ArenaError::Overflow { bytes } };
        };
        if !self.has(zone) {
            return ArenaError::NoStableZone;
        }
        ArenaError::NoSpace {
            bytes: size,
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
            return Err(self.check_still(block).err().unwrap_or(ArenaError::StaleBlock));
        }
        let index = block.index();
        let Self { table, stable, dynamic, .. } = self;
        let space = if table[index].offset < dynamic.start { stable } else { dynamic };
        space.used -= table[index].bytes;
        space.merge(table, index);
        Ok(())
    }

    /// Frees everything, including moving blocks. Earlier blocks become stale; the peak stays.
    pub fn reset(&mut self) {
        let Self { table, stable, dynamic, .. } = self;
        table.clear();
        for (zone, space) in [(Zone::Stable, stable), (Zone::Dynamic, dynamic)] {
            space.free.clear();
            (space.used, space.held) = (0, 0);
            let (start, bytes) = (space.start, space.end - space.start);
            if bytes > 0 {
                let all = table.take(start, bytes, end_of(zone));
                space.merge(table, all);
            }
        }
    }

    /// Sets the end of a zone: a multiple of the alignment, not before the zone's start, and for the stable zone not
    /// beyond the start of the dynamic zone.
    ///
    /// # Errors
    /// [`ArenaError::CapacityInUse`] if that would cut off blocks.
    pub(crate) fn set_end(&mut self, zone: Zone, new: u64) -> Result<(), ArenaError> {
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, zone);
        let (ring, old) = (end_of(zone), space.end);
        let last = table[ring].before;
        if new > old {
            let added = table.take(old, new - old, ring);
            space.end = new;
            space.merge(table, added);
            return Ok(());
        }
        let needed = if table[last].is_free() { table[last].offset } else { old };
        if new < needed {
            return Err(ArenaError::CapacityInUse { capacity_bytes: new, needed_bytes: needed });
        }
        if new == needed && new < old {
            space.free.remove(table, last);
            table.recycle(last);
        } else if new < old {
            space.free.resize(table, last, new - needed);
        }
        space.end = new;
        Ok(())
    }

    /// Rounds a size up; `None` for 0, or if it overflows.
    #[inline]
    pub(crate) fn round(&self, bytes: u64) -> Option<u64> {
        let below = self.alignment() - 1;
        // 0 results from 0 and from an overflow.
        let size = (bytes.wrapping_sub(1) | below).wrapping_add(1);
        (size > 0).then_some(size)
    }

    /// Returns whether a live block is moving.
    #[inline]
    pub(super) fn is_moving(&self, block: BlockId) -> Result<bool, ArenaError> {
        if block.arena() != self.id {
            return Err(ArenaError::ForeignBlock);
        }
        let record = self.table.get(block.index()).filter(|record| record.serial() == block.serial());
        match record.and_then(Record::state) {
            Some(BlockState::Live) => Ok(false),
            Some(BlockState::Moving) => Ok(true),
            _ => Err(ArenaError::StaleBlock),
        }
    }

    /// Checks that a block is live and not being moved.
    pub(super) fn check_still(&self, block: BlockId) -> Result<(), ArenaError> {
        if self.is_moving(block)? { Err(ArenaError::Moving) } else { Ok(()) }
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
