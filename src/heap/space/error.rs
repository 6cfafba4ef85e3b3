//! Errors of an arena.

use super::zone::Zone;

/// An error of an arena. A failed call changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArenaError {
    /// An alignment that is not a power of two.
    #[error("an alignment of {alignment} bytes: use a power of two")]
    #[non_exhaustive]
    Alignment {
        /// The requested alignment, bytes.
        alignment: u64,
    },
    /// A stable zone that leaves no bytes for the dynamic zone.
    #[error(
        "a stable zone of {stable_bytes} bytes, rounded up to the alignment, does not leave any of the \
         {capacity_bytes} bytes for the dynamic zone; make it smaller or the capacity larger"
    )]
    #[non_exhaustive]
    StableTooLarge {
        /// The requested stable zone, bytes.
        stable_bytes: u64,
        /// The requested capacity, bytes.
        capacity_bytes: u64,
    },
    /// A request for the stable zone of an arena that has none.
    #[error("the arena has no stable zone; create it with one or ask for dynamic memory")]
    NoStableZone,
    /// A request for 0 bytes.
    #[error("0 bytes were requested; request at least 1")]
    ZeroBytes,
    /// A size that does not fit 64 bits once rounded up to the alignment.
    #[error("{bytes} bytes, rounded up to the alignment, do not fit 64 bits; ask for less")]
    #[non_exhaustive]
    Overflow {
        /// Requested bytes.
        bytes: u64,
    },
    /// No free block of the zone holds the request.
    #[error(
        "no hole for {bytes} bytes in the {zone} zone: \
         {available_bytes} bytes are free, {largest_bytes} in one piece; free some, compact, or \
         raise the limit or the capacity"
    )]
    #[non_exhaustive]
    NoSpace {
        /// Requested bytes, rounded up to the arena's alignment.
        bytes: u64,
        /// The zone.
        zone: Zone,
        /// Free bytes of the zone.
        available_bytes: u64,
        /// The largest free block of the zone, bytes.
        largest_bytes: u64,
    },
    /// A capacity that would cut off blocks that are in use.
    #[error(
        "a capacity of {capacity_bytes} bytes is too small, {needed_bytes} are taken; free, compact or release first, \
         or shrink less"
    )]
    #[non_exhaustive]
    CapacityInUse {
        /// The requested capacity, bytes.
        capacity_bytes: u64,
        /// The smallest capacity possible now, bytes.
        needed_bytes: u64,
    },
    /// A block that was already freed, or forgotten by a reset.
    #[error(
        "the arena has no such block any more: the arena was reset or resized, or the block was freed; \
         forget a block then, and allocate another one"
    )]
    StaleBlock,
    /// A block of another arena.
    #[error("the block belongs to another arena; give it to the one that it came from")]
    ForeignBlock,
    /// A region of the block exists.
    #[error("a region of the block exists; drop it first")]
    Pinned,
    /// The block is being moved.
    #[error("the block is being moved; commit or cancel the move first")]
    Moving,
    /// The end of a move that was not begun.
    #[error("the block is not being moved; begin the move first")]
    NotMoving,
    /// A move of a block in the stable zone.
    #[error("the block is in the stable zone, where nothing moves; leave it where it is")]
    Stable,
    /// A reset, or a resize of a fixed range, while a pool uses the arena.
    #[error("the arena serves a pool, whose blocks this would forget; drop the pool and its buffers first")]
    ServesPool,
}

impl ArenaError {
    /// Whether space is missing now, and a free, a compaction or growth may provide it.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::NoSpace { .. })
    }
}
