//! Frees of blocks whose streams get [markers](crate::streams::markers), once several streams use the arena.

use crate::heap::arena::live_block::LiveBlock;
use crate::heap::arena::state::State;
use crate::heap::space::{BlockId, Zone};
use crate::streams::order::Freed;
use crate::streams::ticks::FreedIn;
use vrampool_backend::{Backend, Stream};

/// The smallest block of a range of fixed size whose free may get a marker when only one stream used it, bytes.
const MARKED_FROM: u64 = 1 << 20;

impl<B: Backend> State<B> {
    /// Whether the free of a live block that only `user` used gets a marker, because one is due.
    #[inline]
    pub(in crate::heap::arena) fn marks(&self, block: BlockId, user: &B::Stream) -> bool {
        self.may_mark(block) && self.is_marker_due(self.engine.extent(block).1, Some(user))
    }

    /// Whether a free of the block gets a marker, or its bytes are counted until the stream gets one, or the stream is
    /// asked later.
    #[inline]
    pub(in crate::heap::arena) fn may_mark(&self, block: BlockId) -> bool {
        self.uses.ticks.are_several() && self.are_concurrent && self.is_marked(block)
    }

    #[cold]
    fn is_marked(&self, block: BlockId) -> bool {
        match &self.backing {
            Some(_) => self.engine.zone_at(self.engine.extent(block).0) == Zone::Dynamic,
            None => self.engine.extent(block).1 >= MARKED_FROM,
        }
    }

    /// As [`Ticks::is_marker_due`](crate::streams::ticks::Ticks::is_marker_due).
    #[cold]
    pub(in crate::heap::arena) fn is_marker_due(&self, bytes: u64, user: Option<&B::Stream>) -> bool {
        let needed = self.peaks.needed.max(self.engine.peak_used());
        self.uses.ticks.is_marker_due(user.map(Stream::id), FreedIn::Arena, bytes, needed)
    }

    /// Ends the tick of a free of `bytes`.
    pub(in crate::heap::arena) fn end_tick(
        &mut self,
        slot: &LiveBlock<B::Stream>,
        bytes: u64,
    ) -> Freed<B::Stream> {
        let users = slot.uses.users();
        if users.len() > 1 {
            self.uses.ticks.shared();
        }
        // Bytes of several streams are counted with the next marker of each alone.
        let unmarked =
            slot.uses.only_user().map_or(0, |user| self.uses.ticks.take_unmarked(user.id(), FreedIn::Arena));
        let bytes = bytes + unmarked;
        let needed = self.engine.used() + self.uses.ticks.free_in_flight() + bytes;
        self.peaks.needed = self.peaks.needed.max(needed);
        self.uses.ticks.count_marker();
        Freed { users, tick: self.uses.ticks.begin(), bytes, freed_in: FreedIn::Arena }
    }

    /// Bytes of a block and of those stitched to it.
    pub(in crate::heap::arena) fn bytes_of(&self, block: BlockId, slot: &LiveBlock<B::Stream>) -> u64 {
        let more: u64 = slot.more().iter().map(|&block| self.engine.extent(block).1).sum();
        self.engine.extent(block).1 + more
    }
}
