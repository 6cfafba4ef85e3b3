//! Resizes a zone.

use super::error::ArenaError;
use super::operations::Arena;
use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::choose;

impl Arena {
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
}
