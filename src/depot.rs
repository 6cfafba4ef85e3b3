//! The shared store of idle blocks, by kind and class, with its accounts and counters. One lock holds it; nothing in
//! here calls the device, and no block is dropped in here. What goes between it and threads' magazines is in `exchange`.

use crate::budget::{Budget, CapReached, Caps, Room, positive};
use crate::block::Block;
use crate::magazine::Rack;
use crate::size_class::SizeClasses;
use crate::stats::{BucketStats, PoolStats, Rung};
use crate::tally::Tally;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use vrampool_backend::{MemoryKind, StreamId};

/// Under what idle memory is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) kind: MemoryKind,
    pub(crate) class: u64,
}

/// How many of a bucket's newest blocks are searched for one of the same stream before one of another is taken: the
/// search must not grow with the bucket.
pub(crate) const SAME_STREAM_SEARCH: usize = 16;

/// From this many buckets on, empty ones are forgotten (their counts are kept): exact classes make one a size.
const MAX_EMPTY_BUCKETS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Depot {
    /// The kind of memory that magazines take.
    pub(crate) kind: MemoryKind,
    classes: SizeClasses,
    /// From how many of the next classes an empty one borrows.
    borrow_classes: usize,
    buckets: FxHashMap<Key, Bucket>,
    /// From how many buckets on empty ones are forgotten.
    forget_from: usize,
    /// Hits and misses of forgotten buckets, by reported class.
    forgotten: BTreeMap<u64, Requests>,
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
    /// No pool handle is left: what comes back is not kept.
    closed: bool,
}

#[derive(Debug)]
pub(crate) struct Bucket {
    /// Oldest release first.
    pub(crate) idle: VecDeque<Box<Block>>,
    /// Slots that magazines have, filled or not. They count as idle blocks do.
    pub(crate) leased: u64,
    last_request: u64,
    requests: Requests,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Requests {
    pub(crate) hits: u64,
    misses: u64,
}

/// Counts since the pool was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    /// Out of the depot: lent, or idle in a magazine.
    pub(crate) live_buffers: u64,
    pub(crate) source_allocations: u64,
    pub(crate) source_frees: u64,
    pub(crate) drops_over_bytes: u64,
    pub(crate) drops_over_count: u64,
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

/// What became of a released block.
#[derive(Debug)]
#[must_use]
pub(crate) enum Released {
    Cached,
    /// To be dropped outside the lock, and then reported with [`Depot::freed`].
    Returned(Box<Block>),
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
            buckets: FxHashMap::default(),
            forget_from: MAX_EMPTY_BUCKETS,
            forgotten: BTreeMap::new(),
            budget: Budget::new(caps),
            counters: Counters::default(),
            clock: 0,
            tallies: Vec::new(),
            trimmed: 0,
            without_slot: 0,
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
        rack.into_iter().for_each(|rack| self.settle(rack));
        self.clock += 1;
        let clock = self.clock;
        self.bucket(key).last_request = clock;
        let mut taken = self.find(key, stream, rack);
        if taken.is_none() {
            // One of the next larger classes lends.
            let mut lenders = self.classes.lenders(key.class).take(self.borrow_classes);
            taken = lenders.find_map(|class| self.find(Key { class, ..key }, stream, rack));
        }
        let requests = self.requests(key);
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

    /// An idle block of one bucket leaves the depot.
    pub(crate) fn find_stored(&mut self, key: Key, stream: StreamId) -> Option<Box<Block>> {
        let block = self.buckets.get_mut(&key)?.take(stream)?;
        self.counters.live_buffers += 1;
        self.budget.reused(key.class);
        Some(block)
    }

    /// The newest blocks of one bucket leave the depot, as long as they need no wait for `stream`, at most so many; oldest
    /// first.
    pub(crate) fn unstore_ready(&mut self, key: Key, stream: StreamId, most: u64) -> Vec<Box<Block>> {
        let Some(bucket) = self.buckets.get_mut(&key) else { return Vec::new() };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let ready = bucket.idle.iter().rev().take(most).take_while(|block| block.is_ready_on(stream)).count();
        let kept = bucket.idle.len() - ready;
        let blocks: Vec<Box<Block>> = bucket.idle.drain(kept..).collect();
        self.counters.live_buffers += ready as u64;
        self.budget.reused(key.class * ready as u64);
        blocks
    }

