//! The shared store of idle blocks, by kind and class, with its accounts and counters. One lock holds it; nothing in
//! here calls the device, and no block is dropped in here. What goes between it and threads' magazines is in `exchange`.

use crate::cache::accounts::{Budget, Caps, Room, positive};
use crate::cache::block::Block;
use crate::cache::buckets::{Buckets, Requests};
use crate::cache::magazine::counters::Tally;
use crate::cache::magazine::rack::Rack;
use crate::cache::retry_queue::Turns;
use crate::cache::size_class::SizeClasses;
use crate::cache::stats::{BucketStats, PoolStats, Rung};
use crate::source::Key;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;
use vrampool_backend::{MemoryKind, StreamId};

#[derive(Debug)]
pub(crate) struct Depot {
    /// The kind of memory that magazines take.
    pub(crate) kind: MemoryKind,
    classes: SizeClasses,
    /// From how many of the next classes an empty one borrows.
    borrow_classes: usize,
    pub(crate) buckets: Buckets,
    pub(crate) budget: Budget,
    pub(crate) counters: Counters,
    /// Ticks with every request; a bucket's stamp tells when it was last asked for.
    clock: u64,
    /// What threads' magazines count.
    pub(crate) tallies: Vec<Arc<Tally>>,
    /// Magazines of earlier epochs give their memory to the source.
    pub(crate) trimmed: u64,
    /// Blocks that were not kept while other threads' magazines had slots for such, since these were last called back.
    pub(crate) without_slot: u64,
    /// Records without memory.
    pub(crate) spares: Vec<Box<Block>>,
    /// How often the source forgot its blocks, and how many blocks of before are out of the depot.
    pub(crate) generation: u64,
    forgotten: u64,
    /// Blocks of before that came to the depot where none can be dropped.
    dead: Vec<Box<Block>>,
    /// Requests that wait for memory that is on its way back, the first one first: their numbers and classes.
    waiting: VecDeque<(u64, u64)>,
    /// How many ever waited.
    waited: u64,
    /// Those that found the device out of memory.
    pub(crate) turns: Turns,
    /// No pool handle is left: what comes back is not kept.
    closed: bool,
}

/// Counts since the pool was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Out of the depot: lent, or idle in a magazine. What one way counts up and another down is not next to what else
    /// these count, for the reason that [`Budget::requested`] is not.
    pub(crate) live_buffers: u64,
    pub(crate) drops_over_count: u64,
    pub(crate) source_allocations: u64,
    /// Requests for which the driver was called.
    pub(crate) served_by_driver: u64,
    pub(crate) drops_over_bytes: u64,
    pub(crate) source_frees: u64,
    pub(crate) evictions: u64,
    pub(crate) stream_waits: u64,
    pub(crate) rungs: [u64; Rung::ALL.len()],
    pub(crate) failed_by_limit: u64,
    pub(crate) failed_by_device: u64,
    pub(crate) failed_by_backend: u64,
    pub(crate) failed_invalid: u64,
}

/// What is idle in threads' magazines, and what was asked for by all that is not.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InMagazines {
    pub(crate) buffers: u64,
    pub(crate) bytes: u64,
    pub(crate) requested: u64,
}

/// What a miss may do.
#[derive(Debug)]
#[must_use]
pub(crate) enum Permit {
    /// Drop these outside the lock, report `surplus` bytes as freed, then ask the device.
    Granted { evicted: Vec<Box<Block>>, surplus: u64 },
    /// Wait until memory was freed, then ask again.
    Wait,
    /// The limit does not allow it.
    Refused,
}

