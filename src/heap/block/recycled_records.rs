//! Recycles records of blocks whose memory went back to the source.
//!
//! An arena miss, and the return of a block to the arena, need only bookkeeping while no stream has to wait. The depot
//! then performs the operation, under its lock, with a recycled record. No bytes are reserved meanwhile: the accounts
//! change after the arena has succeeded. Otherwise, and the first time, the general path is taken, which leaves a
//! record as well.
//!
//! A pool without an arena recycles records whose memory the driver has back, for its next misses.

use crate::heap::{BackendState, Block, Depot};
use crate::source::Key;
use std::mem;
use std::time::Duration;
use vrampool_backend::{Backend, MemoryKind, StreamId};

/// The largest number of kept records.
const MOST: usize = 1024;

impl Depot {
    /// Whether the next recycled record belonged to a block of `stream`.
    #[inline]
    pub(crate) fn next_record_is_of(&self, stream: StreamId) -> bool {
        self.records.last().is_some_and(|record| record.last_use.writer() == stream)
    }

    /// Serves a miss of `key` from the arena of the recycled records, if no memory has to be released for it. Without
    /// `stream` it is for that of the [next record](Self::next_record_is_of). Streams in `dropped` are to be dropped
    /// without any lock.
    #[inline(always)]
    pub(crate) fn serve_from_arena<B: Backend>(
        &mut self,
        key: Key,
        requested: u64,
        stream: Option<&B::Stream>,
        dropped: &mut [Option<B::Stream>; 2],
    ) -> Option<Box<Block>> {
        if self.is_short_of(key.class) || matches!(self.backend_state, BackendState::Order { .. }) {
            return None;
        }
        let mut block = self.records.pop()?;
        let refilled = match block.key.kind == key.kind {
            true => block.refill::<B>(&mut self.backend_state, (key.class, requested), stream),
            false => None,
        };
        let Some((end, replaced)) = refilled else {
            self.records.push(block);
            return None;
        };
        // There is nothing in it.
        mem::forget(mem::replace(dropped, replaced));
        self.accounts.taken(key.class, requested);
        self.note_taken(key, end);
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
    pub(crate) fn recycle_live(&mut self, mut block: Box<Block>) -> Option<Box<Block>> {
        self.end_loan(&mut block);
        let (class, requested) = (block.key.class, block.requested);
        let refused = self.recycle_record(block);
        if refused.is_none() {
            self.accounts.returned(class, requested);
            self.counters.live_buffers -= 1;
            self.accounts.dropped(class);
            self.accounts.freed(class);
        }
        refused
    }

    #[inline]
    fn recycle_record(&mut self, mut block: Box<Block>) -> Option<Box<Block>> {
        if !self.has_room_for_records() || !block.part.empty(&mut self.backend_state) {
            return Some(block);
        }
        self.counters.source.frees += 1;
        self.records.push(block);
        None
    }

    /// Keeps a record whose memory was released. Returns it if no later miss takes it, or if there are too many.
    #[inline]
    pub(crate) fn keep_record(&mut self, record: Box<Block>) -> Option<Box<Block>> {
        let is_of_arena = matches!(self.backend_state, BackendState::Arena(_));
        if !self.has_room_for_records() || is_of_arena && !record.part.is_emptied() {
            return Some(record);
        }
        self.records.push(record);
        None
    }

    /// Takes a record for new memory of a kind. Those of an arena are for its kind.
    #[inline]
    pub(crate) fn take_record(&mut self, kind: MemoryKind) -> Option<Box<Block>> {
        let is_of_arena = matches!(self.backend_state, BackendState::Arena(_));
        self.records.pop_if(|record| !is_of_arena || record.key.kind == kind)
    }

    /// Takes all records, which have handles of streams. To be dropped without the lock.
    #[must_use]
    pub(crate) fn take_records(&mut self) -> Vec<Box<Block>> {
        mem::take(&mut self.records)
    }

    fn has_room_for_records(&self) -> bool {
        self.records.len() < MOST && !self.keeps_nothing()
    }

    /// Counts the reserved bytes of `key`, which the source delivered; `time` is set if it called the driver. `end` is
    /// the end of the highest block in an arena of fixed size.
    pub(crate) fn commit_reservation(&mut self, key: Key, requested: u64, end: u64, time: Option<Duration>) {
        self.accounts.allocated(key.class, requested);
        if let Some(time) = time {
            self.counters.served.by_driver += 1;
            self.counters.driver.add(time);
        }
        self.note_taken(key, end);
    }

    #[inline]
    fn note_taken(&mut self, key: Key, end: u64) {
        self.accounts.peak_end = self.accounts.peak_end.max(end);
        self.counters.source.allocations += 1;
        self.counters.live_buffers += 1;
        self.note_request(key).misses += 1;
    }
}
