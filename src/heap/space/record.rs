//! The record of one block, live or free.

/// No block.
pub(super) const NONE: u32 = 0;

/// The back link of a free block that is in no bin. No block has this slot.
pub(super) const ASIDE: u32 = 2;

/// One block's record. Kept at 40 bytes: with the table's growth by a sixth that is under 48 for each block.
/// The last four fields therefore have two meanings, distinguished by `back`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The previous neighbour.
    pub(super) before: u32,
    /// The next neighbour.
    pub(super) after: u32,
    /// Free: the block's place among those of its bin (see `trie.rs`). Not free: 0.
    pub(super) back: u32,
    /// Free: the children. Not free: the halves of the serial.
    pub(super) children: [u32; 2],
    /// Free: the next block of the same size. Not free: the tag.
    pub(super) twin: u32,
}

const _: () = assert!(size_of::<Record>() == 40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    Live,
    /// A move has begun; the reserved hole precedes the block.
    Moving,
    /// The destination of a move; free before.
    Reserved,
    /// Withheld by name: an unmapped part, or a part of a growth.
    Held,
    /// An unused slot, or the end of a zone's ring.
    NoBlock,
}

impl BlockState {
    #[inline]
    fn of(word: u32) -> Self {
        match word {
            0 => Self::Live,
            1 => Self::Moving,
            2 => Self::Reserved,
            3 => Self::Held,
            _ => Self::NoBlock,
        }
    }
}

impl Record {
    pub(super) const NOTHING: Self = Self {
        offset: 0,
        bytes: 0,
        before: NONE,
        after: NONE,
        back: NONE,
        children: [NONE; 2],
        twin: BlockState::NoBlock as u32,
    };

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.back != NONE
    }

    /// Only for a block that is not free.
    #[inline]
    pub(super) fn serial(&self) -> u64 {
        u64::from(self.children[0]) | u64::from(self.children[1]) << 32
    }

    #[inline]
    pub(super) fn state(&self) -> Option<BlockState> {
        (!self.is_free()).then(|| BlockState::of(self.twin))
    }

    /// Whether this is a live block of that name that is not moving.
    #[inline]
    pub(super) fn is_still(&self, serial: u64) -> bool {
        self.back == NONE && self.twin == BlockState::Live as u32 && self.serial() == serial
    }

    #[inline]
    pub(super) fn set_links(&mut self, back: u32, children: [u32; 2], twin: u32) {
        (self.back, self.children, self.twin) = (back, children, twin);
    }

    #[inline]
    pub(super) fn go_live(&mut self, serial: u64) {
        self.back = NONE;
        self.children = [serial as u32, (serial >> 32) as u32];
        self.twin = BlockState::Live as u32;
    }

    pub(super) fn set_state(&mut self, state: BlockState) {
        self.twin = state as u32;
    }

    /// Makes this an unused slot. The serial remains.
    #[inline]
    pub(super) fn vanish(&mut self) {
        (self.back, self.twin) = (NONE, BlockState::NoBlock as u32);
    }

    /// Makes this a block without a name, in the given state.
    #[inline]
    pub(super) fn set_nameless(&mut self, state: BlockState) {
        self.back = NONE;
        self.children = [NONE; 2];
        self.twin = state as u32;
    }
}
