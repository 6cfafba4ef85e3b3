//! Whether an arena has its physical memory.

use super::view::View;
use crate::heap::arena::mapping::pages::Extent;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{Backend, Physical};

#[derive(Debug)]
pub(crate) enum Phase<B: Backend> {
    Attached,
    /// Threads that find this phase wait for the lock of changes and look again; a free does not wait.
    Changing,
    Detached(Box<Change<B>>),
}

impl<B: Backend> Phase<B> {
    /// Whether the arena is neither detached nor about to be.
    #[inline]
    pub(crate) fn is_attached(&self) -> bool {
        matches!(self, Self::Attached)
    }
}

/// The parts of an arena without its physical memory, or that is about to be.
#[derive(Debug)]
pub(crate) struct Change<B: Backend> {
    /// The pieces, in order of offset.
    pub(super) pieces: Vec<DetachedPiece>,
    /// The range, and the stitched ranges that buffers use.
    pub(super) views: Vec<View<B>>,
    /// The extents of live blocks at its beginning, by offset.
    pub(super) live: Vec<Range<u64>>,
    pub(crate) on_free: OnFree,
}

/// The extent of a piece, and its physical memory if that could not be released.
#[derive(Debug)]
pub(super) struct DetachedPiece {
    pub(super) extent: Extent,
    pub(super) physical: Option<Physical>,
}

impl<B: Backend> Change<B> {
    /// Bytes of addresses of stitched ranges.
    pub(crate) fn stitched_bytes(&self) -> u64 {
        self.views.iter().filter(|view| !view.is_range && view.is_used()).map(View::bytes).sum()
    }

    /// Bytes of physical memory that could not be released.
    pub(super) fn kept(&self) -> u64 {
        let kept = self.pieces.iter().filter(|piece| piece.physical.is_some());
        kept.map(|piece| piece.extent.bytes).sum()
    }
}

/// Called with the extents of blocks that are freed while the arena is detached.
#[derive(Clone, Default)]
pub(crate) struct OnFree(Option<Arc<Callback>>);

type Callback = dyn Fn(&[Range<u64>]) + Send + Sync;

impl OnFree {
    pub(super) fn new(call: impl Fn(&[Range<u64>]) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(call)))
    }

    /// Must be called without the lock.
    pub(crate) fn call(&self, freed: &[Range<u64>]) {
        if let Some(call) = self.0.as_ref().filter(|_| !freed.is_empty()) {
            call(freed);
        }
    }
}

impl fmt::Debug for OnFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnFree").field(&self.0.is_some()).finish()
    }
}
