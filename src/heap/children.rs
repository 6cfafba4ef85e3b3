//! The children of a pool: their figures, and idle memory that they release for others.

use crate::heap::child_blocks::{ChildFigures, Whose};
use crate::heap::core::{ChildBlocks, Children, PoolCore};
use crate::heap::queue_position::Position;
use std::collections::BTreeMap;
use std::sync::Weak;
use vrampool_backend::fork;
use vrampool_backend::fork::ForkArc;

impl Children {
    pub(crate) fn add(&self, tag: &str, child: &ForkArc<ChildBlocks>) {
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
        for (tag, child) in self.all() {
            let more = child.figures();
            figures.entry(tag).and_modify(|sum| sum.add(&more)).or_insert(more);
        }
        figures
    }

    /// All of them. They are used without the lock, because destructors of their memory may make children.
    fn all(&self) -> Vec<(Box<str>, ForkArc<ChildBlocks>)> {
        let children = self.0.lock();
        let there = |(tag, child): &(Box<str>, Weak<ChildBlocks>)| {
            Some((tag.clone(), ForkArc::from(child.upgrade()?)))
        };
        children.iter().filter_map(there).collect()
    }
}

impl PoolCore {
    /// Releases `bytes` of idle memory of the children of this pool and of those with the same caps, or none if they
    /// have less. A child keeps its share, except the one that requests.
    pub(super) fn relieve_children(&self, bytes: u64, position: &Position<'_>) {
        let mut children = self.children.all();
        self.others().iter().for_each(|other| children.extend(other.children.all()));
        let children: Vec<_> = children
            .into_iter()
            .filter_map(|(_, child)| Some((position.whose(&child.share)?, child)))
            .collect();
        let evictable = children.iter().map(|(whose, child)| child.evictable(*whose));
        let mut left = bytes;
        if evictable.fold(0, u64::saturating_add) >= bytes {
            for (whose, child) in &children {
                left = left.saturating_sub(child.evict(left, *whose));
            }
        }
    }

    /// Releases idle memory of the children, except what graphs may use.
    pub(crate) fn empty_children(&self) {
        self.children.all().iter().for_each(|(_, child)| _ = child.evict(u64::MAX, Whose::Nobodys));
    }
}
