//! The free of a block: its engine blocks, the users of its bytes, and, once several streams use the arena, their
//! [markers](crate::streams::markers).

use super::detach::{OnFree, Phase};
use crate::heap::arena::{LiveBlock, State};
use crate::heap::space::{BlockId, Extent, Zone};
use crate::streams::{Freed, FreedIn};
use std::ops::Range;
use vrampool_backend::{Backend, Stream};

/// The smallest block of a range of fixed size whose free may get a marker when only one stream used it, bytes.
const MARKED_FROM: u64 = 1 << 20;

/// The removed slot of a block, to be dropped without the lock, and its free if that records markers.
type AfterFree<S> = (LiveBlock<S>, Option<Freed<S>>);

impl<B: Backend> State<B> {
    /// Frees a block that is not moving. Returns `None` for a stale block.
    #[inline(always)]
    pub(super) fn free(&mut self, block: BlockId) -> Option<AfterFree<B::Stream>> {
        let slot = self.slots.remove(block)?;
        let (may_mark, bytes) = (self.may_mark(block), self.bytes_of(block, &slot));
        let is_marked = slot.uses.is_shared() || may_mark && self.is_marker_due(bytes, slot.uses.only_user());
        for block in slot.blocks(block) {
            let range = self.engine.extent(block).range();
            if self.engine.free(block).is_ok()
                && slot.uses.only_user().is_none_or(|stream| !self.uses.is_of(&range, stream))
            {
                self.uses.put(range, &slot.uses);
            }
        }
        let to_record = is_marked.then(|| self.end_tick(&slot, bytes));
        if to_record.is_none() && may_mark {
            self.uses.freed_unmarked(&slot.uses.writer, bytes);
        }
        Some((slot, to_record))
    }

    /// Frees a block whose slot is removed.
    #[inline]
    pub(super) fn free_freed(&mut self, block: BlockId) {
        // The block is live, and does not move.
        let _ = self.engine.free(block);
    }

    /// Whether a free of the block gets a marker, or its bytes are counted until the stream gets one, or the stream is
    /// asked later.
    #[inline]
    pub(super) fn may_mark(&self, block: BlockId) -> bool {
        self.are_several() && self.is_marked(block)
    }

    #[cold]
    fn is_marked(&self, block: BlockId) -> bool {
        let Extent { start, bytes } = self.engine.extent(block);
        match &self.backing {
            Some(_) => self.engine.zone_at(start) == Zone::Dynamic,
            None => bytes >= MARKED_FROM,
        }
    }

    /// As [`Ticks::is_marker_due`](crate::streams::Ticks::is_marker_due).
    #[cold]
    pub(super) fn is_marker_due(&self, bytes: u64, user: Option<&B::Stream>) -> bool {
        let needed = self.peaks.needed.max(self.engine.peak_used());
        self.uses.ticks.is_marker_due(user.map(Stream::id), FreedIn::Arena, bytes, needed)
    }

    /// Ends the tick of a free of `bytes`.
    fn end_tick(&mut self, slot: &LiveBlock<B::Stream>, bytes: u64) -> Freed<B::Stream> {
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
    pub(super) fn bytes_of(&self, block: BlockId, slot: &LiveBlock<B::Stream>) -> u64 {
        slot.blocks(block).map(|block| self.engine.extent(block).bytes).sum()
    }

    /// Returns the call that reports the free of a block to the owner of a detached arena, to be made without the
    /// lock.
    #[inline]
    pub(super) fn freed_detached(&self, block: BlockId) -> Option<(OnFree, Vec<Range<u64>>)> {
        match &self.phase {
            Phase::Detached(detached) => {
                let blocks = self.slots.get(block)?.blocks(block);
                let freed = blocks.map(|block| self.engine.extent(block).range()).collect();
                Some((detached.on_free.clone(), freed))
            }
            _ => None,
        }
    }
}
