//! Counters of one thread's magazines, which other threads read.
//!
//! Only the thread itself writes: one word at a time, a plain load and a plain store each, no atomic
//! read-modify-write. Readers hold the depot's lock, under which slot counts change. The computed number of
//! idle blocks in a list (its slots less its room) therefore never exceeds the leased slots.

use crate::cache::magazine::class_table::LISTS;
use crate::sync::AtomicU64;
use std::array;
use std::sync::atomic::Ordering::Relaxed;

/// The counts of one thread with one pool.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Tally {
    /// Bytes that its hits asked for, less those of the buffers it took back, since it last visited the
    /// depot: the most they were, and by how much they are less now.
    requested: HighWater,
    /// One more than the bytes that the [last](crate::cache::magazine::hot) block was asked for, when it is
    /// out and not accounted for otherwise; else 0. And its list.
    hot: AtomicU64,
    hot_list: AtomicU64,
    lists: [ListTally; LISTS],
    /// Each list's hits when [`hit_classes`](Self::hit_classes) was last asked, under the depot's lock.
    seen: [AtomicU64; LISTS],
}

/// The counts of one list. In this order: what each hit touches is in front.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ListTally {
    /// How many more blocks it may take.
    room: AtomicU64,
    hits: AtomicU64,
    /// How many blocks it may hold. Changes under the depot's lock.
    slots: AtomicU64,
    /// The class it holds, bytes; 0 = none. Changes under the depot's lock.
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

    /// All lists that have a class, by number.
    pub(crate) fn used_lists(&self) -> impl Iterator<Item = (u8, &ListTally)> {
        (0..=u8::MAX).zip(&self.lists).filter(|(_, list)| list.class() != 0)
    }

    /// Notes that the hot block went out.
    #[inline(always)]
    pub(crate) fn lend_hot(&self, requested: u64) {
        self.hot.store(requested + 1, Relaxed);
    }

    /// Notes that the hot block came back, if that is what one is that was lent for so many bytes.
    #[inline(always)]
    pub(crate) fn hot_came_back(&self, requested: u64) -> bool {
        let is_hot = self.hot.load(Relaxed) == requested + 1;
        if is_hot {
            self.hot.store(0, Relaxed);
        }
        is_hot
    }

    /// The hot block's list and what was asked for, when it is out and not accounted for otherwise.
    pub(crate) fn hot_lent(&self) -> Option<(u8, u64)> {
        let requested = self.hot.load(Relaxed).checked_sub(1)?;
        Some((self.hot_list.load(Relaxed) as u8, requested))
    }

    pub(crate) fn set_hot_list(&self, list: u8) {
        self.hot_list.store(u64::from(list), Relaxed);
    }

    /// The hot block is accounted for otherwise.
    pub(crate) fn forget_hot(&self) {
        self.hot.store(0, Relaxed);
    }

    /// The classes that were hit since this was last asked. Under the depot's lock.
    pub(crate) fn hit_classes(&self) -> impl Iterator<Item = u64> {
        let was_hit = |(list, seen): (&ListTally, &AtomicU64)| {
            let (hits, before) = (list.hits(), seen.load(Relaxed));
            seen.store(hits, Relaxed);
            (hits != before && list.class() != 0).then(|| list.class())
        };
        self.lists.iter().zip(&self.seen).filter_map(was_hit)
    }

    /// Bytes that hits asked for, less those that came back, since the depot was last told. Wraps.
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

    /// Blocks in it.
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
        // For a moment without room this says too much: more room than slots is none idle.
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

    /// So many more slots, empty ones. Under the depot's lock.
    pub(crate) fn lease(&self, slots: u64) {
        add(&self.slots, slots);
        add(&self.room, slots);
    }

    /// So many empty slots less. Under the depot's lock.
    pub(crate) fn unlease(&self, slots: u64) {
        add(&self.room, slots.wrapping_neg());
        add(&self.slots, slots.wrapping_neg());
    }

    /// Gives it, without slots, another class, and starts its count anew. Under the depot's lock.
    pub(crate) fn set_class(&self, class: u64) {
        self.class.store(class, Relaxed);
        self.hits.store(0, Relaxed);
    }
}

/// A sum and the most it ever was. One thread writes.
///
/// What is written at each change is how far the sum is below its highest.
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
            // The highest first: a reader in between sees too much, and never a sum that wrapped.
            add(&self.most, below.wrapping_neg());
            self.below.store(0, Relaxed);
        }
    }

    /// Whether the sum may rise by so much without being higher than ever.
    #[inline(always)]
    pub(crate) fn has_room(&self, by: u64) -> bool {
        by <= self.below.load(Relaxed)
    }

    #[inline(always)]
    pub(crate) fn fall(&self, by: u64) {
        add(&self.below, by);
    }

    /// The sum; negative when more fell than rose.
    pub(crate) fn sum(&self) -> u64 {
        self.most.load(Relaxed).wrapping_sub(self.below.load(Relaxed))
    }

    /// Whether nothing rose or fell since it last started.
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.most.load(Relaxed) | self.below.load(Relaxed) == 0
    }

    /// Starts anew from 0. Answers what the sum was, and the most it was.
    pub(crate) fn take(&self) -> (u64, u64) {
        let (sum, most) = (self.sum(), self.most.load(Relaxed));
        self.most.store(0, Relaxed);
        self.below.store(0, Relaxed);
        (sum, most)
    }
}

/// Adds to a word that this thread alone writes. Answers the sum.
#[inline(always)]
fn add(word: &AtomicU64, by: u64) -> u64 {
    let sum = word.load(Relaxed).wrapping_add(by);
    word.store(sum, Relaxed);
    sum
}
