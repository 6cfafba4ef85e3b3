//! Recycles records of blocks whose memory went back to an arena.
//!
//! An arena miss, and the return of a block to the arena, need only bookkeeping while the arena's lock is
//! free and no stream has to wait. The depot then performs the operation under its own lock with a recycled
//! record. No bytes are reserved meanwhile: the accounts change after the arena has succeeded. Otherwise, and
//! the first time, the general path is taken.

use crate::cache::block::{Block, Errand};
use crate::cache::depot::Depot;
use crate::cache::served_by::ServedBy;
use crate::source::Key;
use vrampool_backend::{Backend, StreamId};

/// The largest number of kept records.
const MOST: usize = 1024;

/// How a request was served at the depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// By an idle block.
    Idle,
    /// By a block of the arena, ready for use.
    Fresh,
}

impl Depot {
    /// Whether the next recycled record belonged to a block of `stream`.
    #[inline]
    pub(crate) fn next_record_is_of(&self, stream: StreamId) -> bool {
        self.records.last().is_some_and(|record| record.stream == stream)
    }

    /// Serves a miss of `key`, uncounted, from the arena of the recycled records, if no memory has to be
    /// released for it. Streams in `gone` are to be dropped without any lock.
    #[inline(always)]
    pub(crate) fn serve<B: Backend>(
        &mut self,
        key: Key,
        requested: u64,
        stream: &B::Stream,
        gone: &mut [Option<B::Stream>; 2],
    ) -> Option<Box<Block>> {
        if self.is_short_of(key.class) {
            return None;
        }
        let mut block = self.records.pop()?;
        let refilled =
            if block.key.kind == key.kind { block.refill::<B>(key.class, requested, stream) } else { None };
        let Some((end, replaced)) = refilled else {
            self.records.push(block);
            return None;
        };
        block.generation = self.generation;
        *gone = replaced;
        self.accounts.taken(key.class, requested);
        self.note_taken(end);
        Some(block)
    }

    /// Returns memory of a block to the arena, or the block if that needs more than bookkeeping.
    #[inline]
    pub(crate) fn recycle(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let class = block.key.class;
        let refused = self.recycle_record(block);
        if refused.is_none() {
            self.accounts.freed(class);
        }
        refused
    }

    /// As [`recycle`](Self::recycle), for a returned buffer's block of a class that is never kept. A block
    /// that is returned is unchanged.
    #[inline]
    pub(crate) fn recycle_lent(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let (class, requested, generation) = (block.key.class, block.requested, block.generation);
        let refused = self.recycle_record(block);
        if refused.is_none() {
            self.note_back(class, requested, generation);
        }
        refused
    }

    /// As [`recycle_lent`](Self::recycle_lent), for a block of several streams. The work is done unlocked.
    ///
    /// # Errors
    /// The block, if it cannot be recycled.
    #[cold]
    pub(crate) fn recycle_shared(&mut self, mut block: Box<Block>) -> Result<Errand, Box<Block>> {
        if !self.has_room_for_records() {
            return Err(block);
        }
        let Some(errand) = block.empty_shared() else { return Err(block) };
        self.note_back(block.key.class, block.requested, block.generation);
        self.keep_record(block);
        Ok(errand)
    }

    #[inline]
    fn recycle_record(&mut self, mut block: Box<Block>) -> Option<Box<Block>> {
        if !self.has_room_for_records() || !block.empty() {
            return Some(block);
        }
        self.keep_record(block);
        None
    }

    #[inline]
    fn keep_record(&mut self, emptied: Box<Block>) {
        self.counters.source_frees += 1;
        self.records.push(emptied);
    }

    fn has_room_for_records(&self) -> bool {
        self.records.len() < MOST && !self.is_closed()
    }

    /// Counts a buffer's memory as returned to the arena.
    #[inline]
    fn note_back(&mut self, class: u64, requested: u64, generation: u64) {
        self.note_in(generation);
        self.accounts.returned(class, requested);
        self.counters.live_buffers -= 1;
        self.accounts.dropped(class);
        self.accounts.freed(class);
    }

    /// Counts the reserved `class` bytes, which the source delivered when asked in `generation`. `end` is the
    /// end of the highest block in an arena of fixed size.
    pub(crate) fn commit_reservation(
        &mut self,
        class: u64,
        requested: u64,
        end: u64,
        generation: u64,
        server: ServedBy,
    ) {
        self.note_out(generation);
        self.accounts.allocated(class, requested);
        self.counters.served_by_driver += u64::from(server == ServedBy::Driver);
        self.note_taken(end);
    }

    #[inline]
    fn note_taken(&mut self, end: u64) {
        self.accounts.peak_end = self.accounts.peak_end.max(end);
        self.counters.source_allocations += 1;
        self.counters.live_buffers += 1;
    }
}
