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

/// Other properties of a block that is not free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    /// The alignment of its offset, as a power of two.
    pub(super) alignment: u8,
    pub(super) state: BlockState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockState {
    Live,
    /// A move has begun; the reserved hole precedes the block.
    Moving,
    /// The destination of a move; free before.
    Reserved,
    /// A copy may still read or write it; it may also be the destination of a move.
    Vacated,
    /// Withheld by name: an unmapped part, or a part of a growth.
    Held,
    /// An unused slot, or the end of a zone's ring.
    NoBlock,
}

impl Tag {
    #[inline]
    fn pack(self) -> u32 {
        u32::from(self.alignment) | (self.state as u32) << 24
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        let state = match word >> 24 {
            0 => BlockState::Live,
            1 => BlockState::Moving,
            2 => BlockState::Reserved,
            3 => BlockState::Vacated,
            4 => BlockState::Held,
            _ => BlockState::NoBlock,
        };
        Self { alignment: word as u8, state }
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
        twin: (BlockState::NoBlock as u32) << 24,
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

    /// Only for a block that is not free.
    #[inline]
    pub(super) fn tag(&self) -> Option<Tag> {
        (!self.is_free()).then(|| Tag::unpack(self.twin))
    }

    #[inline]
    pub(super) fn state(&self) -> Option<BlockState> {
        self.tag().map(|tag| tag.state)
    }

    /// Whether this is a live block of that name that is not moving.
    #[inline]
    pub(super) fn is_still(&self, serial: u64) -> bool {
        self.back == NONE && self.twin >> 24 == BlockState::Live as u32 && self.serial() == serial
    }

    #[inline]
    pub(super) fn set_links(&mut self, back: u32, children: [u32; 2], twin: u32) {
        (self.back, self.children, self.twin) = (back, children, twin);
    }

    #[inline]
    pub(super) fn go_live(&mut self, serial: u64, alignment: u8) {
        self.back = NONE;
        self.children = [serial as u32, (serial >> 32) as u32];
        self.twin = u32::from(alignment);
    }

    pub(super) fn set_tag(&mut self, tag: Tag) {
        self.twin = tag.pack();
    }

    /// Makes this an unused slot. The serial remains.
    #[inline]
    pub(super) fn vanish(&mut self) {
        (self.back, self.twin) = (NONE, (BlockState::NoBlock as u32) << 24);
    }

    /// Makes this a block without a name, in the given state.
    #[inline]
    pub(super) fn set_nameless(&mut self, state: BlockState) {
        self.back = NONE;
        self.children = [NONE; 2];
        self.twin = (state as u32) << 24;
    }
}
