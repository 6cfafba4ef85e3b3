//! Allocate, free, coalesce, resize, grow, shrink.

use super::block::Block;
use super::error::ArenaError;
use super::free::FreeBlocks;
use super::layout::{Layout, Region};
use super::table::{Role, State, Table, Tag, end_of};
use std::sync::atomic::{AtomicU32, Ordering};

/// Sub-allocates one range of bytes that it never touches: [the module](super) says how.
#[derive(Debug)]
pub struct Arena {
    /// Tells its blocks from other arenas'.
    id: u32,
    /// Blocks named so far.
    serial: u64,
    /// The alignment, as a power of two.
    pub(super) shift: u32,
    pub(super) table: Table,
    pub(super) stable: Space,
    pub(super) dynamic: Space,
    pub(super) peak: u64,
}

/// One region.
#[derive(Debug)]
pub(super) struct Space {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) free: FreeBlocks,
    pub(super) used: u64,
    /// Bytes that are neither live nor free.
    pub(super) held: u64,
    pub(super) live: u32,
}

impl Space {
    fn new(start: u64, end: u64) -> Self {
        Self { start, end, free: FreeBlocks::new(), used: 0, held: 0, live: 0 }
    }
}

impl Arena {
    /// An arena in which everything is free.
    ///
    /// # Errors
    /// [`ArenaError::Alignment`], [`ArenaError::StableTooLarge`].
    pub fn new(layout: Layout) -> Result<Self, ArenaError> {
        static ARENAS: AtomicU32 = AtomicU32::new(0);
        let (shift, stable, end) = layout.measure()?;
        let mut arena = Self {
            id: ARENAS.fetch_add(1, Ordering::Relaxed),
            serial: 0,
            shift,
            table: Table::new(),
            stable: Space::new(0, stable),
            dynamic: Space::new(stable, end),
            peak: 0,
        };
        arena.reset();
        Ok(arena)
    }

    /// Allocates `bytes`, rounded up to the arena's alignment, from the smallest free block that holds them.
    ///
    /// # Errors
    /// As [`allocate_aligned`](Self::allocate_aligned).
    #[inline]
    pub fn allocate(&mut self, bytes: u64, region: Region) -> Result<Block, ArenaError> {
        self.allocate_aligned(bytes, 1, region)
    }

