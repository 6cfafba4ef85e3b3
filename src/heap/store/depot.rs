//! The shared store of idle blocks, by kind and class, with its accounts and counters, under one lock.
//!
//! Nothing here calls the device or drops a block. Exchange with threads' magazines is in
//! `magazine::exchange`.

use crate::error::Error;
use crate::heap::ledger::Caps;
use crate::heap::magazine::ThreadCache;
use crate::heap::stats::PoolStats;
use crate::heap::store::keep::note_idle;
use crate::heap::store::{Keys, Taken};
use crate::heap::{Accounts, BackendState, Block, Buckets, Depot, Life, Queue, Requests, Threads};
use crate::source::Key;
use crate::streams::FreedIn;
use std::sync::Weak;
use vrampool_backend::{MemoryKind, StreamId};

/// The idle blocks that a request accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accept {
    /// Blocks that only the request's stream used.
    Ready,
    /// Blocks whose work is known to be complete or, unless the request's stream is captured, ordered before the work
    /// of that stream.
    Done { is_captured: bool },
    /// Blocks that need no wait, else any.
    Any,
}

impl Depot {
    pub(crate) fn new(buckets: Buckets, caps: Caps, backend_state: BackendState) -> Self {
        let in_flight = backend_state.ticks().shared_in_flight();
        Self {
            buckets,
            accounts: Accounts::new(caps, in_flight),
            node: None,
            known_change: 0,
            counters: PoolStats::default(),
            threads: Threads::default(),
            records: Vec::new(),
            backend_state,
            queue: Queue::default(),
            life: Life::Open,
            pool: Weak::new(),
        }
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.life == Life::Dropped
    }

    /// Whether returned blocks go to the source.
    #[inline]
    pub(in crate::heap) fn keeps_nothing(&self) -> bool {
        self.is_dropped() || self.refuses() && !self.accounts.is_private
    }

