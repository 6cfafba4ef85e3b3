//! Moves that close holes of the dynamic zone. The arena plans, the owner of the memory copies.
//!
//! A move slides a block over the hole in front of it. Beginning it withholds the hole, so that the
//! destination is not allocated. Committing it moves the block and withholds the bytes that it left, because
//! a copy may still read them. [`Arena::release_vacated`] frees those. Each block always has one valid
//! offset.
//!
//! ```text
//!           ┌────────┬───────┬─────────┬──────┐
//!           │ live A │ free  │ live B  │ free │
//! begin     │ live A │ held  │ moving B│ free │   offset(B) is the old one
//! commit    │ live A │ live B  │ held  │ free │   offset(B) is the new one
//! release   │ live A │ live B  │ free         │
//! ```

use super::block::BlockId;
use super::error::ArenaError;
use super::operations::Arena;
use super::record::{BlockState, Tag};
use super::table::{Table, end_of};
use super::zone::Zone;
use std::iter;

/// A block's move from one offset to a lower one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Move {
    /// The block.
    pub block: BlockId,
    /// Its previous offset, bytes.
    pub from: u64,
    /// Its new, lower offset, bytes.
    pub to: u64,
    /// Its length, bytes.
    pub bytes: u64,
}

impl Move {
    /// Whether source and destination overlap, so that one plain copy would corrupt the data.
    ///
    /// Copies of at most [`distance`](Self::distance) bytes each, in ascending order, do not overlap
    /// themselves; neither do copies through a staging buffer. If one of several copies fails, the earlier
    /// ones have overwritten the start of the source.
    #[must_use]
    pub fn overlaps(&self) -> bool {
        self.distance() < self.bytes
    }

    /// The distance of the move, bytes.
    #[must_use]
    pub fn distance(&self) -> u64 {
        self.from - self.to
    }
}

