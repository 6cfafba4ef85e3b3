//! Reserves more addresses for a growing arena whose limit was raised.
//!
//! Addresses are reserved in proportion to the limit. If a higher limit needs more of them, a larger range
//! replaces the old one, with all pieces mapped at the same offsets. Blocks keep their addresses: the old
//! range stays until the last of them is freed, like a stitched range in use.

use crate::heap::arena::builder::reserve_for;
use crate::heap::arena::mapping::StitchedPart;
use crate::heap::arena::{ArenaCore, StateGuard};
use crate::heap::space::Extent;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, logging};

impl<B: Backend> ArenaCore<B> {
    /// Ensures addresses for the limit, if possible. Only for the thread that may change the arena, which is attached.
    pub(crate) fn widen<'a>(&'a self, state: StateGuard<'a, B>) -> StateGuard<'a, B> {
        if state.backing.as_ref().is_none_or(|backing| backing.is_wide()) {
            return state;
        }
        if let Err(error) = self.replace_range(state) {
            logging::warn!("arena on {}: no addresses for its limit, because {error}", self.id);
        }
        self.state.lock()
    }

    fn replace_range(&self, state: StateGuard<'_, B>) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        let Some(backing) = &state.backing else { return Ok(()) };
        let (capacity, granularity) = (backing.capacity(), backing.granularity);
        let extents = backing.extents.clone();
        let physical = backing.physical.clone();
        drop(state);
        let (range, _, addresses) = self.timed(|| reserve_for(device, (capacity, capacity), granularity))?;
        let places: Vec<_> = extents.iter().copied().zip(&physical).collect();
        self.map_all(&range, &places)?;
        let mut state = self.state.lock();
        let old = state.range.replace(range);
        let part = |&piece: &Extent| StitchedPart { offset: piece.start, piece };
        if let Some(backing) = &mut state.backing {
            let bytes = std::mem::replace(&mut backing.addresses, addresses);
            let parts = extents.iter().map(part).collect();
            backing.put_partly_unmapped(Arc::clone(&old.0), bytes, parts);
        }
        drop(state);
        drop(old);
        logging::info!("arena on {}: {addresses} bytes of addresses reserved for a higher limit", self.id);
        Ok(())
    }
}