    /// Allocates `bytes`, rounded up to the arena's alignment, at an offset that is a multiple of `alignment` and of the
    /// arena's. What the alignment leaves in front stays free.
    ///
    /// With an alignment of at most the arena's this takes a bounded number of steps and the smallest free block that
    /// holds the request. Above it, some blocks may hold the size and not the alignment: a few are tried from the
    /// smallest up, then one is taken that is large enough wherever it lies. Only if there is none are all free blocks
    /// of between `bytes` and `bytes + alignment` looked at, so that a request that can be served is.
    ///
    /// # Errors
    /// [`ArenaError::NoSpace`] when no free block of the region holds the request; [`ArenaError::NoStableRegion`],
    /// [`ArenaError::ZeroBytes`], [`ArenaError::Alignment`], [`ArenaError::Overflow`] for what can never be served;
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`].
    pub fn allocate_aligned(
        &mut self,
        bytes: u64,
        alignment: u64,
        region: Region,
    ) -> Result<Block, ArenaError> {
        let size = self.round(bytes)?;
        if !alignment.is_power_of_two() {
            return Err(ArenaError::Alignment(alignment));
        }
        if region == Region::Stable && self.stable.end == 0 {
            return Err(ArenaError::NoStableRegion);
        }
        // In front of the block and behind it something free may remain.
        self.table.reserve(2)?;
        let granule = self.alignment();
        let free = &self.space(region).free;
        let found = if alignment <= granule {
            free.smallest(&self.table, size).map(|index| (index, self.table[index].offset))
        } else {
            free.aligned(&self.table, size, alignment, granule)
        };
        let Some((index, offset)) = found else {
            return Err(self.no_space(size, alignment.max(granule), region));
        };
        self.serial += 1;
        let tag = Tag::new(self.serial, alignment.max(granule).trailing_zeros() as u8);
        let index = self.carve(index, offset, size, tag, region);
        let space = self.space_mut(region);
        space.used += size;
        space.live += 1;
        self.peak = self.peak.max(self.used());
        Ok(Block { serial: self.serial, index, arena: self.id })
    }

    #[cold]
    fn no_space(&self, bytes: u64, alignment: u64, region: Region) -> ArenaError {
        let (available, largest) = (self.available(region), self.largest_free_block(region));
        ArenaError::NoSpace { bytes, alignment, region, available, largest }
    }

    /// Takes `bytes` at `offset` out of a free block. Two records must be in reserve.
    #[inline]
    fn carve(&mut self, index: u32, offset: u64, bytes: u64, tag: Tag, region: Region) -> u32 {
        let Self { table, stable, dynamic, .. } = self;
        let free = &mut choose(stable, dynamic, region).free;
        let (start, end) = (table[index].offset, table[index].end());
        let (front, rest) = (offset - start, end - offset - bytes);
        let role = Role::Taken(tag);
        if front == 0 && rest == 0 {
            free.remove(table, index);
            table[index].role = role;
            return index;
        }
        if front == 0 {
            // The free block's record stays that of what remains of it.
            table[index].offset = offset + bytes;
            free.resize(table, index, rest);
            return table.take(offset, bytes, role, index);
        }
        free.resize(table, index, front);
        let after = table[index].after;
        let taken = table.take(offset, bytes, role, after);
        if rest > 0 {
            let remainder = table.take(offset + bytes, rest, role, after);
            free.insert(table, remainder);
        }
        taken
    }

    /// Frees a block; it merges with its neighbours if they are free. A block that is being moved goes when its move
    /// ends.
    ///
    /// # Errors
    /// [`ArenaError::StaleBlock`] for a block that was freed before, [`ArenaError::ForeignBlock`] for another arena's,
    /// [`ArenaError::Pinned`].
    pub fn free(&mut self, block: Block) -> Result<(), ArenaError> {
        let tag = self.live_tag(block)?;
        if tag.pins > 0 {
            return Err(ArenaError::Pinned);
        }
        let record = &self.table[block.index];
        let (region, bytes) = (self.region_at(record.offset), record.bytes);
        let space = self.space_mut(region);
        space.used -= bytes;
        space.live -= 1;
        if tag.state == State::Moving {
            space.held += bytes;
            self.set_tag(block.index, Tag { state: State::Doomed, ..tag });
        } else {
            self.merge(block.index, region);
        }
        Ok(())
    }

    /// Makes a record a free block, or part of a free neighbour.
    #[inline]
    pub(super) fn merge(&mut self, index: u32, region: Region) {
        let Self { table, stable, dynamic, .. } = self;
        let free = &mut choose(stable, dynamic, region).free;
        let (before, after) = (table[index].before, table[index].after);
        let (offset, bytes) = (table[index].offset, table[index].bytes);
        match (table[before].is_free(), table[after].is_free()) {
            (false, false) => free.insert(table, index),
            (false, true) => {
                table.give_back(index);
                table[after].offset = offset;
                free.resize(table, after, bytes + table[after].bytes);
            }
            (true, false) => {
                table.give_back(index);
                free.resize(table, before, table[before].bytes + bytes);
            }
            (true, true) => {
                let behind = table[after].bytes;
                free.remove(table, after);
                table.give_back(after);
                table.give_back(index);
                free.resize(table, before, table[before].bytes + bytes + behind);
            }
        }
    }

    /// Makes a block `bytes` long, rounded up to the alignment, where it is: shrinking always works, growing if what is
    /// behind it is free. Its contents stay.
    ///
    /// # Errors
    /// [`ArenaError::NoRoom`] when it cannot grow; [`ArenaError::Pinned`] for shrinking what is pinned;
    /// [`ArenaError::ZeroBytes`], [`ArenaError::Overflow`], [`ArenaError::StaleBlock`], [`ArenaError::ForeignBlock`],
    /// [`ArenaError::Moving`], [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`].
    pub fn resize_in_place(&mut self, block: Block, bytes: u64) -> Result<(), ArenaError> {
        let tag = self.still_tag(block)?;
        let new = self.round(bytes)?;
        self.table.reserve(1)?;
        let index = block.index;
        let (offset, old, after) =
            (self.table[index].offset, self.table[index].bytes, self.table[index].after);
        let region = self.region_at(offset);
        if new == old {
            return Ok(());
        }
        if new < old {
            if tag.pins > 0 {
                return Err(ArenaError::Pinned);
            }
            self.table[index].bytes = new;
            let rest = self.table.take(offset + new, old - new, Role::Taken(tag), after);
            self.merge(rest, region);
            self.space_mut(region).used -= old - new;
            return Ok(());
        }
        let by = new - old;
        let room = if self.table[after].is_free() { self.table[after].bytes } else { 0 };
        if by > room {
            return Err(ArenaError::NoRoom { by, room });
        }
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, region);
        table[index].bytes = new;
        if by == room {
            space.free.remove(table, after);
            table.give_back(after);
        } else {
            table[after].offset += by;
            space.free.resize(table, after, room - by);
        }
        space.used += by;
        self.peak = self.peak.max(self.used());
        Ok(())
    }

    /// Makes the arena `capacity` bytes long, rounded down to the alignment. What is added at the end is free and merges
    /// with a free block there; what is cut off must be free.
    ///
    /// # Errors
    /// [`ArenaError::CapacityInUse`] says how much is the least; [`ArenaError::StableTooLarge`] if the dynamic region
    /// would vanish behind a stable one; [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`].
    pub fn set_capacity(&mut self, capacity: u64) -> Result<(), ArenaError> {
        let Space { start, end: old, .. } = self.dynamic;
        let new = capacity & !(self.alignment() - 1);
        if start > 0 && new <= start {
            return Err(ArenaError::StableTooLarge { stable_bytes: start, capacity });
        }
        self.table.reserve(1)?;
        let (table, free) = (&mut self.table, &mut self.dynamic.free);
        let ring = end_of(Region::Dynamic);
        let last = table[ring].before;
        if new > old {
            let tag = Tag::nameless(State::NoBlock);
            let added = table.take(old, new - old, Role::Taken(tag), ring);
            self.dynamic.end = new;
            self.merge(added, Region::Dynamic);
            return Ok(());
        }
        let needed = if table[last].is_free() { table[last].offset } else { old };
        if new < needed {
            return Err(ArenaError::CapacityInUse { capacity, needed });
        }
        if new == needed && new < old {
            free.remove(table, last);
            table.give_back(last);
        } else if new < old {
            free.resize(table, last, new - needed);
        }
        self.dynamic.end = new;
        Ok(())
    }

    /// Frees everything, pinned or moving or not. Blocks from before are stale; the peak stays.
    pub fn reset(&mut self) {
        self.table.clear();
        for region in [Region::Stable, Region::Dynamic] {
            let space = self.space_mut(region);
            space.free.clear();
            (space.used, space.held, space.live) = (0, 0, 0);
            let (start, bytes) = (space.start, space.end - space.start);
            if bytes > 0 {
                let tag = Tag::nameless(State::NoBlock);
                let all = self.table.take(start, bytes, Role::Taken(tag), end_of(region));
                self.merge(all, region);
            }
        }
    }

    /// What a size rounds up to.
    #[inline]
    fn round(&self, bytes: u64) -> Result<u64, ArenaError> {
        if bytes == 0 {
            return Err(ArenaError::ZeroBytes);
        }
        let below = self.alignment() - 1;
        Ok(bytes.checked_add(below).ok_or(ArenaError::Overflow { bytes })? & !below)
    }

    /// The tag of a block that exists and was not freed.
    #[inline]
    pub(super) fn live_tag(&self, block: Block) -> Result<Tag, ArenaError> {
        if block.arena != self.id {
            return Err(ArenaError::ForeignBlock);
        }
        match self.table.get(block.index).map(|record| record.role) {
            Some(Role::Taken(tag))
                if tag.serial() == block.serial && matches!(tag.state, State::Live | State::Moving) =>
            {
                Ok(tag)
            }
            _ => Err(ArenaError::StaleBlock),
        }
    }

    /// The tag of a live block that is not being moved.
    pub(super) fn still_tag(&self, block: Block) -> Result<Tag, ArenaError> {
        let tag = self.live_tag(block)?;
        if tag.state == State::Moving { Err(ArenaError::Moving) } else { Ok(tag) }
    }

    #[inline]
    pub(super) fn set_tag(&mut self, index: u32, tag: Tag) {
        self.table[index].role = Role::Taken(tag);
    }

    #[inline]
    pub(super) fn name(&self, index: u32, tag: Tag) -> Block {
        Block { serial: tag.serial(), index, arena: self.id }
    }

    #[inline]
    pub(super) fn region_at(&self, offset: u64) -> Region {
        if offset < self.stable.end { Region::Stable } else { Region::Dynamic }
    }

    #[inline]
    pub(super) fn space(&self, region: Region) -> &Space {
        match region {
            Region::Stable => &self.stable,
            Region::Dynamic => &self.dynamic,
        }
    }

    #[inline]
    pub(super) fn space_mut(&mut self, region: Region) -> &mut Space {
        choose(&mut self.stable, &mut self.dynamic, region)
    }
}

/// A region's space, where the arena's other fields are borrowed as well.
#[inline]
pub(super) fn choose<'a>(stable: &'a mut Space, dynamic: &'a mut Space, region: Region) -> &'a mut Space {
    match region {
        Region::Stable => stable,
        Region::Dynamic => dynamic,
    }
}
