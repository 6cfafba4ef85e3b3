//! Maps the views of an arena, and unmaps them.

use crate::heap::arena::ArenaCore;
use crate::heap::arena::detach::{DetachedPiece, MapState, Mapping, View};
use vrampool_backend::{Backend, BackendError};

impl<B: Backend> ArenaCore<B> {
    /// Unmaps all views, which no work uses any more. After a failure the states record what was unmapped.
    pub(super) fn unmap_views(&self, views: &mut [View<B>]) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        for view in views {
            for (start, bytes, of) in view.runs(Mapping::is_mapped) {
                self.timed(|| device.unmap(&view.memory, start, bytes))?;
                view.mappings[of].iter_mut().for_each(|mapping| mapping.state = MapState::Out);
            }
        }
        Ok(())
    }

    /// Maps all pieces with physical memory in the views. After a failure the states record what was mapped.
    pub(super) fn map_views(
        &self,
        views: &mut [View<B>],
        pieces: &[DetachedPiece],
    ) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        for view in views {
            for mapping in view.mappings.iter_mut().filter(|mapping| !mapping.is_mapped()) {
                let place = pieces.binary_search_by_key(&mapping.extent.start, |piece| piece.extent.start);
                let piece = place.ok().and_then(|place| pieces.get(place));
                let Some(physical) = piece.and_then(|piece| piece.physical.as_ref()) else { continue };
                self.timed(|| device.map(&view.memory, mapping.offset, physical))?;
                mapping.state = MapState::Mapped;
            }
            for (start, bytes, of) in view.runs(|mapping| mapping.state == MapState::Mapped) {
                self.timed(|| device.set_access(&view.memory, start, bytes))?;
                view.mappings[of].iter_mut().for_each(|mapping| mapping.state = MapState::Accessible);
            }
        }
        Ok(())
    }
}
