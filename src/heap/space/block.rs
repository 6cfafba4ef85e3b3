//! Block names and the listing of an arena's blocks.

use super::zone::Zone;

/// The name of a block of an [`Arena`](super::Arena). The block's offset can change, its name does not.
///
/// Names are never reused, whatever is freed, allocated or reset, so a stale name is always detected. A name
/// is a number, not a guard: dropping it frees nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    /// Counts an arena's allocations.
    serial: u64,
    /// The index, and the arena above it. Not three fields: those would be stored one by one and read as one,
    /// and a processor waits until such stores have reached the cache.
    place: u64,
}

impl BlockId {
    #[inline]
    pub(super) fn new(serial: u64, index: u32, arena: u32) -> Self {
        Self { serial, place: u64::from(index) | u64::from(arena) << 32 }
    }

    #[inline]
    pub(super) fn serial(self) -> u64 {
        self.serial
    }

    /// The index of the block's record, unique among the arena's live blocks.
    #[inline]
    pub(crate) fn index(self) -> u32 {
        self.place as u32
    }

    #[inline]
    pub(super) fn arena(self) -> u32 {
        (self.place >> 32) as u32
    }
}

/// A piece of an arena, as [`Arena::blocks`](super::Arena::blocks) lists them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Offset from the arena's start, bytes.
    pub offset: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// The zone.
    pub zone: Zone,
    /// The state.
    pub state: SpanState,
}

/// The state of a piece of an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanState {
    /// A free block. Its neighbours are not free.
    Free,
    /// A live block.
    Live(BlockId),
    /// A live block whose move has begun; at its old offset until the move is committed.
    Moving(BlockId),
    /// Neither live nor free: the destination of a move in progress, or an unmapped part of a growing arena's range.
    Held,
}
