//! Counters of one thread's magazines, which other threads read.
//!
//! Only the owning thread writes: one word at a time, a plain load and a plain store each, no atomic
//! read-modify-write. Readers hold the depot's lock, under which slot counts change. The computed number of
//! idle blocks in a list (its slots less its room) therefore never exceeds the leased slots.

use crate::cache::magazine::class_table::LISTS;
use crate::sync::AtomicU64;
use std::array;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of one thread for one pool.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Tally {
    /// Bytes requested by its hits, less those of returned buffers, since it last visited the depot.
    requested: HighWater,
    /// Requested bytes of the [hot](crate::cache::magazine::hot) block plus one while it is out and not
    /// accounted for; else 0. Then its list.
    hot: AtomicU64,
    hot_list: AtomicU64,
    lists: [ListTally; LISTS],
    /// Hits of each list at the last call of [`hit_classes`](Self::hit_classes), under the depot's lock.
    seen: [AtomicU64; LISTS],
}

/// Counters of one list. Fields used by each hit come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ListTally {
    /// Number of blocks that it can still take.
    room: AtomicU64,
    hits: AtomicU64,
    /// Number of blocks that it may hold. Changes under the depot's lock.
    slots: AtomicU64,
    /// Its class, bytes; 0 = unset. Changes under the depot's lock.
    class: AtomicU64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let list = |_| ListTally { room: zero(), hits: zero(), slots: zero(), class: zero() };
        Self {
            requested: HighWater::new(),
            hot: zero(),
            hot_list: zero(),
            lists: array::from_fn(list),
            seen: array::from_fn(|_| zero()),
        }
    }

    #[inline(always)]
    pub(crate) fn list(&self, list: u8) -> &ListTally {
        &self.lists[usize::from(list) % LISTS]
    }

    /// Returns all lists that have a class, by number.
    pub(crate) fn used_lists(&self) -> impl Iterator<Item = (u8, &ListTally)> {
        (0..=u8::MAX).zip(&self.lists).filter(|(_, list)| list.class() != 0)
    }

    /// Notes that the hot block is out.
    #[inline(always)]
    pub(crate) fn lend_hot(&self, requested: u64) {
        self.hot.store(requested + 1, Relaxed);
    }

    /// Notes the return of the hot block, if a block lent for `requested` bytes is the hot one.
    #[inline(always)]
    pub(crate) fn hot_came_back(&self, requested: u64) -> bool {
        let is_hot = self.hot.load(Relaxed) == requested + 1;
        if is_hot {
            self.hot.store(0, Relaxed);
        }
        is_hot
    }

    /// Returns the hot block's list and requested bytes, while it is out and not accounted for.
    pub(crate) fn hot_lent(&self) -> Option<(u8, u64)> {
        let requested = self.hot.load(Relaxed).checked_sub(1)?;
        Some((self.hot_list.load(Relaxed) as u8, requested))
    }

    pub(crate) fn set_hot_list(&self, list: u8) {
        self.hot_list.store(u64::from(list), Relaxed);
    }

    /// Notes that the hot block has been accounted for.
    pub(crate) fn forget_hot(&self) {
        self.hot.store(0, Relaxed);
    }

    /// Returns classes with hits since the last call. Under the depot's lock.
    pub(crate) fn hit_classes(&self) -> impl Iterator<Item = u64> {
        let was_hit = |(list, seen): (&ListTally, &AtomicU64)| {
            let (hits, before) = (list.hits(), seen.load(Relaxed));
            seen.store(hits, Relaxed);
            (hits != before && list.class() != 0).then(|| list.class())
        };
        self.lists.iter().zip(&self.seen).filter_map(was_hit)
    }

    /// Bytes requested by hits, less returned ones, since the last settlement. Wraps.
    pub(crate) fn requested(&self) -> &HighWater {
        &self.requested
    }
}

impl ListTally {
    pub(crate) fn class(&self) -> u64 {
        self.class.load(Relaxed)
    }

    pub(crate) fn slots(&self) -> u64 {
        self.slots.load(Relaxed)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Relaxed)
    }

    pub(crate) fn idle(&self) -> u64 {
        self.slots().saturating_sub(self.room.load(Relaxed))
    }

    pub(crate) fn has_room(&self) -> bool {
        self.room.load(Relaxed) > 0
    }

    /// Counts a block in, if there is room for it.
    #[inline(always)]
    pub(crate) fn push(&self) -> bool {
        let (left, none) = self.room.load(Relaxed).overflowing_sub(1);
        // Without room this stores too large a value for a moment. Readers then compute zero idle blocks.
        self.room.store(left, Relaxed);
        if none {
            self.room.store(0, Relaxed);
        }
        !none
    }

    /// Counts a block out.
    #[inline(always)]
    pub(crate) fn pop(&self) {
        add(&self.room, 1);
    }

    #[inline(always)]
    pub(crate) fn hit(&self) {
        add(&self.hits, 1);
    }

    /// Adds empty slots. Under the depot's lock.
    pub(crate) fn lease(&self, slots: u64) {
        add(&self.slots, slots);
        add(&self.room, slots);
    }

    /// Removes empty slots. Under the depot's lock.
    pub(crate) fn unlease(&self, slots: u64) {
        add(&self.room, slots.wrapping_neg());
        add(&self.slots, slots.wrapping_neg());
    }

    /// Sets the class of a list without slots, and resets its hits. Under the depot's lock.
    pub(crate) fn set_class(&self, class: u64) {
        self.class.store(class, Relaxed);
        self.hits.store(0, Relaxed);
    }
}

/// A sum and its highest value, with one writing thread. Each change stores the distance below that value.
#[derive(Debug)]
pub(crate) struct HighWater {
    below: AtomicU64,
    most: AtomicU64,
}

impl HighWater {
    pub(crate) fn new() -> Self {
        Self { below: AtomicU64::new(0), most: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn rise(&self, by: u64) {
        let (below, over) = self.below.load(Relaxed).overflowing_sub(by);
        self.below.store(below, Relaxed);
        if over {
            // `most` first: a reader in between sees too large a sum, but never a wrapped one.
            add(&self.most, below.wrapping_neg());
            self.below.store(0, Relaxed);
        }
    }

    /// Whether the sum may rise by `by` without a new highest value.
    #[inline(always)]
    pub(crate) fn has_room(&self, by: u64) -> bool {
        by <= self.below.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn fall(&self, by: u64) {
        add(&self.below, by);
    }

    /// Returns the sum; negative (wrapped) when it fell more than it rose.
    pub(crate) fn sum(&self) -> u64 {
        self.most.load(Relaxed).wrapping_sub(self.below.load(Relaxed))
    }

    /// Whether the sum has not changed since the last [`take`](Self::take).
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.most.load(Relaxed) | self.below.load(Relaxed) == 0
    }

    /// Restarts from 0. Returns the sum and its highest value.
    pub(crate) fn take(&self) -> (u64, u64) {
        let (sum, most) = (self.sum(), self.most.load(Relaxed));
        self.most.store(0, Relaxed);
        self.below.store(0, Relaxed);
        (sum, most)
    }
}

/// Adds to a word that only this thread writes. Returns the sum.
#[inline(always)]
fn add(word: &AtomicU64, by: u64) -> u64 {
    let sum = word.load(Relaxed).wrapping_add(by);
    word.store(sum, Relaxed);
    sum
}
