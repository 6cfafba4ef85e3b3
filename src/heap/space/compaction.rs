//! Moves that close holes of the dynamic zone. The arena plans, the owner of the memory copies.
//!
//! A move slides a block over the hole in front of it. Beginning it withholds the hole, so that the
//! destination is not allocated. Committing it moves the block and frees the bytes that it left: commit when the
//! copy is complete, or order later users of these bytes behind it. Each block always has one valid offset.
//!
//! ```text
//!           ┌────────┬───────┬─────────┬──────┐
//!           │ live A │ free  │ live B  │ free │
//! begin     │ live A │ held  │ moving B│ free │   offset(B) is the old one
//! commit    │ live A │ live B  │ free         │   offset(B) is the new one
//! ```

use super::block::BlockId;
use super::error::ArenaError;
use super::operations::Arena;
use super::table::end_of;
use super::zone::Zone;
use crate::heap::space::{BlockState, Extent};
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
                let state = record.state();
                if !matches!(state, None | Some(BlockState::Reserved)) {
                    if state == Some(BlockState::Live) && to < record.offset && record.bytes <= budget_bytes {
                        // Ends the pass: a later block would move in this pass, and again in the next one.
                        left = left.checked_sub(record.bytes)?;
                        let (block, from, bytes) = (self.name(index), record.offset, record.bytes);
                        let planned = Move { block, from, to, bytes };
                        (next, to) = (record.after, to + bytes);
                        return Some(planned);
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
    /// Returns `None` without a hole. The block stays live at its offset
    /// until [`commit_move`](Self::commit_move) or [`cancel_move`](Self::cancel_move). Moves may be
    /// concurrent.
    ///
    /// # Errors
    /// [`ArenaError::Stable`], [`ArenaError::Moving`], [`ArenaError::StaleBlock`], [`ArenaError::ForeignBlock`].
    pub fn begin_move(&mut self, block: BlockId) -> Result<Option<Move>, ArenaError> {
        self.check_still(block)?;
        let Extent { start: from, bytes } = self.extent(block);
        if self.zone_at(from) == Zone::Stable {
            return Err(ArenaError::Stable);
        }
        let (table, space) = (&mut self.table, &mut self.dynamic);
        let hole = table[block.index()].before;
        if !table[hole].is_free() {
            return Ok(None);
        }
        space.free.remove(table, hole);
        space.held += table[hole].bytes;
        table[hole].set_nameless(BlockState::Reserved);
        table[block.index()].set_state(BlockState::Moving);
        Ok(Some(Move { block, from, to: self.table[hole].offset, bytes }))
    }

    /// Moves a block to its destination, and frees the bytes that it left.
    ///
    /// It may be called as soon as the copy is queued, if later uses of the block and of these bytes wait for it.
    ///
    /// # Errors
    /// [`ArenaError::NotMoving`], [`ArenaError::StaleBlock`], [`ArenaError::ForeignBlock`].
    pub fn commit_move(&mut self, block: BlockId) -> Result<(), ArenaError> {
        self.check_moving(block)?;
        let (index, table) = (block.index(), &mut self.table);
        let hole = table[index].before;
        table[index].offset = table[hole].offset;
        table[hole].offset += table[index].bytes;
        table.swap_with_next(hole);
        self.end_move(index, hole);
        Ok(())
    }

    /// Leaves a block in place and frees the hole. No copy of this move may be running.
    ///
    /// # Errors
    /// As [`commit_move`](Self::commit_move).
    pub fn cancel_move(&mut self, block: BlockId) -> Result<(), ArenaError> {
        self.check_moving(block)?;
        let hole = self.table[block.index()].before;
        self.end_move(block.index(), hole);
        Ok(())
    }

    /// Makes a block live, and the hole before or after it free.
    fn end_move(&mut self, index: u32, hole: u32) {
        self.table[index].set_state(BlockState::Live);
        self.dynamic.held -= self.table[hole].bytes;
        self.dynamic.merge(&mut self.table, hole);
    }

    /// Checks that the move of a block has begun.
    fn check_moving(&self, block: BlockId) -> Result<(), ArenaError> {
        if self.is_moving(block)? { Ok(()) } else { Err(ArenaError::NotMoving) }
    }
}
