//! Detaches the physical memory of a growing arena: it returns to the device, the addresses stay. Attaches memory
//! at the same addresses later.
//!
//! * `right`: the right of a thread to change an arena, and whether this thread has one;
//! * `map_views`: maps views, which are the arena's range and stitched ranges, and unmaps them;
//! * `begin`, `detaching` and `attaching`: the two directions, each with a reversible part and a part that cannot fail.
//!
//! A failed call leaves the arena as it was, except that idle memory of its pool may have been released. Blocks keep
//! their addresses. Both directions keep the handles of physical memory until nothing can fail any more. If the
//! reversal fails too (a second fault in one call), the arena is detached and keeps its physical memory, and the next
//! attachment maps it again.
//!
//! Contents are not kept: a caller copies them in between. `ArenaCore::attached` is the one place where a detached
//! arena refuses a request.

mod attaching;
mod begin;
mod detaching;
mod map_views;
mod right;

pub use attaching::Attaching;
pub use detaching::{Detaching, Unmapped};
pub(crate) use right::{Refusal, is_changing_one};

use crate::heap::arena::mapping::Extent;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{Backend, Physical};

/// Whether a [growing](crate::arena::ArenaBuilder::growing) arena has its physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Attachment {
    /// Memory is mapped as needed. Also of any other arena.
    Attached,
    /// Between the other two.
    Changing,
    /// The device has the physical memory, and blocks keep their addresses.
    Detached,
}

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
    pieces: Vec<DetachedPiece>,
    /// The range, and the stitched ranges that buffers use.
    views: Vec<View<B>>,
    /// The extents of live blocks at its beginning, by offset.
    live: Vec<Range<u64>>,
    pub(crate) on_free: OnFree,
}

/// The extent of a piece, and its physical memory if that could not be released.
#[derive(Debug)]
struct DetachedPiece {
    extent: Extent,
    physical: Option<Physical>,
}

impl<B: Backend> Change<B> {
    /// Bytes of addresses of stitched ranges.
    pub(crate) fn stitched_bytes(&self) -> u64 {
        self.views.iter().filter(|view| !view.is_range && view.is_used()).map(View::bytes).sum()
    }

    /// Bytes of physical memory that could not be released.
    fn kept(&self) -> u64 {
        let kept = self.pieces.iter().filter(|piece| piece.physical.is_some());
        kept.map(|piece| piece.extent.bytes).sum()
    }
}

/// Called with the extents of blocks that are freed while the arena is detached.
#[derive(Clone, Default)]
pub(crate) struct OnFree(Option<Arc<Callback>>);

type Callback = dyn Fn(&[Range<u64>]) + Send + Sync;

impl OnFree {
    fn new(call: impl Fn(&[Range<u64>]) + Send + Sync + 'static) -> Self {
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

/// The arena's range or a stitched range.
#[derive(Debug)]
struct View<B: Backend> {
    memory: Arc<B::Memory>,
    is_range: bool,
    /// The age of a stitched range whose pieces are all present.
    age: Option<u64>,
    /// By offset.
    mappings: Vec<Mapping>,
}

/// A piece in a view.
#[derive(Debug)]
struct Mapping {
    offset: u64,
    extent: Extent,
    state: MapState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MapState {
    Out,
    Mapped,
    Accessible,
}

impl Mapping {
    fn is_mapped(&self) -> bool {
        self.state != MapState::Out
    }
}

impl<B: Backend> View<B> {
    pub(crate) fn bytes(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.extent.bytes).sum()
    }

    /// Whether it is the range, or a buffer has it.
    fn is_used(&self) -> bool {
        self.is_range || Arc::strong_count(&self.memory) > 1
    }

    /// Returns runs of adjacent mappings for which `is_such` holds: start, bytes, and indices.
    fn runs(&self, is_such: impl Fn(&Mapping) -> bool) -> Vec<(u64, u64, Range<usize>)> {
        let mut runs: Vec<(u64, u64, Range<usize>)> = Vec::new();
        for (index, mapping) in self.mappings.iter().enumerate().filter(|(_, mapping)| is_such(mapping)) {
            match runs.last_mut() {
                Some((start, bytes, of)) if *start + *bytes == mapping.offset && of.end == index => {
                    *bytes += mapping.extent.bytes;
                    of.end += 1;
                }
                _ => runs.push((mapping.offset, mapping.extent.bytes, index..index + 1)),
            }
        }
        runs
    }
}
