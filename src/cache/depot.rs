//! The shared store of idle blocks, by kind and class, with its accounts and counters, under one lock.
//!
//! Nothing here calls the device or drops a block. Exchange with threads' magazines is in
//! `magazine_exchange`.

use crate::cache::accounts::Accounts;
use crate::cache::caps::Caps;
pub(crate) use crate::cache::core::Depot;
use crate::cache::core::{Block, Buckets};
use crate::cache::counts::Counters;
use crate::cache::magazine::rack::Rack;
use crate::cache::oom_rung::Rung;
use crate::cache::retry_queue::Turns;
use crate::cache::size_class::SizeClasses;
use crate::cache::waiters::Waiters;
use crate::source::Key;
use std::collections::VecDeque;
use std::mem;
use vrampool_backend::{MemoryKind, StreamId};

impl Depot {
    pub(crate) fn new(kind: MemoryKind, classes: SizeClasses, borrow_classes: u32, caps: Caps) -> Self {
        Self {
            kind,
            buckets: Buckets::new(classes.clone()),
            classes,
            borrow_classes,
            accounts: Accounts::new(caps),
            counters: Counters::default(),
            clock: 0,
            tallies: Vec::new(),
            trimmed: 0,
            without_slot: 0,
            records: Vec::new(),
            generation: 0,
            forgotten: 0,
            dead: Vec::new(),
            waiting: VecDeque::new(),
            waited: 0,
            turns: Turns::default(),
            waiters: Waiters::default(),
            is_shut: false,
            closed: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether returned blocks go to the source.
    #[inline]
    pub(super) fn keeps_nothing(&self) -> bool {
        self.closed || self.is_shut
    }

    /// Whether requests are served in order, or not at all: each has to ask for a [permit](Self::permit).
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.is_shut || !self.waiters.is_empty()
    }

    /// Returns the key of `class` in magazines.
    pub(crate) fn key_of(&self, class: u64) -> Key {
        Key { kind: self.kind, class }
    }

    /// Takes an idle block for `key`, preferably one of `stream`, from the buckets and this thread's `rack`.
    /// Counts the hit or miss; a hit that needs a wait is for [`count_hand_over`](Self::count_hand_over).
    pub(crate) fn take(
        &mut self,
        key: Key,
        requested: u64,
        stream: StreamId,
        rack: Option<&Rack>,
    ) -> Option<Box<Block>> {
        if let Some(rack) = rack {
            self.settle(rack);
        }
        self.clock += 1;
        let is_for_list = rack.is_some() && self.list_of(key).is_some();
        let bucket = self.buckets.of(&key);
        bucket.last_request = self.clock;
        if !is_for_list && let Some(block) = bucket.take(stream) {
            bucket.requests.hits += u64::from(block.is_ready_on(stream));
            return Some(self.lend(block, requested));
        }
        if self.accounts.now.cached == 0 && rack.is_none_or(|rack| rack.leased.get() == 0) {
            // No class has an idle block.
            bucket.requests.misses += 1;
            return None;
        }
        let mut taken = if is_for_list { self.find(key, stream, rack) } else { None };
        if taken.is_none() {
            // Borrow from one of the next larger classes.
            let mut lenders = self.classes.lenders(key.class).take(self.borrow_classes as usize);
            taken = lenders.find_map(|class| self.find(Key { class, ..key }, stream, rack));
        }
        let requests = self.buckets.requests(key);
        match &mut taken {
            Some(block) => {
                requests.hits += u64::from(block.is_ready_on(stream));
                block.requested = requested;
                self.accounts.lend(block.key.class, requested);
            }
            None => requests.misses += 1,
        }
        taken
    }

    /// Takes the newest idle block for `key` if it needs no wait for `stream`, and counts the hit. `None`
    /// does not mean a miss: call [`take`](Self::take).
    #[inline(always)]
    pub(crate) fn take_ready(&mut self, key: Key, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let bucket = self.buckets.find(&key)?;
        if !bucket.idle.back()?.is_ready_on(stream) {
            return None;
        }
        let block = bucket.idle.pop_back()?;
        self.clock += 1;
        bucket.last_request = self.clock;
        bucket.requests.hits += 1;
        Some(self.lend(block, requested))
    }

    /// Counts a request whose block was not ready: a hit with its waits, or a miss where it could not be made
    /// ready. Not before, because no count may fall.
    pub(crate) fn count_hand_over(&mut self, key: Key, waits: Option<&u64>) {
        let requests = self.buckets.requests(key);
        match waits {
            Some(waits) => {
                requests.hits += 1;
                self.counters.stream_waits += waits;
            }
            None => requests.misses += 1,
        }
    }

    /// Whether neither `key`, which may be kept, nor a class that it may borrow from has an idle block.
    #[inline]
    pub(crate) fn has_nothing_for(&mut self, key: Key) -> bool {
        self.accounts.now.cached == 0
            || (self.buckets.find(&key).is_none_or(|bucket| bucket.idle.is_empty())
                && self.classes.lenders(key.class).next().is_none())
    }

    #[inline]
    pub(crate) fn count_miss(&mut self, mut key: Key) {
        self.clock += 1;
        if !self.accounts.caps.cache(key.class) {
            // Such a class never has idle blocks, so it is counted in its reported class and needs no bucket.
            key.class = self.classes.reported(key.class);
        }
        let bucket = self.buckets.of(&key);
        bucket.last_request = self.clock;
        bucket.requests.misses += 1;
    }

    /// Counts a block that goes from its bucket to a borrower.
    #[inline]
    fn lend(&mut self, mut block: Box<Block>, requested: u64) -> Box<Block> {
        block.requested = requested;
        self.counters.live_buffers += 1;
        self.accounts.reused(block.key.class);
        self.accounts.lend(block.key.class, requested);
        block
    }

    /// Takes an idle block of one bucket out of the depot.
    pub(crate) fn find_stored(&mut self, key: Key, stream: StreamId) -> Option<Box<Block>> {
        let block = self.buckets.find(&key)?.take(stream)?;
        self.counters.live_buffers += 1;
        self.accounts.reused(key.class);
        Some(block)
    }

    /// Takes up to `most` newest blocks of one bucket, until one needs a wait for `stream`; oldest first.
    pub(crate) fn unstore_ready(&mut self, key: Key, stream: StreamId, most: u64) -> Vec<Box<Block>> {
        let Some(bucket) = self.buckets.find(&key) else { return Vec::new() };
        let blocks = bucket.take_ready(stream, most);
        self.counters.live_buffers += blocks.len() as u64;
        self.accounts.reused(key.class * blocks.len() as u64);
        blocks
    }

    /// Counts a block of `generation` as out.
    pub(crate) fn note_out(&mut self, generation: u64) {
        self.forgotten += u64::from(generation != self.generation);
    }

    /// Whether forgotten blocks are still out.
    pub(crate) fn awaits_forgotten(&self) -> bool {
        self.forgotten > 0
    }

    /// Counts a block that leaves its borrower or magazine. Returns whether the source has forgotten it.
    pub(super) fn is_forgotten(&mut self, block: &Block) -> bool {
        self.note_in(block.generation);
        block.generation != self.generation
    }

    /// Counts a block of `generation` as no longer out.
    #[inline]
    pub(crate) fn note_in(&mut self, generation: u64) {
        if generation != self.generation {
            self.forgotten = self.forgotten.saturating_sub(1);
        }
    }

    /// Puts a block in its bucket, for which the caps have room.
    pub(crate) fn store(&mut self, block: Box<Block>) {
        self.counters.live_buffers -= 1;
        if self.is_forgotten(&block) {
            self.accounts.dropped(block.key.class);
            self.dead.push(block);
            return;
        }
        self.accounts.cached(block.key.class);
        self.buckets.of(&block.key).idle.push_back(block);
    }

    /// Counts a block of a magazine that is about to be released to the source.
    pub(crate) fn discard(&mut self, block: &Block) {
        let _ = self.is_forgotten(block);
        self.counters.live_buffers -= 1;
        self.counters.evictions += 1;
        self.accounts.dropped(block.key.class);
    }

    /// Takes blocks that the caller must release to the source.
    pub(crate) fn take_dead(&mut self) -> Vec<Box<Block>> {
        mem::take(&mut self.dead)
    }

    pub(crate) fn count(&mut self, rung: Rung) {
        self.counters.rungs[rung as usize] += 1;
    }
}
