//! Memory in which pieces of an arena's physical memory are mapped.

use crate::heap::arena::mapping::pages::Extent;
use std::sync::Arc;
use vrampool_backend::Backend;

/// The arena's range or a stitched range.
#[derive(Debug)]
pub(super) struct View<B: Backend> {
    pub(super) memory: Arc<B::Memory>,
    pub(super) is_range: bool,
    /// The age of a stitched range whose pieces are all present.
    pub(super) age: Option<u64>,
    /// By offset.
    pub(super) mappings: Vec<Mapping>,
}

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

impl<B: Backend> View<B> {
    pub(super) fn bytes(&self) -> u64 {
        self.mappings.iter().map(|mapping| mapping.extent.bytes).sum()
    }

    /// Whether it is the range, or a buffer has it.
    pub(super) fn is_used(&self) -> bool {
        self.is_range || Arc::strong_count(&self.memory) > 1
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