    /// A block enters its bucket, for which the caps have room.
    pub(crate) fn store(&mut self, block: Box<Block>) {
        self.counters.live_buffers -= 1;
        self.budget.cached(block.key.class);
        self.bucket(block.key).idle.push_back(block);
    }

    /// A block from a magazine is about to be given to the source.
    pub(crate) fn discard(&mut self, class: u64) {
        self.counters.live_buffers -= 1;
        self.counters.evictions += 1;
        self.budget.dropped(class);
    }

    pub(crate) fn bucket(&mut self, key: Key) -> &mut Bucket {
        if self.buckets.len() >= self.forget_from && !self.buckets.contains_key(&key) {
            self.forget_empty_buckets();
        }
        self.buckets.entry(key).or_insert_with(Bucket::new)
    }

    /// Undoes a hit whose block could not be made ready.
    pub(crate) fn undo_hit(&mut self, key: Key) {
        let reported = self.classes.reported(key.class);
        // A bucket that was forgotten in the meantime took its count along, and may be there again without it.
        let requests = match self.buckets.get_mut(&key) {
            Some(bucket) if bucket.requests.hits > 0 => &mut bucket.requests,
            _ => self.forgotten.entry(reported).or_default(),
        };
        requests.hits = requests.hits.saturating_sub(1);
        requests.misses += 1;
    }

    pub(crate) fn requests(&mut self, key: Key) -> &mut Requests {
        match self.buckets.get_mut(&key) {
            Some(bucket) => &mut bucket.requests,
            None => self.forgotten.entry(self.classes.reported(key.class)).or_default(),
        }
    }

    /// A buffer came back, to this thread's `rack` or its bucket.
    pub(crate) fn put(&mut self, block: Box<Block>, rack: Option<&Rack>) -> Released {
        rack.into_iter().for_each(|rack| self.settle(rack));
        let unplaced = match rack {
            Some(rack) if !self.closed => self.keep_in_lane(block, rack),
            _ => Some(block),
        };
        let Some(block) = unplaced else { return Released::Cached };
        let class = block.key.class;
        self.budget.returned(class, block.requested);
        if self.closed {
            self.counters.live_buffers -= 1;
            self.budget.dropped(class);
            return Released::Returned(block);
        }
        let bucket = self.bucket(block.key);
        let leased = bucket.leased;
        let kept = bucket.idle.len() as u64 + leased;
        match self.budget.may_cache(class, kept) {
            Ok(()) => {
                self.store(block);
                Released::Cached
            }
            Err(cap) => {
                let with_others = match cap {
                    CapReached::CachedBytes => {
                        self.counters.drops_over_bytes += 1;
                        self.budget.leased > rack.map_or(0, |rack| rack.leased.get())
                    }
                    CapReached::BuffersPerBucket => {
                        self.counters.drops_over_count += 1;
                        leased > rack.map_or(0, |rack| rack.tally.lane(block.lane).slots())
                    }
                };
                self.without_slot += u64::from(with_others);
                self.counters.live_buffers -= 1;
                self.budget.dropped(class);
                Released::Returned(block)
            }
        }
    }

    /// Whether a miss of `class` bytes has to give anything back.
    pub(crate) fn is_short_of(&self, class: u64) -> bool {
        self.budget.room(class) != Room::Evict(0)
    }

    /// Whether `class` bytes do not fit within the limit even when the depot gives back all it has.
    pub(crate) fn is_over_limit_with(&self, class: u64) -> bool {
        !matches!(self.budget.room(class), Room::Evict(_))
    }

