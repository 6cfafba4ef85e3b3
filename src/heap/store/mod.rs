//! Idle blocks, the lock around them, and where their memory comes from and goes to.
//!
//! * `depot`: idle blocks by class, in the buckets that are here; `depot_lock`: the lock;
//! * `release`: the free path; `keep`: whether the caps let a block stay idle; `reclaim`: returns idle blocks to the
//!   source;
//! * `supply`: the source of misses.

mod depot;
mod depot_lock;
mod keep;
mod reclaim;
mod release;
mod supply;

pub(crate) use {
    depot::Accept,
    keep::Borrowed,
    release::{is_releasing, without_waits},
    supply::{SourceMemory, Supply},
};

use crate::heap::magazine::class_table;
use crate::heap::size_class::SizeClasses;
use crate::heap::{Block, Bucket, Buckets, Requests};
use crate::source::Key;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::{BTreeMap, VecDeque};
use std::mem;
use vrampool_backend::{MemoryKind, StreamId};

/// Keys of the blocks that may serve a request, smaller classes first.
type Keys = SmallVec<[Key; 3]>;

/// Number of a bucket's newest blocks that are searched for one of the same stream. The bound keeps the
/// search independent of the bucket's size.
pub(crate) const SAME_STREAM_SEARCH: usize = 16;

/// Number of buckets from which empty ones are forgotten: exact classes make one bucket per size.
const MAX_EMPTY_BUCKETS: usize = 4096;

/// The result of a search for an idle block.
#[derive(Debug)]
pub(crate) enum Taken {
    Idle(Box<Block>),
    /// Blocks are idle that the request does not accept.
    Busy,
    /// No block is idle.
    Nothing,
}

impl Buckets {
    /// `borrow_classes`: how many larger classes may serve a request.
    pub(crate) fn new(kind: MemoryKind, classes: SizeClasses, borrow_classes: u32) -> Self {
        // Others borrow from none, which is then known without a look at the classes.
        let borrow_classes =
            if matches!(classes, SizeClasses::Geometric { .. }) { borrow_classes } else { 0 };
        Self {
            kind,
            classes,
            borrow_classes,
            clock: 0,
            list: Vec::new(),
            places: FxHashMap::default(),
            guesses: Box::new([0; 256]),
            forget_from: MAX_EMPTY_BUCKETS,
            forgotten: BTreeMap::new(),
        }
    }

    /// Returns the key of `class` in magazines.
    pub(crate) fn key_of(&self, class: u64) -> Key {
        Key { kind: self.kind, class }
    }

    /// Returns the keys of the classes that a request of `key` borrows from, smaller ones first.
    fn larger_keys(&self, key: Key) -> impl Iterator<Item = Key> + use<> {
        let larger = self.classes.larger_classes(key.class).take(self.borrow_classes as usize);
        larger.map(move |class| Key { class, ..key })
    }

    /// Notes a request of `key`. Returns its bucket.
    #[inline]
    pub(crate) fn requested(&mut self, key: &Key) -> &mut Bucket {
        self.clock += 1;
        let clock = self.clock;
        let bucket = self.of(key);
        bucket.last_request = clock;
        bucket
    }

    /// Takes the newest idle block of `key` that needs no wait for `stream`, and counts the hit.
    #[inline(always)]
    fn take_newest_ready(&mut self, key: &Key, stream: StreamId) -> Taken {
        let clock = self.clock + 1;
        let Some(bucket) = self.find(key) else { return Taken::Nothing };
        let Some(block) = bucket.take_newest_ready(stream) else {
            return if bucket.idle.is_empty() { Taken::Nothing } else { Taken::Busy };
        };
        bucket.last_request = clock;
        bucket.requests.hits += 1;
        self.clock = clock;
        Taken::Idle(block)
    }

    /// Returns the bucket for `key`, adding it if it is missing.
    #[inline]
    pub(crate) fn of(&mut self, key: &Key) -> &mut Bucket {
        let place = match self.place(key) {
            Some(place) => place,
            None => self.add(*key),
        };
        &mut self.list[place]
    }

    #[inline]
    pub(crate) fn find(&mut self, key: &Key) -> Option<&mut Bucket> {
        let place = self.place(key)?;
        self.list.get_mut(place)
    }

    /// Whether larger classes serve requests of smaller ones.
    #[inline]
    fn borrow(&self) -> bool {
        self.borrow_classes > 0
    }

    /// Whether the bucket of `key` has an idle block.
    #[inline]
    pub(crate) fn has_idle(&mut self, key: &Key) -> bool {
        self.find(key).is_some_and(|bucket| !bucket.idle.is_empty())
    }

    #[inline(always)]
    fn place(&mut self, key: &Key) -> Option<usize> {
        let guess = self.guesses[usize::from(class_table::number(key.class))];
        match self.list.get(guess) {
            Some(bucket) if bucket.key == *key => Some(guess),
            _ => self.look_up(*key),
        }
    }

    #[cold]
    fn look_up(&mut self, key: Key) -> Option<usize> {
        let place = *self.places.get(&key)?;
        self.guesses[usize::from(class_table::number(key.class))] = place;
        Some(place)
    }

    #[cold]
    fn add(&mut self, key: Key) -> usize {
        if self.list.len() >= self.forget_from {
            self.forget_empty();
        }
        let (idle, requests) = (VecDeque::new(), Requests::default());
        self.list.push(Bucket { key, idle, leased: 0, has_overflowed: false, last_request: 0, requests });
        self.places.insert(key, self.list.len() - 1);
        self.list.len() - 1
    }

    /// Returns the counts of a class, in its bucket or, for a forgotten bucket, in `forgotten`.
    pub(crate) fn requests(&mut self, key: Key) -> &mut Requests {
        match self.place(&key) {
            Some(place) => &mut self.list[place].requests,
            None => self.forgotten.entry(self.classes.reported(key.class)).or_default(),
        }
    }