    /// Checks that the pool is not closed.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub(in crate::heap) fn check_open(&self) -> Result<(), Error> {
        if self.life == Life::Closed { Err(Error::Closed) } else { Ok(()) }
    }

    /// Whether idle memory serves no request, because the pool is closed or asleep.
    #[inline]
    pub(crate) fn refuses(&self) -> bool {
        matches!(self.life, Life::Closed | Life::Asleep)
    }

    /// Whether requests are served in order, or not at all: each has to ask for a [permit](Self::permit).
    #[inline]
    pub(crate) fn is_guarded(&self) -> bool {
        self.refuses() || self.queue.has_deadlines()
    }

    /// Takes an idle block that a request of `key` [accepts](Accept) from the buckets of its keys, those of
    /// [larger classes](Self::keys_for) last, and this thread's `cache`. Counts the hit of a block that needs no
    /// wait; others are for [`count_hand_over`](Self::count_hand_over).
    pub(crate) fn take(
        &mut self,
        key: Key,
        requested: u64,
        stream: StreamId,
        cache: Option<&ThreadCache>,
        accept: Accept,
    ) -> Taken {
        if let Some(cache) = cache {
            self.apply_delta(cache);
        }
        self.backend_state.ticks_mut().used_by(stream);
        let bucket = self.buckets.requested(&key);
        if bucket.idle.is_empty()
            && self.accounts.now.cached == 0
            && cache.is_none_or(|cache| cache.leased.get() == 0)
        {
            // No class has an idle block.
            return Taken::Nothing;
        }
        let (mut found, keys) = (None, self.keys_for(key));
        if accept == Accept::Any {
            found = keys.iter().find_map(|&key| self.find(key, stream, cache, Accept::Ready));
        }
        match found.or_else(|| keys.iter().find_map(|&key| self.find(key, stream, cache, accept))) {
            Some(mut block) => {
                if block.is_ready_on(stream) {
                    self.buckets.requests(key).hits += 1;
                }
                self.count_served(&mut block, key, requested);
                Taken::Idle(block)
            }
            None if keys.iter().any(|&key| self.has_idle(key, cache)) => Taken::Busy,
            None => Taken::Nothing,
        }
    }

    /// Returns the keys of the blocks that serve a request: its own, and those of the larger classes that may serve it.
    pub(crate) fn keys_for(&self, key: Key) -> Keys {
        let mut keys = Keys::from_slice(&[key]);
        if self.buckets.borrow() {
            let larger = self.buckets.larger_keys(key);
            keys.extend(larger.take_while(|larger| self.accounts.allows(larger.class - key.class)));
        }
        keys
    }

    /// Whether a block of a class is idle in its bucket or this thread's magazine.
    fn has_idle(&mut self, key: Key, cache: Option<&ThreadCache>) -> bool {
        self.buckets.has_idle(&key) || {
            let counters = cache.zip(self.bin_of(key)).map(|(cache, bin)| cache.counters.bin(bin));
            counters.is_some_and(|counters| counters.class() == key.class && counters.idle() > 0)
        }
    }

    /// Takes the newest idle block for `key` that needs no wait for `stream`, of its class or of a larger one that may
    /// serve it, and counts the hit. Magazines are not searched.
    #[inline(always)]
    pub(crate) fn take_ready(&mut self, key: Key, requested: u64, stream: StreamId) -> Taken {
        match self.buckets.take_newest_ready(&key, stream) {
            Taken::Idle(block) => Taken::Idle(self.make_live(block, requested)),
            _ if self.buckets.borrow() && self.accounts.now.cached > 0 => {
                self.take(key, requested, stream, None, Accept::Ready)
            }
            own => own,
        }
    }

    /// Counts a block that serves a request of `key`, whose class may be smaller than its own.
    pub(crate) fn count_served(&mut self, block: &mut Block, key: Key, requested: u64) {
        block.requested = requested;
        if block.key.class > key.class {
            block.serve(key.class);
            self.accounts.expected += block.excess;
        }
        self.accounts.make_live(block.key.class, requested);
    }

    /// Counts a block as returned that served a smaller class than its own.
    #[inline]
    pub(in crate::heap) fn end_loan(&mut self, block: &mut Block) {
        if block.excess > 0 {
            self.accounts.expected -= block.excess;
            block.serve(block.key.class);
        }
    }

    /// Counts a hit whose block was not ready, with its waits. Call it once the block is: a count cannot be taken back.
    pub(crate) fn count_hand_over(&mut self, key: Key, waits: u64) {
        self.buckets.requests(key).hits += 1;
        self.counters.stream_waits += waits;
        self.counters.reuse_waits += waits;
    }

    /// Notes that a class is requested. Returns its counts.
    #[inline]
    pub(crate) fn note_request(&mut self, mut key: Key) -> &mut Requests {
        if !self.accounts.caps.cache(key.class) {
            // A class without idle blocks is counted in its reported class and needs no bucket.
            key.class = self.buckets.classes.reported(key.class);
        }
        &mut self.buckets.requested(&key).requests
    }

    /// Counts a block that goes from its bucket to a borrower.
    #[inline]
    fn make_live(&mut self, mut block: Box<Block>, requested: u64) -> Box<Block> {
        self.count_taken(&block);
        block.requested = requested;
        self.accounts.make_live(block.key.class, requested);
        block
    }

    /// Counts a block that leaves its bucket for a borrower or a magazine.
    #[inline]
    pub(crate) fn count_taken(&mut self, block: &Block) {
        self.note_reused(block);
        self.counters.live_buffers += 1;
        self.accounts.reused(block.key.class);
    }

    /// Counts a block in flight that leaves its bucket.
    #[inline]
    pub(crate) fn note_reused(&mut self, block: &Block) {
        if self.backend_state.ticks().are_any_freed() {
            self.note_landed(block);
        }
    }

    #[cold]
    #[inline(never)]
    fn note_landed(&mut self, block: &Block) {
        let user = block.last_user(&self.backend_state);
        self.backend_state.ticks_mut().reused(user, FreedIn::Bucket, block.last_use.freed(), block.key.class);
    }

    /// Takes an idle block of one bucket out of the depot.
    pub(crate) fn find_stored(&mut self, key: Key, stream: StreamId, accepted: Accept) -> Option<Box<Block>> {
        let Self { buckets, backend_state, .. } = self;
        let bucket = buckets.find(&key)?;
        let block = match accepted {
            Accept::Ready => bucket.take_newest_ready(stream),
            Accept::Done { is_captured } => {
                bucket.take_oldest(stream, |block| block.is_done(backend_state, stream, is_captured))
            }
            Accept::Any => bucket.take_any(stream),
        }?;
        self.count_taken(&block);
        Some(block)
    }

    /// Takes up to `most` newest blocks of one bucket, until one needs a wait for `stream`; oldest first.
    pub(crate) fn unstore_ready(&mut self, key: Key, stream: StreamId, most: u64) -> Vec<Box<Block>> {
        let Some(bucket) = self.buckets.find(&key) else { return Vec::new() };
        let blocks = bucket.take_ready(stream, most);
        blocks.iter().for_each(|block| self.count_taken(block));
        blocks
    }

    /// Puts a block in its bucket, for which the caps have room.
    pub(crate) fn store(&mut self, block: Box<Block>) {
        self.counters.live_buffers -= 1;
        self.accounts.cached(block.key.class);
        note_idle(&block, &mut self.backend_state);
        self.buckets.of(&block.key).idle.push_back(block);
    }

    /// Counts a block of a magazine that is about to be released to the source.
    pub(crate) fn discard(&mut self, block: &Block) {
        self.counters.live_buffers -= 1;
        self.counters.released.evicted += 1;
        self.accounts.dropped(block.key.class);
    }

    /// Takes out at least `bytes` of idle memory, or all. Order: least recently requested classes, then
    /// larger classes, then the oldest release in a class.
    pub(crate) fn evict(&mut self, bytes: u64) -> Vec<Box<Block>> {
        if bytes == 0 || self.keeps_all() {
            return Vec::new();
        }
        // The stamps of buckets whose classes magazines have served, bypassing the depot.
        let Self { buckets, threads, .. } = self;
        for class in threads.counters.iter().flat_map(|counters| counters.hit_classes()) {
            let (key, clock) = (buckets.key_of(class), buckets.clock);
            buckets.find(&key).into_iter().for_each(|bucket| bucket.last_request = clock);
        }
        let (mut evicted, mut freed) = (Vec::new(), 0);
        for key in self.buckets.stalest() {
            let Some(bucket) = self.buckets.find(&key) else { continue };
            while freed < bytes
                && let Some(block) = bucket.idle.pop_front()
            {
                freed += key.class;
                bucket.has_overflowed = false;
                evicted.push(block);
            }
        }
        self.count_evicted(evicted)
    }

    /// Takes out all idle memory of one kind that needs no wait for `stream`.
    pub(crate) fn evict_ready(&mut self, kind: MemoryKind, stream: StreamId) -> Vec<Box<Block>> {
        let evicted = if self.keeps_all() { Vec::new() } else { self.buckets.take_all_ready(kind, stream) };
        self.count_evicted(evicted)
    }

    /// Whether idle memory is private.
    fn keeps_all(&self) -> bool {
        self.accounts.is_private && !self.is_dropped()
    }

    fn count_evicted(&mut self, evicted: Vec<Box<Block>>) -> Vec<Box<Block>> {
        evicted.iter().for_each(|block| self.note_reused(block));
        self.counters.released.evicted += evicted.len() as u64;
        self.accounts.evict(evicted.iter().map(|block| block.key.class).sum());
        evicted
    }
}
