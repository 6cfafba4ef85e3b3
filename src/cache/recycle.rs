//! Recycled records of blocks whose memory went back to an arena: a miss that needs only bookkeeping takes
//! one, and a block that is not kept becomes one.
//!
//! An arena miss, and the return of a block to the arena, need only bookkeeping while the arena's lock is
//! free and no stream has to wait. The depot then performs the operation under its own lock with a recycled
//! record. No bytes are reserved meanwhile: the accounts change after the arena has succeeded. Otherwise,
//! and the first time, the general path is taken.

use crate::cache::block::{Block, Errand};
use crate::cache::depot::Depot;
use crate::cache::served_by::ServedBy;
use crate::source::Key;
use vrampool_backend::{Backend, StreamId};

/// How many are kept.
const MOST: usize = 1024;

/// What a request found at the depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// An idle block.
    Idle,
    /// A block of the arena, ready.
    Fresh,
}

impl Depot {
    /// Whether the next block that is made of a recycled record is of one that was `stream`'s.
    #[inline]
    pub(crate) fn next_record_is_of(&self, stream: StreamId) -> bool {
        self.records.last().is_some_and(|record| record.stream == stream)
    }

    /// Serves a miss of `key`, uncounted, from the arena that recycled records are of, if nothing has to be
    /// given back for it. Streams that are `gone` for that are to be dropped without any lock.
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

    /// Gives the memory of a block that is not kept back to the arena, if that can be done here. Answers the
    /// block if not.
    #[inline]
    pub(crate) fn recycle(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let class = block.key.class;
        let refused = self.recycle_record(block);
        if refused.is_none() {
            self.accounts.freed(class);
        }
        refused
    }

    /// As [`recycle`](Self::recycle) of a buffer's that came back and is of a class that is never kept. Of
    /// one that it answers nothing changed.
    #[inline]
    pub(crate) fn recycle_lent(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let (class, requested, generation) = (block.key.class, block.requested, block.generation);
        let refused = self.recycle_record(block);
        if refused.is_none() {
            self.note_back(class, requested, generation);
        }
        refused
    }

    /// As [`recycle_lent`](Self::recycle_lent) of one that several streams used. Answers what is to be done
    /// for that without the lock.
    ///
    /// # Errors
    /// The block, if that cannot be.
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

    /// A buffer's memory is back in the arena.
    #[inline]
    fn note_back(&mut self, class: u64, requested: u64, generation: u64) {
        self.note_in(generation);
        self.accounts.returned(class, requested);
        self.counters.live_buffers -= 1;
        self.accounts.dropped(class);
        self.accounts.freed(class);
    }

    /// The source delivered the reserved `class` bytes. `end` is the end of the highest block if it is an
    /// arena of fixed size. It was asked in that generation.
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
