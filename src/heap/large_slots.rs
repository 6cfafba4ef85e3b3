//! Slots beside the lock of a depot, in which threads that free and request one large class in turn keep one block.
//!
//! ```text
//!  slot of thread 0   slot of thread 1            depot (one lock)
//!  ┌──────────────┐   ┌──────────────┐            ┌───────────────────────┐
//!  │ 8 MiB   ▣    │   │ 16 MiB   ▢   │ ◀── grant  │ bucket of 8 MiB   ▣▣  │
//!  └──────────────┘   └──────────────┘ ──▶ empty  │   slots granted: 1    │
//!         ▲ ▼                ▲ ▼                  │ bucket of 16 MiB …    │
//!     its own lock       its own lock             └───────────────────────┘
//! ```
//!
//! A block in a slot stays counted as idle in its bucket, and so does the slot while a borrower has the block. So the
//! caps hold at every instant, and neither way of the block checks them.
//!
//! Unlike a magazine, a slot is within reach of every thread. [`LockedDepot::lock`] empties all slots, so whoever looks
//! for memory, releases it, changes a cap or reads figures finds no block in a slot. Only the paths that a depot serves
//! from what it has at hand, and that return a block within the caps, go [beside](LockedDepot::lock_beside_slots) other
//! threads' slots.
//!
//! A slot is granted when a thread frees, requests and frees a class in a row at the depot. It is empty afterwards as
//! soon as its thread comes to the depot again. Threads share a slot only if there are more threads than slots.
//!
//! Order of locks: the depot's, then a slot's.

use crate::heap::accounts::Delta;
use crate::heap::block::Block;
use crate::heap::core::{Depot, LARGE_SLOTS, LargeSlot, LargeSlots, LastUse, LockedDepot, SlotContent};
use crate::heap::magazine;
use crate::heap::magazine::counters::HighWater;
use crate::source::Key;
use crate::sync::{AtomicU64, Mutex};
use std::array;
use std::cell::Cell;
use std::mem;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::StreamId;

