//! The caps of one pool, or of several together. Numbers only.

use crate::environment::UNLIMITED;
use crate::heap::magazine::class_table::LARGEST_CLASS;
use vrampool_backend::Amount;

/// Limits on the bytes that a pool may keep and take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Caps {
    pub(crate) max_cached_bytes: u64,
    pub(crate) max_buffers_per_bucket: u64,
    /// The largest class that is kept idle.
    pub(crate) cached_class: u64,
    /// Hard: `charged` never exceeds it.
    pub(crate) limit: u64,
    /// Soft: a miss releases idle memory to stay within it, and exceeds it when that is not enough.
    pub(crate) budget: u64,
    /// Bytes that each thread may keep in magazines; 0 = none.
    pub(crate) magazine_bytes: u64,
    /// The largest class that magazines take.
    pub(crate) magazine_class: u64,
    /// Bounds memory that is allocated so that streams do not wait for each other.
    pub(crate) overlap: Amount,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            max_cached_bytes: 4 << 30,
            max_buffers_per_bucket: 16,
            cached_class: UNLIMITED,
            limit: UNLIMITED,
            budget: UNLIMITED,
            magazine_bytes: 8 << 20,
            magazine_class: 1 << 20,
            overlap: Amount::Unlimited,
        }
    }
}

impl Caps {
    /// Takes over the caps that hold for all pools of a tree: the cap on idle bytes and the budget.
    pub(crate) fn set_common(&mut self, other: &Self) {
        (self.max_cached_bytes, self.budget) = (other.max_cached_bytes, other.budget);
    }

    pub(crate) fn has_magazines(&self) -> bool {
        self.magazine_bytes > 0 && self.magazine_class > 0
    }

    /// Returns the largest class of a device that allocates at most `max_allocation` bytes in one piece.
    pub(crate) fn largest_class(&self, max_allocation: u64) -> u64 {
        // A class of magazines is never clamped: they have no bin for it.
        if self.has_magazines() && self.magazines_take(self.limit) {
            max_allocation
        } else {
            max_allocation.min(self.limit)
        }
    }

    /// Whether blocks of `class` are ever kept idle.
    #[inline]
    pub(crate) fn cache(&self, class: u64) -> bool {
        class <= self.cached_class
    }

    /// Whether magazines take blocks of `class`.
    #[inline]
    pub(crate) fn magazines_take(&self, class: u64) -> bool {
        class <= self.magazine_class
            && self.cache(class)
            && class <= self.magazine_bytes
            && class <= LARGEST_CLASS
    }
}
