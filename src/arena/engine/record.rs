//! The record of one block, live or free.

/// No link.
pub(super) const NONE: u32 = 0;

/// What the back link of a free block holds that is in no bin. No block has this slot.
pub(super) const ASIDE: u32 = 2;

/// One block's record. Kept at 40 bytes: with the table's growth by a sixth that is under 48 for each block.
/// So the last four fields have two meanings, told by the first of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// The neighbour in front.
    pub(super) before: u32,
    /// The neighbour behind.
    pub(super) after: u32,
    /// Free: where the block hangs among those of its bin, as `trie.rs` says. Not free: 0.
    pub(super) back: u32,
    /// Free: the children. Not free: the halves of the serial.
    pub(super) children: [u32; 2],
    /// Free: the next block of the same size. Not free: the tag.
    pub(super) twin: u32,
}

const _: () = assert!(size_of::<Record>() == 40);

/// What else is known of a block that is not free.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tag {
    pub(super) pins: u16,
    /// What its offset is a multiple of, as a power of two.
    pub(super) alignment: u8,
    pub(super) state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Live,
    /// A move has begun; in front lies what it reserved.
    Moving,
    /// Freed while moving; goes when the move ends.
    Doomed,
    /// The destination of a move, and was free.
    Reserved,
    /// A copy may still read or write it; may be the destination of a move as well.
    Vacated,
    /// Withheld by name, for whoever has nothing behind it, or a free that waits for its streams.
    Held,
    /// Not in use, or the end of a zone's ring.
    NoBlock,
}

impl Tag {
    #[inline]
    fn pack(self) -> u32 {
        u32::from(self.pins) | u32::from(self.alignment) << 16 | (self.state as u32) << 24
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        let state = match word >> 24 {
            0 => State::Live,
            1 => State::Moving,
            2 => State::Doomed,
            3 => State::Reserved,
            4 => State::Vacated,
            5 => State::Held,
            _ => State::NoBlock,
        };
        Self { pins: word as u16, alignment: (word >> 16) as u8, state }
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
        twin: (State::NoBlock as u32) << 24,
    };

    #[inline]
    pub(super) fn end(&self) -> u64 {
        self.offset + self.bytes
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        self.back != NONE
    }

    /// Of what is not free.
    #[inline]
    pub(super) fn serial(&self) -> u64 {
        u64::from(self.children[0]) | u64::from(self.children[1]) << 32
    }

    /// Of what is not free.
    #[inline]
    pub(super) fn tag(&self) -> Option<Tag> {
        (!self.is_free()).then(|| Tag::unpack(self.twin))
    }

    /// The state of what is not free.
    #[inline]
    pub(super) fn state(&self) -> Option<State> {
        self.tag().map(|tag| tag.state)
    }

    /// Whether it is a live block of that name that is neither moving nor pinned.
    #[inline]
    pub(super) fn is_live_and_idle(&self, serial: u64) -> bool {
        self.back == NONE && self.twin & 0xff00_ffff == 0 && self.serial() == serial
    }

    /// Makes it a free block, in that place among the others.
    #[inline]
    pub(super) fn set_links(&mut self, back: u32, children: [u32; 2], twin: u32) {
        (self.back, self.children, self.twin) = (back, children, twin);
    }

    /// Makes it a live block.
    #[inline]
    pub(super) fn go_live(&mut self, serial: u64, alignment: u8) {
        self.back = NONE;
        self.children = [serial as u32, (serial >> 32) as u32];
        self.twin = u32::from(alignment) << 16;
    }

    /// Changes the tag of a live block.
    pub(super) fn set_tag(&mut self, tag: Tag) {
        self.twin = tag.pack();
    }

    /// Makes it no block. Its serial stays.
    #[inline]
    pub(super) fn vanish(&mut self) {
        (self.back, self.twin) = (NONE, (State::NoBlock as u32) << 24);
    }

    /// Makes it something without a name.
    #[inline]
    pub(super) fn set_nameless(&mut self, state: State) {
        self.back = NONE;
        self.children = [NONE; 2];
        self.twin = (state as u32) << 24;
    }
}
