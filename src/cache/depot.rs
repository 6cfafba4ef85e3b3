//! The shared store of idle blocks, by kind and class, with its accounts and counters. One lock holds it;
//! nothing in here calls the device, and no block is dropped in here. What goes between it and threads'
//! magazines is in `magazine_exchange`.

use crate::cache::accounts::Accounts;
use crate::cache::block::Block;
use crate::cache::buckets::Buckets;
use crate::cache::caps::Caps;
use crate::cache::counts::Counters;
use crate::cache::magazine::counters::Tally;
use crate::cache::magazine::rack::Rack;
use crate::cache::oom_rung::Rung;
use crate::cache::retry_queue::Turns;
use crate::cache::size_class::SizeClasses;
use crate::source::Key;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{MemoryKind, StreamId};

#[derive(Debug)]
pub(crate) struct Depot {
    /// The kind of memory that magazines take.
    pub(crate) kind: MemoryKind,
    pub(super) classes: SizeClasses,
    /// From how many of the next classes an empty one borrows.
    borrow_classes: usize,
    pub(crate) buckets: Buckets,
    pub(crate) accounts: Accounts,
    pub(crate) counters: Counters,
    /// Ticks with every request; a bucket's stamp tells when it was last asked for.
    pub(super) clock: u64,
    /// What threads' magazines count.
    pub(crate) tallies: Vec<Arc<Tally>>,
    /// Magazines of earlier epochs give their memory to the source.
    pub(crate) trimmed: u64,
    /// Blocks that were not kept while other threads' magazines had slots for such, since these were last
    /// called back.
    pub(crate) without_slot: u64,
    /// Records without memory.
    pub(crate) records: Vec<Box<Block>>,
    /// How often the source forgot its blocks, and how many blocks of before are out of the depot.
    pub(crate) generation: u64,
    pub(super) forgotten: u64,
    /// Blocks of before that came to the depot where none can be dropped.
    dead: Vec<Box<Block>>,
    /// Requests that wait for memory that is on its way back, the first one first: their numbers and classes.
    pub(super) waiting: VecDeque<(u64, u64)>,
    /// How many ever waited.
    pub(super) waited: u64,
    /// Those that found the device out of memory.
    pub(crate) turns: Turns,
    /// No pool handle is left: what comes back is not kept.
    pub(super) closed: bool,
}

impl Depot {
    pub(crate) fn new(kind: MemoryKind, classes: SizeClasses, borrow_classes: usize, caps: Caps) -> Self {
        Self {
            kind,
            classes,
            borrow_classes,
            buckets: Buckets::new(classes),
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
            closed: false,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// The key of what magazines hold under `class`.
    pub(crate) fn key_of(&self, class: u64) -> Key {
        Key { kind: self.kind, class }
    }

    /// An idle block for `key`, best one of `stream`, from the buckets and this thread's `rack`; counts the
    /// hit or the miss.
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
            bucket.requests.hits += 1;
            return Some(self.lend(block, requested));
        }
        if self.accounts.now.cached == 0 && rack.is_none_or(|rack| rack.leased.get() == 0) {
            // No class has any to lend.
            bucket.requests.misses += 1;
            return None;
        }
        let mut taken = if is_for_list { self.find(key, stream, rack) } else { None };
        if taken.is_none() {
            // One of the next larger classes lends.
            let mut lenders = self.classes.lenders(key.class).take(self.borrow_classes);
            taken = lenders.find_map(|class| self.find(Key { class, ..key }, stream, rack));
        }
        let requests = self.buckets.requests(key);
        match &mut taken {
            Some(block) => {
                requests.hits += 1;
                block.requested = requested;
                self.accounts.lend(block.key.class, requested);
            }
            None => requests.misses += 1,
        }
        taken
    }

    /// The newest idle block for `key`, if it needs no wait for `stream`; counts the hit. No block means
    /// nothing: ask [`take`](Self::take).
    #[inline]
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