impl Arena {
    /// Returns the moves that close holes of the dynamic zone from the front, up to `budget_bytes` in all.
    ///
    /// They are in ascending order. The plan omits blocks already in place, and blocks larger than the budget.
    /// Repeated passes pack the zone except for those. It takes a step for each block up to the last that moves.
    ///
    /// Nothing is reserved; [`begin_move`](Self::begin_move) returns each block's destination at that time.
    pub fn plan(&self, budget_bytes: u64) -> impl Iterator<Item = Move> + '_ {
        let (mut next, mut to, mut left) =
            (self.table[end_of(Zone::Dynamic)].after, self.dynamic.start, budget_bytes);
        iter::from_fn(move || {
            while next != end_of(Zone::Dynamic) {
                let (index, record) = (next, &self.table[next]);
                let tag = record
                    .tag()
                    .filter(|tag| !matches!(tag.state, BlockState::Reserved | BlockState::Vacated));
                if let Some(tag) = tag {
                    let start = align(to, tag);
                    if tag.state == BlockState::Live && start < record.offset && record.bytes <= budget_bytes
                    {
                        // Ends the pass: a later block would move in this pass, and again in the next one.
                        left = left.checked_sub(record.bytes)?;
                        (next, to) = (record.after, start + record.bytes);
                        let (block, from, bytes) = (self.name(index), record.offset, record.bytes);
                        return Some(Move { block, from, to: start, bytes });
                    }
                    to = record.end();
                }
                next = record.after;
            }
            None
        })
    }

    /// Begins to move a block over the hole in front of it, and withholds that hole.
    ///
    /// Returns `None` without a hole that the block's alignment allows. The block stays live at its offset
    /// until [`commit_move`](Self::commit_move) or [`cancel_move`](Self::cancel_move). Moves may be
    /// concurrent.
    ///
    /// # Errors
    /// [`ArenaError::Stable`], [`ArenaError::Moving`], [`ArenaError::StaleBlock`],
    /// [`ArenaError::ForeignBlock`], [`ArenaError::TooManyBlocks`], [`ArenaError::HostMemory`].
    pub fn begin_move(&mut self, block: BlockId) -> Result<Option<Move>, ArenaError> {
        let tag = self.still_tag(block)?;
        let (from, bytes) = (self.table[block.index()].offset, self.table[block.index()].bytes);
        if self.zone_at(from) == Zone::Stable {
            return Err(ArenaError::Stable);
        }
        self.table.reserve(1)?;
        let (table, space) = (&mut self.table, &mut self.dynamic);
        let mut piece = block.index();
        while is_hole(table, table[piece].before) {
            piece = table[piece].before;
        }
        let to = align(table[piece].offset, tag);
        if to >= from {
            return Ok(None);
        }
        // The hole's pieces from `to` on are joined.
        while table[piece].end() <= to {
            piece = table[piece].after;
        }
        let (free, front, rest) = (table[piece].is_free(), to - table[piece].offset, table[piece].end() - to);
        let state = if free { BlockState::Reserved } else { BlockState::Vacated };
        if free {
            space.held += rest;
        }
        if front > 0 {
            if free {
                space.free.resize(table, piece, front);
            } else {
                table[piece].bytes = front;
            }
            let after = table[piece].after;
            piece = table.take(to, rest, after);
        } else if free {
            space.free.remove(table, piece);
        }
        table[piece].set_nameless(state);
        while table[piece].after != block.index() {
            let next = table[piece].after;
            let bytes = table[next].bytes;
            if table[next].is_free() {
                space.free.remove(table, next);
                space.held += bytes;
            } else {
                table[piece].set_nameless(BlockState::Vacated);
            }
            table.recycle(next);
            table[piece].bytes += bytes;
        }
        self.table[block.index()].set_tag(Tag { state: BlockState::Moving, ..tag });
        Ok(Some(Move { block, from, to, bytes }))
    }

    /// Moves a block to its destination. The bytes that it left stay withheld until
    /// [`release_vacated`](Self::release_vacated).
    ///
    /// It may be called as soon as the copy is queued, if later uses and the free of the block wait for it.
    ///
    /// # Errors
    /// [`ArenaError::NotMoving`], [`ArenaError::StaleBlock`], [`ArenaError::ForeignBlock`].
    pub fn commit_move(&mut self, block: BlockId) -> Result<(), ArenaError> {
        let tag = self.moving_tag(block)?;
        let (index, table) = (block.index(), &mut self.table);
        let hole = table[index].before;
        table[index].offset = table[hole].offset;
        table[hole].offset += table[index].bytes;
        table[hole].set_nameless(BlockState::Vacated);
        table.swap_with_next(hole);
        table[index].set_tag(Tag { state: BlockState::Live, ..tag });
        Ok(())
    }

    /// Leaves a block in place and frees the hole. No copy of this move may be running.
    ///
    /// Bytes of an earlier move that [`release_vacated`](Self::release_vacated) has not freed stay withheld.
    ///
    /// # Errors
    /// As [`commit_move`](Self::commit_move).
    pub fn cancel_move(&mut self, block: BlockId) -> Result<(), ArenaError> {
        let tag = self.moving_tag(block)?;
        let hole = self.table[block.index()].before;
        if self.table[hole].state() == Some(BlockState::Reserved) {
            self.dynamic.held -= self.table[hole].bytes;
            self.dynamic.merge(&mut self.table, hole);
        }
        self.table[block.index()].set_tag(Tag { state: BlockState::Live, ..tag });
        Ok(())
    }

    /// Frees the bytes left by committed moves.
    ///
    /// Call it when all copies of committed moves are complete. Takes a step for each block up to the last.
    pub fn release_vacated(&mut self) {
        let ring = end_of(Zone::Dynamic);
        let mut index = self.table[ring].after;
        let mut held = self.dynamic.held;
        while held > 0 && index != ring {
            let after = self.table[index].after;
            let state = self.table[index].state();
            let bytes = self.table[index].bytes;
            let mut next = after;
            if matches!(state, Some(BlockState::Reserved | BlockState::Vacated)) {
                held -= bytes;
            }
            if state == Some(BlockState::Vacated) {
                if self.table[after].state() == Some(BlockState::Moving) {
                    // The destination of a move that is still in progress.
                    self.table[index].set_nameless(BlockState::Reserved);
                } else {
                    if self.table[after].is_free() {
                        next = self.table[after].after;
                    }
                    self.dynamic.held -= bytes;
                    self.dynamic.merge(&mut self.table, index);
                }
            }
            index = next;
        }
    }

    /// Returns the tag of a block whose move has begun.
    fn moving_tag(&self, block: BlockId) -> Result<Tag, ArenaError> {
        let tag = self.live_tag(block)?;
        if tag.state == BlockState::Moving { Ok(tag) } else { Err(ArenaError::NotMoving) }
    }
}

/// Whether a block can slide over this record: free, or left by a finished move.
fn is_hole(table: &Table, index: u32) -> bool {
    table[index].is_free() || table[index].state() == Some(BlockState::Vacated)
}

/// The first offset from `offset` that the block's alignment allows; never past the block's own offset.
fn align(offset: u64, tag: Tag) -> u64 {
    let below = (1 << tag.alignment) - 1;
    offset.saturating_add(below) & !below
}
