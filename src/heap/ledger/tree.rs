//! The limits and shares of pools in a tree. Numbers only.
//!
//! ```text
//! charged of a node = its pool's bytes + what the nodes below it count
//! a node counts max(charged, share) in the node above it; charged ≤ limit, unless the limit was lowered
//! ```
//!
//! So the unused part of a share is charged to all nodes above, and a request within the share needs no room there.

/// Bytes of a node and of those below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Bytes that count against the limit.
    pub(crate) charged: u64,
    /// The part of them that is idle in depots, and may be released for other pools.
    pub(crate) idle: u64,
    /// Bytes of magazines' slots, which may be recalled.
    pub(crate) leased: u64,
    /// The part of `charged` in transit that will return to the device.
    pub(crate) freeing: u64,
    /// Number of shares.
    pub(crate) shares: u64,
}

/// The bounds of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) limit: u64,
    /// Bytes that are charged to the nodes above, whether the node has them or not.
    pub(crate) share: u64,
    /// Whether its idle memory is released for no other pool.
    pub(crate) is_private: bool,
}

/// A node, as a pool below it sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    pub(crate) bounds: Bounds,
    /// Its sum without the branch that contains the pool.
    pub(crate) beside: Sum,
}

/// The first request that waits until a deadline in another pool of the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) number: u64,
    /// The number of levels from the pool's node to the first node that the two pools have in common.
    pub(crate) height: usize,
    /// The bytes that the request needs there.
    pub(crate) bytes: u64,
}

impl Sum {
    #[inline(always)]
    pub(crate) fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// Returns the charged bytes that are not idle in depots.
    pub(crate) fn in_use(self) -> u64 {
        self.charged.saturating_sub(self.idle)
    }

    #[inline(always)]
    fn each(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            charged: with(self.charged, other.charged),
            idle: with(self.idle, other.idle),
            leased: with(self.leased, other.leased),
            freeing: with(self.freeing, other.freeing),
            shares: with(self.shares, other.shares),
        }
    }
}

impl Bounds {
    /// Returns the bytes that a node with these bounds counts in the node above it.
    #[inline(always)]
    pub(crate) fn counted(&self, sum: Sum) -> Sum {
        let excess = sum.charged.saturating_sub(self.share);
        let spare = self.spare(sum);
        let idle = sum.idle.min(spare);
        Sum {
            charged: sum.charged.max(self.share),
            idle,
            leased: sum.leased.min(spare - idle),
            freeing: sum.freeing.min(excess),
            shares: sum.shares + u64::from(self.share > 0),
        }
    }

    /// Returns the growth of the bytes in use that a node counts in the node above it, if the node gets `more` bytes,
    /// or as many as its limit allows.
    pub(crate) fn growth(&self, sum: Sum, more: u64) -> u64 {
        let in_use = sum.in_use();
        let more = more.min(self.limit.saturating_sub(in_use));
        in_use.saturating_add(more).max(self.share) - in_use.max(self.share)
    }

    /// Returns the most bytes that may be released for pools that are not below the node.
    pub(crate) fn spare(&self, sum: Sum) -> u64 {
        if self.is_private { 0 } else { sum.charged.saturating_sub(self.share) }
    }
}
