//! Bytes and their limits: of one pool in `accounts`, whose settings are `caps`; of a pool and its children here,
//! which decides by numbers (`admission`) and has the sums of all its pools under one lock (`pool_tree`).
//!
//! ```text
//! charged of a node = its pool's bytes + what the nodes below it count
//! a node counts max(charged, share) in the node above it; charged ≤ limit, unless the limit was lowered
//! ```
//!
//! So the unused part of a share is charged to all nodes above, and a request within the share needs no room there.
//!
//! These are bytes of classes, which decide under the pool's lock what to evict before a request asks the source. A
//! pool's [supply](crate::heap::store::Supply) also has a [`Ledger`](vrampool_backend::spi::Ledger), a tree of the same
//! limits and shares: it counts what the source takes from the device, such as whole pages of an arena.

mod accounts;
mod admission;
mod caps;
mod pool_tree;

pub(crate) use {accounts::positive, caps::Caps, pool_tree::Asked};

/// Bytes of a node and of those below it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Sum {
    /// Bytes that count against the limit.
    charged: u64,
    /// The part of them that is idle in depots, and may be released for other pools.
    idle: u64,
    /// Bytes of magazines' slots, which may be recalled.
    leased: u64,
    /// The part of `charged` in transit that will return to the device.
    freeing: u64,
    /// Number of shares.
    shares: u64,
}

/// The bounds of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    limit: u64,
    /// Bytes that are charged to the nodes above, whether the node has them or not.
    share: u64,
    /// Whether its idle memory is released for no other pool.
    is_private: bool,
}

/// A node, as a pool below it sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Level {
    bounds: Bounds,
    /// Its sum without the branch that contains the pool.
    beside: Sum,
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
    fn plus(self, other: Self) -> Self {
        self.each(other, u64::saturating_add)
    }

    fn minus(self, other: Self) -> Self {
        self.each(other, u64::saturating_sub)
    }

    /// Returns the charged bytes that are not idle in depots.
    fn in_use(self) -> u64 {
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
    fn counted(&self, sum: Sum) -> Sum {
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
    fn growth(&self, sum: Sum, more: u64) -> u64 {
        let in_use = sum.in_use();
        let more = more.min(self.limit.saturating_sub(in_use));
        in_use.saturating_add(more).max(self.share) - in_use.max(self.share)
    }

    /// Returns the most bytes that may be released for pools that are not below the node.
    fn spare(&self, sum: Sum) -> u64 {
        if self.is_private { 0 } else { sum.charged.saturating_sub(self.share) }
    }
}
