//! Detaches the physical memory of a growing arena: it returns to the device, the addresses stay. Attaches memory
//! at the same addresses later.
//!
//! `detaching` and `attaching` are the two directions, each with a reversible part and a part that cannot fail. Here
//! are the parts of an arena without its memory, and the right of a thread to change an arena. Views are the arena's
//! range and stitched ranges.
//!
//! A failed call leaves the arena as it was, except that idle memory of its pool may have been released. Blocks keep
//! their addresses. Both directions keep the handles of physical memory until nothing can fail any more. If the
//! reversal fails too (a second fault in one call), the arena is detached and keeps its physical memory, and the next
//! attachment maps it again.
//!
//! Contents are not kept: a caller copies them in between. `ArenaCore::attached` is the one place where a detached
//! arena refuses a request.

mod attaching;
mod detaching;

pub use attaching::Attaching;
pub use detaching::{Detaching, Unmapped};

use crate::heap::space::{Extent, runs};
use parking_lot::MutexGuard as LongGuard;
use std::cell::Cell;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Physical};

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
        let stitched = self.views.iter().filter(|view| !view.is_range && view.is_used());
        stitched.flat_map(|view| &view.mappings).map(|mapping| mapping.extent.bytes).sum()
    }
}

/// Called with the extents of blocks that are freed while the arena is detached.
#[derive(Clone, Default)]
pub(crate) struct OnFree(Option<Arc<Callback>>);

type Callback = dyn Fn(&[Range<u64>]) + Send + Sync;

impl OnFree {
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
    /// Whether it is the range, or a buffer has it.
    fn is_used(&self) -> bool {
        self.is_range || Arc::strong_count(&self.memory) > 1
    }

    /// Makes `call` for each run of adjacent mappings for which `is_such` holds. Those mappings get a `state` after it.
    fn each_run(
        &mut self,
        is_such: impl Fn(&Mapping) -> bool,
        state: MapState,
        call: impl Fn(&B::Memory, Extent) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let extent = |mapping: &Mapping| Extent { start: mapping.offset, bytes: mapping.extent.bytes };
        let extents: Vec<_> = self.mappings.iter().filter(|mapping| is_such(mapping)).map(extent).collect();
        for run in runs(&extents) {
            call(&self.memory, run)?;
            let of_run = self.mappings.iter_mut().filter(|mapping| run.range().contains(&mapping.offset));
            of_run.for_each(|mapping| mapping.state = state);
        }
        Ok(())
    }
}

thread_local! {
    /// Number of arenas that this thread is detaching or attaching.
    static CHANGES: Cell<usize> = const { Cell::new(0) };
}

/// Whether this thread is detaching or attaching an arena: it may be in a callback of that.
pub(crate) fn is_changing_one() -> bool {
    CHANGES.get() > 0
}

/// The lock of changes of an arena that is detached or attached.
type Right<'a> = (LongGuard<'a, ()>, Refusal);

/// While it exists, requests of this thread are refused instead of waiting for such a change.
#[derive(Debug)]
pub(crate) struct Refusal(());

impl Refusal {
    pub(crate) fn new() -> Self {
        CHANGES.set(CHANGES.get() + 1);
        Self(())
    }
}

impl Drop for Refusal {
    fn drop(&mut self) {
        CHANGES.set(CHANGES.get() - 1);
    }
}
