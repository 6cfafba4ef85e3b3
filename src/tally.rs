//! What one thread's magazines count, for everybody to read.
//!
//! Only the thread itself writes, and never more than one word at a time: a plain load and a plain store each, no atomic
//! read-modify-write. What a reader puts together from several words may be torn; it reads under the depot's lock, under
//! which leases change, and [clamps](LaneTally::idle) what it reads to them: so no reader ever sees more idle bytes than
//! were leased.

use crate::sync::AtomicU64;
use std::array;
use std::sync::atomic::Ordering::Relaxed;

/// Lanes of a magazine rack; a lane holds blocks of one class at a time. So many that a `u8` needs no check.
#[cfg(not(loom))]
pub(crate) const LANES: usize = 256;
/// A model has few classes, and each of its words is dear.
#[cfg(loom)]
pub(crate) const LANES: usize = 4;

/// The counts of one thread with one pool.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Bytes that its hits asked for, less those of the buffers it took back, since it last visited the depot. Wraps.
    requested: AtomicU64,
    lanes: [LaneTally; LANES],
}

/// The counts of one lane.
#[derive(Debug)]
pub(crate) struct LaneTally {
    /// The class it holds, bytes; 0 = none. Changes under the depot's lock.
    class: AtomicU64,
    /// Blocks it may hold. Changes under the depot's lock.
    slots: AtomicU64,
    /// Blocks handed out: hits.
    pops: AtomicU64,
    /// Blocks put in, less those moved out otherwise than by a hit.
    pushes: AtomicU64,
    /// The hits when [`was_hit`](Self::was_hit) was last asked, under the depot's lock.
    seen: AtomicU64,
}

impl Tally {
    pub(crate) fn new() -> Self {
        let lane = |_| LaneTally {
            class: AtomicU64::new(0),
            slots: AtomicU64::new(0),
            pops: AtomicU64::new(0),
            pushes: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        };
        Self { requested: AtomicU64::new(0), lanes: array::from_fn(lane) }
    }

    #[inline]
    pub(crate) fn lane(&self, lane: u8) -> &LaneTally {
        &self.lanes[usize::from(lane) % LANES]
    }

    /// All lanes that have a class, by number.
    pub(crate) fn used_lanes(&self) -> impl Iterator<Item = (u8, &LaneTally)> {
        (0..=u8::MAX).zip(&self.lanes).filter(|(_, lane)| lane.class() != 0)
    }

    /// Bytes that were lent, less those that came back, since the depot last [took](Self::take_requested) them. Wraps.
    pub(crate) fn requested(&self) -> u64 {
        self.requested.load(Relaxed)
    }

    /// Counts what a hit asked for. Answers the sum.
    #[inline]
    pub(crate) fn lent(&self, requested: u64) -> u64 {
        add(&self.requested, requested)
    }

    #[inline]
    pub(crate) fn returned(&self, requested: u64) {
        add(&self.requested, requested.wrapping_neg());
    }

    pub(crate) fn take_requested(&self) -> u64 {
        let requested = self.requested.load(Relaxed);
        self.requested.store(0, Relaxed);
        requested
    }
}

impl LaneTally {
    #[inline]
    pub(crate) fn class(&self) -> u64 {
        self.class.load(Relaxed)
    }

    #[inline]
    pub(crate) fn slots(&self) -> u64 {
        self.slots.load(Relaxed)
    }

    pub(crate) fn hits(&self) -> u64 {
        self.pops.load(Relaxed)
    }

    /// Blocks in it: exact for its own thread, within its slots for others.
    #[inline]
    pub(crate) fn idle(&self) -> u64 {
        let idle = self.pushes.load(Relaxed).wrapping_sub(self.pops.load(Relaxed)) as i64;
        idle.clamp(0, self.slots() as i64) as u64
    }

    /// Whether one more fits, for its own thread.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.pushes.load(Relaxed).wrapping_sub(self.pops.load(Relaxed)) < self.slots()
    }

    /// Counts a hit.
    #[inline]
    pub(crate) fn pop(&self) {
        add(&self.pops, 1);
    }

    #[inline]
    pub(crate) fn push(&self) {
        add(&self.pushes, 1);
    }

    /// Counts a block that left otherwise than by a hit.
    pub(crate) fn unpush(&self) {
        add(&self.pushes, 1u64.wrapping_neg());
    }

    /// Whether there were hits since this was last asked. Under the depot's lock.
    pub(crate) fn was_hit(&self) -> bool {
        let hits = self.hits();
        let before = self.seen.load(Relaxed);
        self.seen.store(hits, Relaxed);
        hits != before
    }

    pub(crate) fn pushes(&self) -> u64 {
        self.pushes.load(Relaxed)
    }

    /// Its slots from now on. Under the depot's lock.
    pub(crate) fn set_slots(&self, slots: u64) {
        self.slots.store(slots, Relaxed);
    }

    /// Gives it, empty and without slots, another class, and starts its counts anew. Under the depot's lock.
    pub(crate) fn set_class(&self, class: u64) {
        self.class.store(class, Relaxed);
        self.pops.store(0, Relaxed);
        self.seen.store(0, Relaxed);
        self.pushes.store(0, Relaxed);
    }
}

/// Adds to a word that this thread alone writes. Answers the sum.
#[inline]
fn add(word: &AtomicU64, by: u64) -> u64 {
    let sum = word.load(Relaxed).wrapping_add(by);
    word.store(sum, Relaxed);
    sum
}
