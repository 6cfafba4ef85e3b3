//! Ranges of an arena before its resizes.

use std::sync::{Arc, Weak};
use vrampool_backend::Memory;

/// Ranges that a resize replaced and that buffers keep alive, with their sizes.
#[derive(Debug)]
pub(super) struct FormerRanges<M>(Vec<(Weak<M>, u64)>);

impl<M> Default for FormerRanges<M> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<M: Memory> FormerRanges<M> {
    pub(super) fn push(&mut self, range: &Arc<M>) {
        self.0.retain(|(range, _)| range.strong_count() > 0);
        self.0.push((Arc::downgrade(range), range.len()));
    }

    pub(super) fn bytes(&self) -> u64 {
        self.0.iter().filter(|(range, _)| range.strong_count() > 0).map(|(_, bytes)| bytes).sum()
    }
}