impl Depot {
    pub(crate) fn new(kind: MemoryKind, classes: SizeClasses, borrow_classes: usize, caps: Caps) -> Self {
        Self {
            kind,
            classes,
            borrow_classes,
            buckets: Buckets::new(classes),
            budget: Budget::new(caps),
            counters: Counters::default(),
            clock: 0,
            tallies: Vec::new(),
            trimmed: 0,
            without_slot: 0,
            spares: Vec::new(),
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

    /// An idle block for `key`, best one of `stream`, from the buckets and this thread's `rack`; counts the hit or the
    /// miss.
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
        let is_for_lane = rack.is_some() && self.lane_of(key).is_some();
        let bucket = self.buckets.of(&key);
        bucket.last_request = self.clock;
        if !is_for_lane && let Some(block) = bucket.take(stream) {
            bucket.requests.hits += 1;
            return Some(self.lend(block, requested));
        }
        if self.budget.now.cached == 0 && rack.is_none_or(|rack| rack.leased.get() == 0) {
            // No class has any to lend.
            bucket.requests.misses += 1;
            return None;
        }
        let mut taken = if is_for_lane { self.find(key, stream, rack) } else { None };
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
                self.budget.lend(block.key.class, requested);
            }
            None => requests.misses += 1,
        }
        taken
    }

    /// The newest idle block for `key`, if it needs no wait for `stream`; counts the hit. No block means nothing: ask
    /// [`take`](Self::take).
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
        self.budget.now.cached == 0
            || (self.buckets.find(&key).is_none_or(|bucket| bucket.idle.is_empty())
                && self.classes.lenders(key.class).next().is_none())
    }

    #[inline]
    pub(crate) fn count_miss(&mut self, mut key: Key) {
        self.clock += 1;
        if !self.budget.caps.cache(key.class) {
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
        self.budget.reused(block.key.class);
        self.budget.lend(block.key.class, requested);
        block
    }

    /// An idle block of one bucket leaves the depot.
    pub(crate) fn find_stored(&mut self, key: Key, stream: StreamId) -> Option<Box<Block>> {
        let block = self.buckets.find(&key)?.take(stream)?;
        self.counters.live_buffers += 1;
        self.budget.reused(key.class);
        Some(block)
    }

    /// The newest blocks of one bucket leave the depot, as long as they need no wait for `stream`, at most so many; oldest
    /// first.
    pub(crate) fn unstore_ready(&mut self, key: Key, stream: StreamId, most: u64) -> Vec<Box<Block>> {
        let Some(bucket) = self.buckets.find(&key) else { return Vec::new() };
        let blocks = bucket.take_ready(stream, most);
        self.counters.live_buffers += blocks.len() as u64;
        self.budget.reused(key.class * blocks.len() as u64);
        blocks
    }

    /// The source forgot all its blocks. Returns the idle ones.
    pub(crate) fn begin_generation(&mut self) -> Vec<Box<Block>> {
        self.generation += 1;
        let idle = self.evict(u64::MAX);
        self.forgotten = self.counters.live_buffers;
        idle
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
            self.budget.dropped(block.key.class);
            self.dead.push(block);
            return;
        }
        self.budget.cached(block.key.class);
        self.buckets.of(&block.key).idle.push_back(block);
    }

    /// A block from a magazine is about to be given to the source.
    pub(crate) fn discard(&mut self, block: &Block) {
        let _ = self.is_forgotten(block);
        self.counters.live_buffers -= 1;
        self.counters.evictions += 1;
        self.budget.dropped(block.key.class);
    }

    /// Blocks to be given to the source by whoever can.
    pub(crate) fn take_dead(&mut self) -> Vec<Box<Block>> {
        mem::take(&mut self.dead)
    }

    /// A buffer came back that no magazine takes. Answers it if the caps have no room for it.
    #[inline]
    pub(crate) fn keep(&mut self, block: Box<Block>) -> Option<Box<Block>> {
        let class = block.key.class;
        let is_kept = !self.closed && block.generation == self.generation && self.budget.caps.cache(class);
        if !is_kept || !self.budget.may_cache(class) {
            return Some(block);
        }
        let bucket = self.buckets.of(&block.key);
        if !self.budget.bucket_may_keep(bucket.kept()) {
            return Some(block);
        }
        self.budget.returned(class, block.requested);
        bucket.idle.push_back(block);
        self.counters.live_buffers -= 1;
        self.budget.cached(class);
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
                if !self.closed && !is_forgotten && self.budget.caps.magazines_take(block.key.class) =>
            {
                self.keep_in_lane(block, rack)
            }
            _ => Some(block),
        };
        let block = unplaced?;
        let class = block.key.class;
        self.budget.returned(class, block.requested);
        if self.closed || is_forgotten {
            self.counters.live_buffers -= 1;
            self.budget.dropped(class);
            return Some(block);
        }
        if !self.budget.caps.cache(class) {
            return Some(self.unkept(block, false));
        }
        if !self.budget.may_cache(class) {
            self.counters.drops_over_bytes += 1;
            let with_others = self.budget.leased > rack.map_or(0, |rack| rack.leased.get());
            return Some(self.unkept(block, with_others));
        }
        let bucket = self.buckets.of(&block.key);
        if !self.budget.bucket_may_keep(bucket.kept()) {
            self.counters.drops_over_count += 1;
            let with_others = bucket.leased > rack.map_or(0, |rack| rack.slots_of(class));
            return Some(self.unkept(block, with_others));
        }
        bucket.idle.push_back(block);
        self.counters.live_buffers -= 1;
        self.budget.cached(class);
        None
    }

    /// A block goes to the source; `with_others`: while other threads' magazines have slots for such.
    #[inline]
    fn unkept(&mut self, block: Box<Block>, with_others: bool) -> Box<Block> {
        self.without_slot += u64::from(with_others);
        self.counters.live_buffers -= 1;
        self.budget.dropped(block.key.class);
        block
    }

    /// Whether a miss of `class` bytes has to give anything back.
    #[inline]
    pub(crate) fn is_short_of(&self, class: u64) -> bool {
        !self.waiting.is_empty() || self.budget.room(class) != Room::Evict(0)
    }

    /// A request of `class` bytes begins to wait. Returns its number.
    pub(crate) fn begin_wait(&mut self, class: u64) -> u64 {
        self.waited += 1;
        self.waiting.push_back((self.waited, class));
        self.waited
    }

    /// It has what it waited for, or nothing to wait for. Returns whether others wait still.
    pub(crate) fn end_wait(&mut self, number: u64) -> bool {
        self.waiting.retain(|(waiting, _)| *waiting != number);
        !self.waiting.is_empty()
    }

    /// Bytes that those wait for who began to before that number.
    fn waited_for_before(&self, number: u64) -> u64 {
        let before = self.waiting.iter().take_while(|(waiting, _)| *waiting < number);
        before.fold(0, |sum, (_, class)| sum.saturating_add(*class))
    }

    /// Whether `class` bytes do not fit within the limit even when the depot gives back all it has.
    pub(crate) fn is_over_limit_with(&self, class: u64) -> bool {
        !matches!(self.budget.room(class), Room::Evict(_))
    }

    /// Whether a miss of `class` bytes may ask the device, and what it must give back first. One that waits has a number: first
    /// come, first served. `may_wait`: others who wait come first.
    pub(crate) fn permit(&mut self, class: u64, number: Option<u64>, may_wait: bool) -> Permit {
        let before = if may_wait { self.waited_for_before(number.unwrap_or(u64::MAX)) } else { 0 };
        let room = self.budget.room(class);
        let is_behind = before > 0 && room != Room::Full;
        if is_behind && !matches!(self.budget.room(class.saturating_add(before)), Room::Evict(_)) {
            return Permit::Wait;
        }
        match room {
            Room::Wait => Permit::Wait,
            Room::Full => Permit::Refused,
            Room::Evict(bytes) => {
                let evicted = self.evict(bytes);
                if !evicted.is_empty() {
                    self.count(Rung::Evict);
                }
                let bytes = evicted.iter().map(|block| block.key.class).sum();
                let surplus = self.budget.promise(class, bytes);
                Permit::Granted { evicted, surplus }
            }
        }
    }

    /// Takes at least `bytes` of idle memory out, or all there is: classes that were asked for longest ago first, of two
    /// the larger first, in a class the oldest release first.
    pub(crate) fn evict(&mut self, bytes: u64) -> Vec<Box<Block>> {
        if bytes == 0 {
            return Vec::new();
        }
        self.note_hits();
        let (mut evicted, mut gone) = (Vec::new(), 0);
        for key in self.buckets.stalest() {
            let Some(bucket) = self.buckets.find(&key) else { continue };
            while gone < bytes
                && let Some(block) = bucket.idle.pop_front()
            {
                gone += key.class;
                evicted.push(block);
            }
        }
        self.counters.evictions += evicted.len() as u64;
        self.budget.evict(gone);
        evicted
    }

    /// Takes all idle memory of one kind out that needs no wait for `stream`.
    pub(crate) fn evict_ready(&mut self, kind: MemoryKind, stream: StreamId) -> Vec<Box<Block>> {
        let evicted = self.buckets.take_all_ready(kind, stream);
        self.counters.evictions += evicted.len() as u64;
        self.budget.evict(evicted.iter().map(|block| block.key.class).sum());
        evicted
    }

    /// Stamps the buckets whose classes magazines handed out since this was last done: their hits did not come by here.
    fn note_hits(&mut self) {
        for tally in &self.tallies {
            for class in tally.hit_classes() {
                if let Some(bucket) = self.buckets.find(&Key { kind: self.kind, class }) {
                    bucket.last_request = self.clock;
                }
            }
        }
    }

    /// Nothing is kept from now on. Answers idle blocks, and spare records to be dropped.
    pub(crate) fn close(&mut self) -> (Vec<Box<Block>>, Vec<Box<Block>>) {
        self.closed = true;
        (self.evict(u64::MAX), mem::take(&mut self.spares))
    }

    pub(crate) fn count(&mut self, rung: Rung) {
        self.counters.rungs[rung as usize] += 1;
    }

    /// What a pool can tell of itself, all of one moment but for what threads' magazines do meanwhile.
    pub(crate) fn stats(&mut self) -> PoolStats {
        let mut buckets: BTreeMap<u64, BucketStats> = BTreeMap::new();
        let mut add = |class: u64, requests: Requests, idle: u64| {
            let reported = self.classes.reported(class);
            let bucket = buckets.entry(reported).or_insert_with(|| BucketStats::new(reported));
            bucket.hits += requests.hits;
            bucket.misses += requests.misses;
            bucket.idle_buffers += idle;
            bucket.idle_bytes += idle * class;
        };
        for (class, requests, idle) in self.buckets.counts() {
            add(class, requests, idle);
        }
        let mut in_magazines = InMagazines { requested: self.budget.requested, ..InMagazines::default() };
        for tally in &self.tallies {
            let last = tally.last_lent();
            for (number, lane) in tally.used_lanes() {
                // A block on its way between two threads may be seen in both.
                let unseen = (self.budget.now.out - in_magazines.bytes) / lane.class();
                let out = u64::from(last.is_some_and(|(lane, _)| lane == number));
                let idle = lane
                    .idle()
                    .saturating_sub(out)
                    .min(unseen)
                    .min(self.counters.live_buffers - in_magazines.buffers);
                add(lane.class(), Requests { hits: lane.hits(), misses: 0 }, idle);
                in_magazines.buffers += idle;
                in_magazines.bytes += idle * lane.class();
            }
            in_magazines.requested = in_magazines.requested.wrapping_add(tally.requested().sum());
            in_magazines.requested =
                in_magazines.requested.wrapping_add(last.map_or(0, |(_, requested)| requested));
        }
        in_magazines.requested = positive(in_magazines.requested);
        PoolStats::new(&self.budget, &self.counters, &in_magazines, buckets.into_values().collect())
    }
}