    /// Whether there is no idle block of `key`, which may be kept, nor of a class that could lend one.
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
            // Nothing is ever idle there, so a bucket for each class would have nothing to tell but this.
            key.class = self.classes.reported(key.class);
        }
        let bucket = self.buckets.of(&key);
        bucket.last_request = self.clock;
        bucket.requests.misses += 1;
    }

    /// A block that left its bucket goes to a borrower.
    #[inline]
    fn lend(&mut self, mut block: Box<Block>, requested: u64) -> Box<Block> {
        block.requested = requested;
        self.counters.live_buffers += 1;
        self.accounts.reused(block.key.class);
        self.accounts.lend(block.key.class, requested);
        block
    }

    /// An idle block of one bucket leaves the depot.
    pub(crate) fn find_stored(&mut self, key: Key, stream: StreamId) -> Option<Box<Block>> {
        let block = self.buckets.find(&key)?.take(stream)?;
        self.counters.live_buffers += 1;
        self.accounts.reused(key.class);
        Some(block)
    }

    /// The newest blocks of one bucket leave the depot, as long as they need no wait for `stream`, at most so
    /// many; oldest first.
    pub(crate) fn unstore_ready(&mut self, key: Key, stream: StreamId, most: u64) -> Vec<Box<Block>> {
        let Some(bucket) = self.buckets.find(&key) else { return Vec::new() };
        let blocks = bucket.take_ready(stream, most);
        self.counters.live_buffers += blocks.len() as u64;
        self.accounts.reused(key.class * blocks.len() as u64);
        blocks
    }

    /// A block of that generation is out from now on.
    pub(crate) fn note_out(&mut self, generation: u64) {
        self.forgotten += u64::from(generation != self.generation);
    }

    /// Whether blocks are out that the source forgot.
    pub(crate) fn awaits_forgotten(&self) -> bool {
        self.forgotten > 0
    }

    /// A block leaves its borrower, or a magazine. Whether the source forgot it.
    fn is_forgotten(&mut self, block: &Block) -> bool {
        self.note_in(block.generation);
        block.generation != self.generation
    }

    /// A block of that generation is not out any more.
    #[inline]
    pub(crate) fn note_in(&mut self, generation: u64) {
        if generation != self.generation {
            self.forgotten = self.forgotten.saturating_sub(1);
        }
    }

    /// A block enters its bucket, for which the caps have room.
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

    /// A block from a magazine is about to be given to the source.
    pub(crate) fn discard(&mut self, block: &Block) {
        let _ = self.is_forgotten(block);
        self.counters.live_buffers -= 1;
        self.counters.evictions += 1;
        self.accounts.dropped(block.key.class);
    }

    /// Blocks to be given to the source by whoever can.
    pub(crate) fn take_dead(&mut self) -> Vec<Box<Block>> {
        mem::take(&mut self.dead)
    }

    /// A buffer came back that no magazine takes. Answers it if the caps have no room for it.
    #[inline]
    pub(crate) fn keep(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let class = block.key.class;
        let is_kept = !self.closed && block.generation == self.generation && self.accounts.caps.cache(class);
        if !is_kept || !self.accounts.may_cache(class) {
            return Some(block);
        }
        let bucket = self.buckets.of(&block.key);
        if !self.accounts.bucket_may_keep(bucket.kept()) {
            return Some(block);
        }
        self.accounts.returned(class, block.requested);
        bucket.idle.push_back(block);
        self.counters.live_buffers -= 1;
        self.accounts.cached(class);
        None
    }

    /// A buffer came back, to this thread's `rack` or its bucket. Answers a block that is not kept: to be
    /// [recycled](Self::recycle), or dropped outside the lock and then reported as freed.
    #[inline]
    pub(crate) fn put(&mut self, block: Box<Block>, rack: Option<&Rack>) -> Option<Box<Block>> {
        if let Some(rack) = rack {
            self.settle(rack);
        }
        let is_forgotten = self.is_forgotten(&block);
        let unplaced = match rack {
            Some(rack)
                if !self.closed && !is_forgotten && self.accounts.caps.magazines_take(block.key.class) =>
            {
                self.keep_in_list(block, rack)
            }
            _ => Some(block),
        };
        let block = unplaced?;
        let class = block.key.class;
        self.accounts.returned(class, block.requested);
        if self.closed || is_forgotten {
            self.counters.live_buffers -= 1;
            self.accounts.dropped(class);
            return Some(block);
        }
        if !self.accounts.caps.cache(class) {
            return Some(self.unkept(block, false));
        }
        if !self.accounts.may_cache(class) {
            self.counters.drops_over_bytes += 1;
            let with_others = self.accounts.leased > rack.map_or(0, |rack| rack.leased.get());
            return Some(self.unkept(block, with_others));
        }
        let bucket = self.buckets.of(&block.key);
        if !self.accounts.bucket_may_keep(bucket.kept()) {
            self.counters.drops_over_count += 1;
            let with_others = bucket.leased > rack.map_or(0, |rack| rack.slots_of(class));
            return Some(self.unkept(block, with_others));
        }
        bucket.idle.push_back(block);
        self.counters.live_buffers -= 1;
        self.accounts.cached(class);
        None
    }

    /// A block goes to the source; `with_others`: while other threads' magazines have slots for such.
    #[inline]
    fn unkept(&mut self, block: Box<Block>, with_others: bool) -> Box<Block> {
        self.without_slot += u64::from(with_others);
        self.counters.live_buffers -= 1;
        self.accounts.dropped(block.key.class);
        block
    }

    pub(crate) fn count(&mut self, rung: Rung) {
        self.counters.rungs[rung as usize] += 1;
    }
}
