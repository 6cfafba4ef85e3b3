//! What callers hold of an arena's blocks, and what they see of them.

use super::zone::Zone;

/// Names a block of an [`Arena`](super::Arena): its offset can change, its name does not.
///
/// A block's name is never given again, whatever is freed, allocated or reset, so an arena can tell a block
/// that is gone from the one in its place. It is a number, not a guard: dropping it frees nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId {
    /// Counts an arena's allocations.
    serial: u64,
    /// The index, and the arena above it. Two words and not three fields, because those would be stored one
    /// by one and read again as one, for which a processor waits until they have reached the cache.
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

    /// The slot of its record, which no other live block of the arena has.
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
    /// Where it starts, bytes from the arena's start.
    pub offset: u64,
    /// Its length, bytes.
    pub bytes: u64,
    /// Where it lies.
    pub zone: Zone,
    /// What it is.
    pub state: SpanState,
}

/// What a piece of an arena is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanState {
    /// A free block. Its neighbours are not free.
    Free,
    /// A live block.
    Live {
        /// Its name.
        block: BlockId,
        /// How often it is pinned.
        pins: u16,
    },
    /// A live block whose move has begun; at its old offset until the move is committed.
    Moving(BlockId),
    /// Neither live nor free: the destination of a move that has begun, what a move left and
    /// [`release_vacated`](super::Arena::release_vacated) has not given back, a block that was freed while it
    /// moved, or a part of a growing arena's range with nothing behind it.
    Held,
}