    /// Returns the keys of filled buckets: least recently requested first, then larger classes first.
    fn stalest(&self) -> Vec<Key> {
        let mut filled: Vec<&Bucket> = self.list.iter().filter(|bucket| !bucket.idle.is_empty()).collect();
        filled.sort_unstable_by_key(|bucket| (bucket.last_request, std::cmp::Reverse(bucket.key.class)));
        filled.into_iter().map(|bucket| bucket.key).collect()
    }

    /// Takes all idle blocks of one kind that need no wait for `stream`.
    fn take_all_ready(&mut self, kind: MemoryKind, stream: StreamId) -> Vec<Box<Block>> {
        let mut ready = Vec::new();
        for bucket in self.list.iter_mut().filter(|bucket| bucket.key.kind == kind) {
            for block in mem::take(&mut bucket.idle) {
                match block.is_ready_on(stream) {
                    true => ready.push(block),
                    false => bucket.idle.push_back(block),
                }
            }
        }
        ready
    }

    /// Returns the number of idle blocks in each filled bucket.
    pub(crate) fn idle_counts(&self) -> Vec<(Key, usize)> {
        let filled = self.list.iter().filter(|bucket| !bucket.idle.is_empty());
        filled.map(|bucket| (bucket.key, bucket.idle.len())).collect()
    }

    /// Returns class, counts and idle blocks of all buckets, present or forgotten. A class may occur twice.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u64, Requests, u64)> {
        let present =
            self.list.iter().map(|bucket| (bucket.key.class, bucket.requests, bucket.idle.len() as u64));
        present.chain(self.forgotten.iter().map(|(&class, &requests)| (class, requests, 0)))
    }

    fn forget_empty(&mut self) {
        let (classes, forgotten) = (&self.classes, &mut self.forgotten);
        self.list.retain(|bucket| {
            let is_empty = bucket.idle.is_empty() && bucket.leased == 0;
            if is_empty {
                let requests = forgotten.entry(classes.reported(bucket.key.class)).or_default();
                requests.hits += bucket.requests.hits;
                requests.misses += bucket.requests.misses;
            }
            !is_empty
        });
        self.places = (0..).zip(&self.list).map(|(place, bucket)| (bucket.key, place)).collect();
        // Doubling avoids scanning buckets that are in use again and again.
        self.forget_from = MAX_EMPTY_BUCKETS.max(2 * self.list.len());
    }
}

impl Bucket {
    /// Returns the number of idle blocks and slots.
    pub(crate) fn kept(&self) -> u64 {
        self.idle.len() as u64 + self.leased
    }

    /// Takes the newest block that needs no wait for `stream`.
    #[inline]
    fn take_newest_ready(&mut self, stream: StreamId) -> Option<Box<Block>> {
        if self.idle.back()?.is_ready_on(stream) {
            return self.idle.pop_back();
        }
        self.take_ready_below(stream)
    }

    #[cold]
    #[inline(never)]
    fn take_ready_below(&mut self, stream: StreamId) -> Option<Box<Block>> {
        let newest = self.idle.iter().enumerate().rev().take(SAME_STREAM_SEARCH);
        let (place, _) = newest.skip(1).find(|(_, block)| block.is_ready_on(stream)).unzip();
        self.idle.remove(place?)
    }

    /// Takes the oldest block for which `is_such` holds, because its work is likeliest to be complete;
    /// preferably one last owned by `stream`, which leaves other streams theirs.
    fn take_oldest(&mut self, stream: StreamId, is_such: impl Fn(&Block) -> bool) -> Option<Box<Block>> {
        let mut oldest = self.idle.iter().take(SAME_STREAM_SEARCH);
        let own = oldest.clone().position(|block| block.last_use.writer() == stream && is_such(block));
        let place = own.or_else(|| oldest.position(|block| is_such(block)))?;
        self.idle.remove(place)
    }

    /// Takes a block that needs a wait: the newest last owned by `stream`, which keeps blocks with their
    /// streams; else the oldest.
    fn take_any(&mut self, stream: StreamId) -> Option<Box<Block>> {
        let mut newest = self.idle.iter().enumerate().rev().take(SAME_STREAM_SEARCH);
        let place = newest.find(|(_, block)| block.last_use.writer() == stream).map_or(0, |(place, _)| place);
        self.idle.remove(place)
    }

    /// Takes the newest blocks, up to `most`, as long as they need no wait for `stream`; oldest first.
    fn take_ready(&mut self, stream: StreamId, most: u64) -> Vec<Box<Block>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let ready = self.idle.iter().rev().take(most).take_while(|block| block.is_ready_on(stream)).count();
        self.idle.drain(self.idle.len() - ready..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_forgotten_buckets_are_kept() {
        let mut buckets = Buckets::new(MemoryKind::default(), SizeClasses::Exact(1), 0);
        let key = |class| Key { kind: MemoryKind::default(), class };
        let rounds = 3 * MAX_EMPTY_BUCKETS as u64;
        for class in 1..=rounds {
            buckets.of(&key(class)).requests.misses += 1;
            assert_eq!(buckets.find(&key(class)).map(|bucket| bucket.key), Some(key(class)));
        }
        assert!(buckets.list.len() <= MAX_EMPTY_BUCKETS, "empty buckets are forgotten");
        let sum = |buckets: &Buckets| {
            buckets
                .counts()
                .fold((0, 0), |sum, (_, requests, _)| (sum.0 + requests.hits, sum.1 + requests.misses))
        };
        assert_eq!(sum(&buckets), (0, rounds), "and what they counted is not");
    }
}
