//! A request for a block.

use crate::heap::space::Zone;

/// A request for a block.
#[derive(Debug)]
pub(super) struct ArenaRequest<'a, S> {
    pub(super) bytes: u64,
    /// Only in an arena of fixed size. A growing arena chooses by the size.
    pub(super) zone: Zone,
    pub(super) stream: &'a S,
    /// Whether the stream is captured, if that may matter.
    pub(super) is_captured: bool,
    /// Whether a small one gets free memory of the part for large ones: idle memory of a pool was reclaimed before.
    pub(super) spills: bool,
}

impl<'a, S> ArenaRequest<'a, S> {
    pub(super) fn new((bytes, zone): (u64, Zone), stream: &'a S) -> Self {
        Self { bytes, zone, stream, is_captured: false, spills: false }
    }
}
