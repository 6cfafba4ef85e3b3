//! Counters of one thread's magazines, which other threads read.
//!
//! Only the owning thread writes: one word at a time, a plain load and a plain store each, no atomic
//! read-modify-write. Readers hold the depot's lock, under which slot counts change. The computed number of
//! idle blocks in a bin (its slots less its room) therefore never exceeds the leased slots.

use crate::heap::magazine::class_table::BINS;
use crate::sync::AtomicU64;
use std::array;
use std::sync::atomic::Ordering::Relaxed;

/// Counters of one thread for one pool.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct ThreadCounters {
    /// Bytes requested by its hits, less those of returned buffers, since it last visited the depot.
    requested: HighWater,
    bins: [BinCounters; BINS],
    /// Hits of each bin at the last call of [`hit_classes`](Self::hit_classes), under the depot's lock.
    seen: [AtomicU64; BINS],
}

/// Counters of one bin. Fields used by each hit come first.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct BinCounters {
    /// Number of blocks that it can still take.
    room: AtomicU64,
    hits: AtomicU64,
    /// Number of blocks that it may hold. Changes under the depot's lock.
    slots: AtomicU64,
    /// Its class, bytes; 0 = unset. Changes under the depot's lock.
    class: AtomicU64,
}

impl ThreadCounters {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        let bin = |_| BinCounters { room: zero(), hits: zero(), slots: zero(), class: zero() };
        Self { requested: HighWater::new(), bins: array::from_fn(bin), seen: array::from_fn(|_| zero()) }
    }

    #[inline(always)]
    pub(crate) fn bin(&self, bin: u8) -> &BinCounters {
        &self.bins[usize::from(bin) % BINS]
    }

    /// Returns all bins that have a class, by number.
    pub(crate) fn used_bins(&self) -> impl Iterator<Item = (u8, &BinCounters)> {
        (0..=u8::MAX).zip(&self.bins).filter(|(_, bin)| bin.class() != 0)
    }

    /// Returns classes with hits since the last call. Under the depot's lock.
    pub(crate) fn hit_classes(&self) -> impl Iterator<Item = u64> {
        let was_hit = |(bin, seen): (&BinCounters, &AtomicU64)| {
            let (hits, before) = (bin.hits(), seen.load(Relaxed));
            seen.store(hits, Relaxed);
            (hits != before && bin.class() != 0).then(|| bin.class())
        };
        self.bins.iter().zip(&self.seen).filter_map(was_hit)
    }

    /// Bytes requested by hits, less returned ones, since the last report. Wraps.
    pub(crate) fn requested(&self) -> &HighWater {
        &self.requested
    }
}

impl BinCounters {
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

    pub(crate) fn has_free_slot(&self) -> bool {
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

    /// Sets the class of a bin without slots, and resets its hits. Under the depot's lock.
    pub(crate) fn set_class(&self, class: u64) {
        self.class.store(class, Relaxed);
        self.hits.store(0, Relaxed);
    }
}

/// A sum and its highest value, with one writing thread. Each change stores the distance to that value.
#[derive(Debug)]
pub(crate) struct HighWater {
    headroom: AtomicU64,
    peak: AtomicU64,
}

impl HighWater {
    pub(crate) fn new() -> Self {
        Self { headroom: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(crate) fn rise(&self, by: u64) {
        let (headroom, over) = self.headroom.load(Relaxed).overflowing_sub(by);
        self.headroom.store(headroom, Relaxed);
        if over {
            // `peak` first: a reader in between sees too large a sum, but never a wrapped one.
            add(&self.peak, headroom.wrapping_neg());
            self.headroom.store(0, Relaxed);
        }
    }

    #[inline(always)]
    pub(crate) fn fall(&self, by: u64) {
        add(&self.headroom, by);
    }

    /// Returns the sum; negative (wrapped) when it fell more than it rose.
    pub(crate) fn sum(&self) -> u64 {
        self.peak.load(Relaxed).wrapping_sub(self.headroom.load(Relaxed))
    }

    /// Whether the sum has not changed since the last [`take`](Self::take).
    #[inline]
    pub(crate) fn is_untouched(&self) -> bool {
        self.peak.load(Relaxed) | self.headroom.load(Relaxed) == 0
    }

    /// Restarts from 0. Returns the sum and its highest value.
    pub(crate) fn take(&self) -> (u64, u64) {
        let (sum, peak) = (self.sum(), self.peak.load(Relaxed));
        self.peak.store(0, Relaxed);
        self.headroom.store(0, Relaxed);
        (sum, peak)
    }
}

/// Adds to a word that only this thread writes.
#[inline(always)]
fn add(word: &AtomicU64, by: u64) {
    word.store(word.load(Relaxed).wrapping_add(by), Relaxed);
}
