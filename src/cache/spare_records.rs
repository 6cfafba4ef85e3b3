//! Spare records of blocks whose memory went back to an arena: a miss that needs only bookkeeping takes one,
//! and a block that is not kept becomes one.
//!
//! An arena miss, and the return of a block to the arena, need only bookkeeping while the arena's lock is
//! free and no stream has to wait. The depot then performs the operation under its own lock with a spare
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
    /// Whether the next block that is made of a spare is of one that was `stream`'s.
    #[inline]
    pub(crate) fn spare_is_of(&self, stream: StreamId) -> bool {
        self.spares.last().is_some_and(|spare| spare.stream == stream)
    }

    /// Serves a miss of `key`, uncounted, from the arena that spares are of, if nothing has to be given back
    /// for it. Streams that are `gone` for that are to be dropped without any lock.
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
        let mut block = self.spares.pop()?;
        let refilled =
            if block.key.kind == key.kind { block.refill::<B>(key.class, requested, stream) } else { None };
        let Some((end, replaced)) = refilled else {
            self.spares.push(block);
            return None;
        };
        block.generation = self.generation;
        *gone = replaced;
        self.budget.taken(key.class, requested);
        self.note_taken(end);
        Some(block)
    }

    /// Gives the memory of a block that is not kept back to the arena, if that can be done here. Answers the
    /// block if not.
    #[inline]
    pub(crate) fn recycle(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let class = block.key.class;
        let unspared = self.spare(block);
        if unspared.is_none() {
            self.budget.freed(class);
        }
        unspared
    }

    /// As [`recycle`](Self::recycle) of a buffer's that came back and is of a class that is never kept. Of
    /// one that it answers nothing changed.
    #[inline]
    pub(crate) fn recycle_lent(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let (class, requested, generation) = (block.key.class, block.requested, block.generation);
        let unspared = self.spare(block);
        if unspared.is_none() {
            self.note_back(class, requested, generation);
        }
        unspared
    }

    /// As [`recycle_lent`](Self::recycle_lent) of one that several streams used. Answers what is to be done
    /// for that without the lock.
    ///
    /// # Errors
    /// The block, if that cannot be.
    #[cold]
    pub(crate) fn recycle_shared(&mut self, mut block: Box<Block>) -> Result<Errand, Box<Block>> {
        if !self.has_room_for_spares() {
            return Err(block);
        }
        let Some(errand) = block.empty_shared() else { return Err(block) };
        self.note_back(block.key.class, block.requested, block.generation);
        self.keep_spare(block);
        Ok(errand)
    }

    #[inline]
    fn spare(&mut self, mut block: Box<Block>) -> Option<Box<Block>> {
        if !self.has_room_for_spares() || !block.empty() {
            return Some(block);
        }
        self.keep_spare(block);
        None
    }

    #[inline]
    fn keep_spare(&mut self, emptied: Box<Block>) {
        self.counters.source_frees += 1;
        self.spares.push(emptied);
    }

    fn has_room_for_spares(&self) -> bool {
        self.spares.len() < MOST && !self.is_closed()
    }

    /// A buffer's memory is back in the arena.
    #[inline]
    fn note_back(&mut self, class: u64, requested: u64, generation: u64) {
        self.note_in(generation);
        self.budget.returned(class, requested);
        self.counters.live_buffers -= 1;
        self.budget.dropped(class);
        self.budget.freed(class);
    }

    /// The source kept its promise of `class` bytes. `end` is the end of the highest block if it is an arena
    /// of fixed size. It was asked in that generation.
    pub(crate) fn promise_kept(
        &mut self,
        class: u64,
        requested: u64,
        end: u64,
        generation: u64,
        server: ServedBy,
    ) {
        self.note_out(generation);
        self.budget.allocated(class, requested);
        self.counters.served_by_driver += u64::from(server == ServedBy::Driver);
        self.note_taken(end);
    }

    #[inline]
    fn note_taken(&mut self, end: u64) {
        self.budget.peak_end = self.budget.peak_end.max(end);
        self.counters.source_allocations += 1;
        self.counters.live_buffers += 1;
    }
}
