//! The children of a pool, for its metrics.

use crate::heap::child_blocks::ChildFigures;
use crate::heap::core::ChildBlocks;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Weak;
use vrampool_backend::fork;
use vrampool_backend::fork::ForkArc;

/// The children of a pool, with their tags: those that have a handle or a live buffer.
#[derive(Debug, Default)]
pub(crate) struct Children(Mutex<Vec<(Box<str>, Weak<ChildBlocks>)>>);

impl Children {
    pub(super) fn add(&self, tag: &str, child: &ForkArc<ChildBlocks>) {
        if fork::is_child() {
            return;
        }
        let mut children = self.0.lock();
        if children.len() == children.capacity() {
            children.retain(|(_, child)| child.strong_count() > 0);
        }
        children.push((tag.into(), ForkArc::downgrade(child)));
    }

    /// Returns the memory of each tag.
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "for publishers"))]
    pub(crate) fn figures(&self) -> BTreeMap<Box<str>, ChildFigures> {
        let mut figures = BTreeMap::<_, ChildFigures>::new();
        if fork::is_child() {
            return figures;
        }
        for (tag, child) in &*self.0.lock() {
            if let Some(child) = child.upgrade().map(ForkArc::from) {
                let more = child.figures();
                figures.entry(tag.clone()).and_modify(|sum| sum.add(&more)).or_insert(more);
            }
        }
        figures
    }
}
