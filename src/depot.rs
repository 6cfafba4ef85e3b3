//! The shared store of idle blocks, by kind and class, with its accounts and counters. One lock holds it; nothing in
//! here calls the device, and no block is dropped in here.

use crate::budget::{Budget, CapReached, Caps, Room};
use crate::buffer::Block;
use crate::size_class::SizeClasses;
use crate::stats::{BucketStats, PoolStats, Rung};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, VecDeque};
use vrampool_backend::{Backend, MemoryKind, StreamId};

/// Under what idle memory is found again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) kind: MemoryKind,
    pub(crate) class: u64,
}

/// How many of a bucket's newest blocks are searched for one of the same stream before one of another is taken: the
/// search must not grow with the bucket.
const SAME_STREAM_SEARCH: usize = 16;

/// From this many buckets on, empty ones are forgotten (their counts are kept): exact classes make one a size.
const MAX_EMPTY_BUCKETS: usize = 4096;

#[derive(Debug)]
pub(crate) struct Depot<B: Backend> {
    classes: SizeClasses,
    /// From how many of the next classes an empty one borrows.
    borrow_classes: usize,
    buckets: FxHashMap<Key, Bucket<B>>,
    /// From how many buckets on empty ones are forgotten.
    forget_from: usize,
    /// Hits and misses of forgotten buckets, by reported class.
    forgotten: BTreeMap<u64, Requests>,
    pub(crate) budget: Budget,
    pub(crate) counters: Counters,
    /// Ticks with every request; a bucket's stamp tells when it was last asked for.
    clock: u64,
    /// No pool handle is left: what comes back is not kept.
    closed: bool,
}

#[derive(Debug)]
struct Bucket<B: Backend> {
    /// Oldest release first.
    idle: VecDeque<Box<Block<B>>>,
    last_request: u64,
    requests: Requests,
}

#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    hits: u64,
    misses: u64,
}

/// Counts since the pool was made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
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

/// What became of a released block.
#[derive(Debug)]
#[must_use]
pub(crate) enum Released<B: Backend> {
    Cached,
    /// To be dropped outside the lock, and then reported with [`Depot::freed`].
    Returned(Box<Block<B>>),
}

/// What a miss may do.
#[derive(Debug)]
#[must_use]
pub(crate) enum Permit<B: Backend> {
    /// Drop these outside the lock, report `surplus` bytes as freed, then ask the device.
    Granted { evicted: Vec<Box<Block<B>>>, surplus: u64 },
    /// Wait until memory was freed, then ask again.
    Wait,
    /// The limit does not allow it.
    Refused,
}

impl<B: Backend> Depot<B> {
    pub(crate) fn new(classes: SizeClasses, borrow_classes: usize, caps: Caps) -> Self {
        Self {
            classes,
            borrow_classes,
            buckets: FxHashMap::default(),
            forget_from: MAX_EMPTY_BUCKETS,
            forgotten: BTreeMap::new(),
            budget: Budget::new(caps),
            counters: Counters::default(),
            clock: 0,
            closed: false,
        }
    }

    /// An idle block for `key`, best one of `stream`; counts the hit or the miss.
    pub(crate) fn take(&mut self, key: Key, requested: u64, stream: StreamId) -> Option<Box<Block<B>>> {
        self.clock += 1;
        let own = match self.buckets.get_mut(&key) {
            Some(bucket) => {
                bucket.last_request = self.clock;
                let own = bucket.take(stream);
                bucket.requests.hits += u64::from(own.is_some());
                own
            }
            None => {
                self.forget_empty_buckets();
                self.buckets.insert(key, Bucket { last_request: self.clock, ..Bucket::new() });
                None
            }
        };
        let mut taken = own;
        if taken.is_none() {
            taken = self.borrow(key, stream);
            let requests = self.requests(key);
            *(if taken.is_some() { &mut requests.hits } else { &mut requests.misses }) += 1;
        }
        if let Some(block) = &mut taken {
            block.requested = requested;
            self.counters.live_buffers += 1;
            self.budget.reused(block.key.class, requested);
        }
        taken
    }