    /// Whether a miss of `class` bytes may ask the device, and what it must give back first.
    pub(crate) fn permit(&mut self, class: u64) -> Permit {
        match self.budget.room(class) {
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
        let mut order: Vec<(u64, std::cmp::Reverse<u64>, Key)> = self
            .buckets
            .iter()
            .filter(|(_, bucket)| !bucket.idle.is_empty())
            .map(|(&key, bucket)| (bucket.last_request, std::cmp::Reverse(key.class), key))
            .collect();
        order.sort_unstable_by_key(|&(last_request, class, _)| (last_request, class));
        let (mut evicted, mut gone) = (Vec::new(), 0);
        for (_, _, key) in order {
            let Some(bucket) = self.buckets.get_mut(&key) else { continue };
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

    /// Stamps the buckets whose classes magazines handed out since this was last done: their hits did not come by here.
    fn note_hits(&mut self) {
        for tally in &self.tallies {
            for (_, lane) in tally.used_lanes() {
                let key = Key { kind: self.kind, class: lane.class() };
                if lane.was_hit() && let Some(bucket) = self.buckets.get_mut(&key) {
                    bucket.last_request = self.clock;
                }
            }
        }
    }

    /// Nothing is kept from now on.
    pub(crate) fn close(&mut self) -> Vec<Box<Block>> {
        self.closed = true;
        self.evict(u64::MAX)
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
        for (key, bucket) in &self.buckets {
            add(key.class, bucket.requests, bucket.idle.len() as u64);
        }
        for (&reported, &requests) in &self.forgotten {
            add(reported, requests, 0);
        }
        let mut in_magazines = InMagazines { requested: self.budget.lent.requested, ..InMagazines::default() };
        for tally in &self.tallies {
            for (_, lane) in tally.used_lanes() {
                let idle = lane.idle();
                add(lane.class(), Requests { hits: lane.hits(), misses: 0 }, idle);
                in_magazines.buffers += idle;
                in_magazines.bytes += idle * lane.class();
            }
            in_magazines.requested = in_magazines.requested.wrapping_add(tally.requested());
        }
        in_magazines.requested = positive(in_magazines.requested);
        PoolStats::new(&self.budget, &self.counters, &in_magazines, buckets.into_values().collect())
    }

    fn forget_empty_buckets(&mut self) {
        let (classes, forgotten) = (self.classes, &mut self.forgotten);
        self.buckets.retain(|key, bucket| {
            let is_empty = bucket.idle.is_empty() && bucket.leased == 0;
            if is_empty {
                let requests = forgotten.entry(classes.reported(key.class)).or_default();
                requests.hits += bucket.requests.hits;
                requests.misses += bucket.requests.misses;
            }
            !is_empty
        });
        // Buckets that are in use are not looked at again and again.
        self.forget_from = MAX_EMPTY_BUCKETS.max(2 * self.buckets.len());
    }
}

impl Bucket {
    fn new() -> Self {
        Self { idle: VecDeque::new(), leased: 0, last_request: 0, requests: Requests::default() }
    }

    /// The newest block that needs no wait; else the newest whose own stream it is, which waits for others that used it
    /// and keeps blocks with the streams that they belong to; else the oldest, whose work is likeliest to be done.
    fn take(&mut self, stream: StreamId) -> Option<Box<Block>> {
        let last = self.idle.len().checked_sub(1)?;
        let mut own = None;
        for (back, block) in self.idle.iter().rev().take(SAME_STREAM_SEARCH).enumerate() {
            if block.is_ready_on(stream) {
                own = Some(back);
                break;
            }
            if own.is_none() && block.stream_id() == stream {
                own = Some(back);
            }
        }
        self.idle.remove(own.map_or(0, |back| last - back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_forgotten_buckets_are_kept_and_undone() {
        let mut depot = Depot::new(MemoryKind::default(), SizeClasses::Exact(1), 0, Caps::default());
        let key = |class| Key { kind: MemoryKind::default(), class };
        let stream = StreamId::next();
        let rounds = 3 * MAX_EMPTY_BUCKETS as u64;
        for class in 1..=rounds {
            assert!(depot.take(key(class), class, stream, None).is_none());
        }
        assert!(depot.buckets.len() <= MAX_EMPTY_BUCKETS, "empty buckets are forgotten");
        assert_eq!(depot.stats().misses, rounds, "and what they counted is not");
        // A hit on a bucket that was forgotten since, and was asked for again, is undone where it was counted.
        depot.forgotten.entry(1).or_default().hits = 1;
        depot.undo_hit(key(1));
        assert_eq!((depot.stats().hits, depot.stats().misses), (0, rounds + 1));
    }
}
