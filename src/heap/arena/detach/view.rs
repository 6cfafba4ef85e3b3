//! Memory in which pieces of an arena's physical memory are mapped.

use crate::heap::arena::mapping::pages::Extent;
use std::sync::{Arc, Weak};
use vrampool_backend::Backend;

/// The arena's range or a stitched range, with a strong handle during a change and a weak one otherwise.
#[derive(Debug)]
pub(super) struct View<M> {
    pub(super) memory: M,
    pub(super) is_range: bool,
    /// The age of a stitched range whose pieces are all present.
    pub(super) age: Option<u64>,
    /// By offset.
    pub(super) mappings: Vec<Mapping>,
}

/// A view that keeps its memory.
pub(super) type Kept<B> = View<Arc<<B as Backend>::Memory>>;

/// A piece in a view.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) offset: u64,
    pub(super) extent: Extent,
    pub(super) state: MapState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MapState {
    Out,
    Mapped,
    Accessible,
}

impl Mapping {
    pub(super) fn is_mapped(&self) -> bool {
        self.state != MapState::Out
    }
}

impl<M> View<M> {
    pub(super) fn bytes(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.extent.bytes).sum()
    }

    fn with<N>(self, memory: N) -> View<N> {
        View { memory, is_range: self.is_range, age: self.age, mappings: self.mappings }
    }

    /// Returns runs of adjacent mappings for which `is_such` holds: start, bytes, and indices.
    pub(super) fn runs(&self, is_such: impl Fn(&Mapping) -> bool) -> Vec<(u64, u64, std::ops::Range<usize>)> {
        let mut runs: Vec<(u64, u64, std::ops::Range<usize>)> = Vec::new();
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

impl<M> View<Weak<M>> {
    /// Returns the view with a strong handle, if its memory still exists.
    pub(super) fn strong(self) -> Option<View<Arc<M>>> {
        let memory = self.memory.upgrade()?;
        Some(self.with(memory))
    }
}

impl<M> View<Arc<M>> {
    /// Returns the view with a weak handle, and its strong handle, to be dropped without a lock.
    pub(super) fn weak(self) -> (View<Weak<M>>, Arc<M>) {
        let memory = Arc::clone(&self.memory);
        (self.with(Arc::downgrade(&memory)), memory)
    }
}