    /// An idle block of one of the next larger classes.
    fn borrow(&mut self, key: Key, stream: StreamId) -> Option<Box<Block<B>>> {
        let lenders = self.classes.lenders(key.class).take(self.borrow_classes);
        lenders.map(|class| Key { class, ..key }).find_map(|key| self.buckets.get_mut(&key)?.take(stream))
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

    fn requests(&mut self, key: Key) -> &mut Requests {
        match self.buckets.get_mut(&key) {
            Some(bucket) => &mut bucket.requests,
            None => self.forgotten.entry(self.classes.reported(key.class)).or_default(),
        }
    }

    /// A buffer came back.
    pub(crate) fn put(&mut self, block: Box<Block<B>>) -> Released<B> {
        let (class, requested) = (block.key.class, block.requested);
        self.counters.live_buffers -= 1;
        if self.closed {
            self.budget.dropped(class, requested);
            return Released::Returned(block);
        }
        let bucket = self.buckets.entry(block.key).or_insert_with(Bucket::new);
        match self.budget.may_cache(class, bucket.idle.len()) {
            Ok(()) => {
                self.budget.cached(class, requested);
                bucket.idle.push_back(block);
                Released::Cached
            }
            Err(cap) => {
                match cap {
                    CapReached::CachedBytes => self.counters.drops_over_bytes += 1,
                    CapReached::BuffersPerBucket => self.counters.drops_over_count += 1,
                }
                self.budget.dropped(class, requested);
                Released::Returned(block)
            }
        }
    }

    /// Whether a miss of `class` bytes may ask the device, and what it must give back first.
    pub(crate) fn permit(&mut self, class: u64) -> Permit<B> {
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
    pub(crate) fn evict(&mut self, bytes: u64) -> Vec<Box<Block<B>>> {
        if bytes == 0 {
            return Vec::new();
        }
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

    /// Nothing is kept from now on.
    pub(crate) fn close(&mut self) -> Vec<Box<Block<B>>> {
        self.closed = true;
        self.evict(u64::MAX)
    }

    pub(crate) fn count(&mut self, rung: Rung) {
        self.counters.rungs[rung as usize] += 1;
    }

    /// What a pool can tell of itself, all of one moment.
    pub(crate) fn stats(&self) -> PoolStats {
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
        PoolStats::new(&self.budget, &self.counters, buckets.into_values().collect())
    }

    fn forget_empty_buckets(&mut self) {
        if self.buckets.len() < self.forget_from {
            return;
        }
        let (classes, forgotten) = (self.classes, &mut self.forgotten);
        self.buckets.retain(|key, bucket| {
            if bucket.idle.is_empty() {
                let requests = forgotten.entry(classes.reported(key.class)).or_default();
                requests.hits += bucket.requests.hits;
                requests.misses += bucket.requests.misses;
            }
            !bucket.idle.is_empty()
        });
        // Buckets that are in use are not looked at again and again.
        self.forget_from = MAX_EMPTY_BUCKETS.max(2 * self.buckets.len());
    }
}

impl<B: Backend> Bucket<B> {
    fn new() -> Self {
        Self { idle: VecDeque::new(), last_request: 0, requests: Requests::default() }
    }

    /// The newest block that needs no wait; else the newest whose own stream it is, which waits for others that used it
    /// and keeps blocks with the streams that they belong to; else the oldest, whose work is likeliest to be done.
    fn take(&mut self, stream: StreamId) -> Option<Box<Block<B>>> {
        let last = self.idle.len().checked_sub(1)?;
        let mut own = None;
        for (back, block) in self.idle.iter_mut().rev().take(SAME_STREAM_SEARCH).enumerate() {
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

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use vrampool_host::HostDevice;

    #[test]
    fn counts_of_forgotten_buckets_are_kept_and_undone() {
        let mut depot: Depot<HostDevice> = Depot::new(SizeClasses::Exact(1), 0, Caps::default());
        let key = |class| Key { kind: MemoryKind::default(), class };
        let stream = StreamId::next();
        let rounds = 3 * MAX_EMPTY_BUCKETS as u64;
        for class in 1..=rounds {
            assert!(depot.take(key(class), class, stream).is_none());
        }
        assert!(depot.buckets.len() <= MAX_EMPTY_BUCKETS, "empty buckets are forgotten");
        assert_eq!(depot.stats().misses, rounds, "and what they counted is not");
        // A hit on a bucket that was forgotten since, and was asked for again, is undone where it was counted.
        depot.forgotten.entry(1).or_default().hits = 1;
        depot.undo_hit(key(1));
        assert_eq!((depot.stats().hits, depot.stats().misses), (0, rounds + 1));
    }
}
