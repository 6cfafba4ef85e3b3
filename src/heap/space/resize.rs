//! Resizes blocks and arenas.

use super::block::BlockId;
use super::error::ArenaError;
use super::operations::Arena;
use super::table::end_of;
use super::zone::Zone;
use super::zone_state::choose;

impl Arena {
    /// Resizes a block in place to `bytes`, rounded up to the alignment, and keeps its contents.
    ///
    /// Shrinking always succeeds. Growing requires free bytes directly after the block.
    ///
    /// # Errors
    /// [`ArenaError::NoRoom`] if the block cannot grow; [`ArenaError::ZeroBytes`], [`ArenaError::Overflow`],
    /// [`ArenaError::StaleBlock`], [`ArenaError::ForeignBlock`], [`ArenaError::Moving`],
    /// [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`].
    pub fn resize_in_place(&mut self, block: BlockId, bytes: u64) -> Result<(), ArenaError> {
        self.still_tag(block)?;
        let Some(new) = self.round(bytes) else {
            return Err(if bytes == 0 { ArenaError::ZeroBytes } else { ArenaError::Overflow { bytes } });
        };
        self.table.reserve(1)?;
        let index = block.index();
        let (offset, old, after) =
            (self.table[index].offset, self.table[index].bytes, self.table[index].after);
        let zone = self.zone_at(offset);
        if new == old {
            return Ok(());
        }
        if new < old {
            self.table[index].bytes = new;
            let rest = self.table.take(offset + new, old - new, after);
            let Self { table, stable, dynamic, .. } = self;
            let space = choose(stable, dynamic, zone);
            space.merge(table, rest);
            space.used -= old - new;
            return Ok(());
        }
        let by = new - old;
        let room = if self.table[after].is_free() { self.table[after].bytes } else { 0 };
        if by > room {
            return Err(ArenaError::NoRoom { by_bytes: by, room_bytes: room });
        }
        let Self { table, stable, dynamic, .. } = self;
        let space = choose(stable, dynamic, zone);
        table[index].bytes = new;
        space.changes += 1;
        if by == room {
            space.free.remove(table, after);
            table.recycle(after);
        } else {
            table[after].offset += by;
            space.free.resize(table, after, room - by);
        }
        space.used += by;
        self.peak = self.peak.max(self.used());
        Ok(())
    }

    /// Sets the arena's capacity to `capacity` bytes, rounded down to the alignment.
    ///
    /// Added bytes are free, and merge with a free block at the end. Removed bytes must be free.
    ///
    /// # Errors
    /// [`ArenaError::CapacityInUse`] with the smallest possible capacity; [`ArenaError::StableTooLarge`] if
    /// no dynamic zone would remain after a stable one; [`ArenaError::TooManyBlocks`],
    /// [`ArenaError::HostMemory`].
    pub fn set_capacity(&mut self, capacity: u64) -> Result<(), ArenaError> {
        let start = self.dynamic.start;
        let new = capacity & !(self.alignment() - 1);
        if start > 0 && new <= start {
            return Err(ArenaError::StableTooLarge { stable_bytes: start, capacity_bytes: capacity });
        }
        self.set_end(Zone::Dynamic, new)
    }

    /// As [`set_capacity`](Self::set_capacity), for one zone. The end is a multiple of the alignment, not
    /// before the zone's start, and for the stable zone not beyond the start of the dynamic zone.
    pub(crate) fn set_end(&mut self, zone: Zone, new: u64) -> Result<(), ArenaError> {
        self.table.reserve(1)?;
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
        space.changes += 1;
        if new == needed && new < old {
            space.free.remove(table, last);
            table.recycle(last);
        } else if new < old {
            space.free.resize(table, last, new - needed);
        }
        space.end = new;
        Ok(())
    }
}