#[cfg(not(model))]
thread_local! {
    /// This thread's slot, in every pool.
    static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[cfg(not(model))]
static THREADS: crate::sync::GlobalU64 = crate::sync::GlobalU64::new(0);

#[cfg(model)]
loom::thread_local! {
    static SLOT: Cell<usize> = Cell::new(usize::MAX);
}

#[cfg(model)]
loom::lazy_static! {
    static ref THREADS: AtomicU64 = AtomicU64::new(0);
}

/// Returns the number of this thread's slots.
#[inline]
fn own_slot() -> usize {
    let number = |slot: &Cell<usize>| {
        if slot.get() == usize::MAX {
            slot.set(THREADS.fetch_add(1, Relaxed) as usize % LARGE_SLOTS);
        }
        slot.get()
    };
    SLOT.try_with(number).unwrap_or(0) % LARGE_SLOTS
}

impl LockedDepot {
    /// Takes the block from this thread's slot, if it is of `key` and needs no wait for `stream`.
    #[inline]
    pub(crate) fn take_from_slot(&self, key: Key, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let slot = own_slot();
        if !self.large_slots.is_granted(slot) {
            return None;
        }
        let mut content = self.large_slots.slots[slot].0.lock();
        if content.key != Some(key) {
            return None;
        }
        let mut block = content.block.take_if(|block| block.is_ready_on(stream))?;
        content.hits += 1;
        // With those of the magazines, so that peaks are those of both together.
        if !magazine::count_request(&block.pool, key.class, requested) {
            content.live.rise(key.class);
            content.requested.rise(requested);
        }
        block.requested = requested;
        Some(block)
    }

    /// Puts a returned block in this thread's slot. Returns it if the slot does not take it.
    #[inline]
    pub(crate) fn put_in_slot(&self, block: Box<Block>) -> Option<Box<Block>> {
        let slot = own_slot();
        // Where streams compete, a free may record a marker. Relaxed: as at the depot.
        if !self.large_slots.is_granted(slot) || block.pool.marks.load(Relaxed) || block.sole_user().is_none()
        {
            return Some(block);
        }
        let mut content = self.large_slots.slots[slot].0.lock();
        if content.key != Some(block.key) || content.block.is_some() {
            return Some(block);
        }
        if !magazine::count_return(&block.pool, block.key.class, block.requested) {
            content.live.fall(block.key.class);
            content.requested.fall(block.requested);
        }
        // There is nothing to drop.
        mem::forget(content.block.replace(block));
        None
    }

    /// Whether some slot may have a block.
    #[inline]
    pub(crate) fn has_slots(&self) -> bool {
        self.large_slots.granted.load(Relaxed) != 0
    }

    /// Empties this thread's slot.
    #[inline]
    pub(super) fn empty_own_slot(&self, depot: &mut Depot) {
        if self.has_slots() {
            self.empty_slot(depot, own_slot());
        }
    }

    /// Empties all slots. Returns whether there were any.
    #[inline]
    pub(crate) fn empty_slots(&self, depot: &mut Depot) -> bool {
        self.has_slots() && self.empty_all(depot)
    }

    #[cold]
    #[inline(never)]
    fn empty_all(&self, depot: &mut Depot) -> bool {
        (0..LARGE_SLOTS).for_each(|slot| self.empty_slot(depot, slot));
        true
    }

    /// Returns the block of a slot to its bucket, and what the slot counted to the accounts.
    fn empty_slot(&self, depot: &mut Depot, slot: usize) {
        if !self.large_slots.is_granted(slot) {
            return;
        }
        let mut content = self.large_slots.slots[slot].0.lock();
        let Some(key) = content.key.take() else { return };
        let (block, hits) = (content.block.take(), mem::take(&mut content.hits));
        let ((live, most_live), (requested, most)) = (content.live.take(), content.requested.take());
        drop(content);
        self.large_slots.set_granted(slot, false);
        depot.accounts.add(Delta { requested, live }, Delta { requested: most, live: most_live });
        depot.clock += u64::from(hits > 0);
        let bucket = depot.buckets.of(&key);
        bucket.leased -= 1;
        bucket.requests.hits += hits;
        if hits > 0 {
            bucket.last_request = depot.clock;
        }
        match block {
            Some(block) => {
                block.note_idle(depot.backend_state.ticks().now());
                bucket.idle.push_back(block);
            }
            None => {
                depot.counters.live_buffers += 1;
                depot.accounts.reused(key.class);
            }
        }
    }

    /// Notes that a large block was kept in its bucket. Grants the thread a slot for it, if the thread freed one of its
    /// class, requested one, and frees one again.
    #[inline]
    pub(crate) fn note_kept(&self, depot: &mut Depot, key: Key) {
        let slot = own_slot();
        let before = mem::replace(&mut depot.last_uses[slot], LastUse::Freed(key));
        if before == LastUse::Requested(key) {
            self.grant(depot, key, slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn grant(&self, depot: &mut Depot, key: Key, slot: usize) {
        // A sleeping request is to know of each block that is freed.
        if depot.is_guarded() || self.asleep.load(Relaxed) > 0 || self.large_slots.is_granted(slot) {
            return;
        }
        let bucket = depot.buckets.of(&key);
        if let Some(block) = bucket.idle.pop_back() {
            bucket.leased += 1;
            let mut content = self.large_slots.slots[slot].0.lock();
            (content.key, content.block) = (Some(key), Some(block));
            drop(content);
            self.large_slots.set_granted(slot, true);
        }
    }
}

impl Depot {
    /// Notes that a large class is requested.
    #[inline]
    pub(crate) fn note_large_request(&mut self, key: Key) {
        let last = &mut self.last_uses[own_slot()];
        *last = if *last == LastUse::Freed(key) { LastUse::Requested(key) } else { LastUse::Other };
    }
}

impl LargeSlots {
    pub(super) fn new() -> Self {
        Self { granted: AtomicU64::new(0), slots: array::from_fn(|_| LargeSlot::new()) }
    }

    #[inline]
    fn is_granted(&self, slot: usize) -> bool {
        // Relaxed: the slot's lock decides.
        self.granted.load(Relaxed) >> slot & 1 != 0
    }

    /// Under the depot's lock.
    fn set_granted(&self, slot: usize, is_granted: bool) {
        let others = self.granted.load(Relaxed) & !(1 << slot);
        self.granted.store(others | u64::from(is_granted) << slot, Relaxed);
    }
}

impl LargeSlot {
    fn new() -> Self {
        Self(Mutex::new(SlotContent {
            key: None,
            block: None,
            hits: 0,
            live: HighWater::new(),
            requested: HighWater::new(),
        }))
    }
}
