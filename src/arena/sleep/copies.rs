//! Copies contents of blocks to the host, and back.

use super::backups::{Backups, Chunk, common, merged, pack};
use super::offload::Offload;
use crate::arena::core::ArenaCore;
use crate::arena::mapping::pages::Extent;
use crate::staging::stored::{Stored, can_pin, on_a_stream};
use vrampool_backend::{Backend, BackendError, Region, RegionMut};

impl<B: Backend> ArenaCore<B> {
    /// Copies live extents, sorted by offset, to the host: all copies in sequence, then one wait.
    pub(super) fn back_up(
        &self,
        range: &B::Memory,
        live: &[Extent],
        offload: Offload,
    ) -> Result<Backups<B>, BackendError> {
        if offload == Offload::Discard || live.is_empty() {
            return Ok(Backups::default());
        }
        let mut pins = offload == Offload::Pinned && can_pin(&self.device);
        let mut backups = Backups::default();
        on_a_stream(&self.device, |stream| {
            for parts in pack(live) {
                let bytes = parts.iter().map(|part| part.bytes).sum();
                let mut stored = Stored::new(&self.device, bytes, &mut pins)?;
                let mut at = 0;
                for part in &parts {
                    let source = Region::new(range, part.start, part.bytes, stream)?;
                    stored.save(&self.device, stream, source, at)?;
                    at += part.bytes;
                }
                backups.chunks.push(Chunk { parts, live: bytes, stored: Some(stored) });
            }
            Ok::<(), BackendError>(())
        })?;
        Ok(backups)
    }

    /// Copies backups of live extents, sorted by offset, back to the range, and waits. Returns the bytes.
    pub(super) fn restore(
        &self,
        range: &B::Memory,
        backups: &Backups<B>,
        live: &[Extent],
    ) -> Result<u64, BackendError> {
        if backups.stored().next().is_none() {
            return Ok(0);
        }
        let (live, mut restored) = (merged(live), 0);
        on_a_stream(&self.device, |stream| {
            for chunk in &backups.chunks {
                let Some(stored) = &chunk.stored else { continue };
                let mut at = 0;
                for &part in &chunk.parts {
                    for extent in common(&live, part) {
                        let from = at + (extent.start - part.start);
                        let destination = RegionMut::new(range, extent.start, extent.bytes, stream)?;
                        stored.restore(&self.device, stream, from, destination)?;
                        restored += extent.bytes;
                    }
                    at += part.bytes;
                }
            }
            Ok::<(), BackendError>(())
        })?;
        Ok(restored)
    }
}
