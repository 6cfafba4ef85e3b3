//! The caps of one pool, or of several together. Numbers only.

use crate::environment::UNLIMITED;
use crate::heap::magazine::class_table::LARGEST_CLASS;
use crate::overlap::Overlap;

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
    pub(crate) overlap: Overlap,
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
            overlap: Overlap::Unlimited,
        }
    }
}

impl Caps {
    /// Takes over the caps that hold for several pools together: the cap on idle bytes, the limit and the budget.
    pub(crate) fn set_common(&mut self, other: &Self) {
        (self.max_cached_bytes, self.limit, self.budget) =
            (other.max_cached_bytes, other.limit, other.budget);
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

/// A pool's part of [shared caps](crate::heap::shared_caps).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Shared {
    /// Idle bytes, and those of magazines' slots.
    pub(crate) idle: u64,
    /// Bytes of magazines' slots.
    pub(crate) leased: u64,
    /// Bytes charged, and the unused shares of children.
    pub(crate) charged: u64,
    /// The idle bytes in depots that are part of `charged`.
    pub(crate) idle_charged: u64,
    /// The part of `charged` in transit that will return to the device.
    pub(crate) freeing: u64,
    /// Shares of children.
    pub(crate) shares: u64,
    /// The part of `shares` that is not charged yet.
    pub(crate) unused_shares: u64,
}

impl Shared {
    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    fn each(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            idle: with(self.idle, other.idle),
            leased: with(self.leased, other.leased),
            charged: with(self.charged, other.charged),
            idle_charged: with(self.idle_charged, other.idle_charged),
            freeing: with(self.freeing, other.freeing),
            shares: with(self.shares, other.shares),
            unused_shares: with(self.unused_shares, other.unused_shares),
        }
    }
}
