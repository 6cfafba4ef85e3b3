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
//! A slot is granted when a thread frees, requests and frees one class in a row at the depot. The thread then has that
//! class without the depot's lock, until its next visit of the depot empties the slot. So threads with other patterns
//! have no slots. Threads share a slot only if there are more threads than slots.
//!
//! A granted slot counts as an idle block of its bucket, also while a borrower has the block. So the caps hold at every
//! instant, and neither way of the block checks them.
//!
//! Unlike a magazine, a slot is within reach of every thread. [`LockedDepot::lock`] empties all slots, so whoever
//! allocates or releases memory, changes a cap or reads figures finds no block in a slot. Only paths that the depot
//! serves from its buckets, or that return a block within the caps, go [beside](LockedDepot::lock_beside_slots) other
//! threads' slots. No slot is granted while a request sleeps, which each free may have to wake, nor where pools share
//! caps.
//!
//! Order of locks: the depot's, then a slot's.

use crate::heap::accounts::Delta;
use crate::heap::block::Block;
use crate::heap::core::{Depot, LARGE_SLOTS, LargeSlot, LargeSlots, LockedDepot, SlotContent};
use crate::heap::magazine;
use crate::heap::magazine::counters::HighWater;
use crate::sync::Mutex;
use std::array;
use std::cell::Cell;
use std::mem;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::StreamId;

/// Marks a class that was freed, and then requested.
const REQUESTED: u64 = 1 << 63;

/// A thread's part of all pools.
struct Own {
    /// The number of its slots.
    slot: Cell<usize>,
    /// The large class that it freed last at a depot, marked once it was requested again; 0 after another request.
    last: Cell<u64>,
}

impl Own {
    const fn new() -> Self {
        Self { slot: Cell::new(usize::MAX), last: Cell::new(0) }
    }
}

#[cfg(not(model))]
thread_local! {
    static OWN: Own = const { Own::new() };
}

#[cfg(not(model))]
static THREADS: crate::sync::GlobalU64 = crate::sync::GlobalU64::new(0);

#[cfg(model)]
loom::thread_local! {
    static OWN: Own = Own::new();
}

#[cfg(model)]
loom::lazy_static! {
    static ref THREADS: crate::sync::AtomicU64 = crate::sync::AtomicU64::new(0);
}

/// Returns the number of this thread's slots.
#[inline]
fn own_slot() -> usize {
    let number = |own: &Own| {
        if own.slot.get() == usize::MAX {
            own.slot.set(THREADS.fetch_add(1, Relaxed) as usize % LARGE_SLOTS);
        }
        own.slot.get()
    };
    OWN.try_with(number).unwrap_or(0) % LARGE_SLOTS
}

/// Notes that this thread requests a large class at a depot.
#[inline]
pub(crate) fn note_request(class: u64) {
    let _ = OWN.try_with(|own| own.last.set(if own.last.get() == class { class | REQUESTED } else { 0 }));
}

impl LockedDepot {
    /// Takes the block from this thread's slot, if it is of `class` and needs no wait for `stream`.
    #[inline(always)]
    pub(crate) fn take_from_slot(&self, class: u64, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        if self.has_slots() { self.take_from_own(class, requested, stream) } else { None }
    }

    #[inline(never)]
    fn take_from_own(&self, class: u64, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let slot = own_slot();
        if !self.large_slots.is_granted(slot) {
            return None;
        }
        let mut content = self.large_slots.slots[slot].0.lock();
        if content.class != class {
            return None;
        }
        let mut block = content.block.take_if(|block| block.is_ready_on(stream))?;
        content.hits += 1;
        // With those of the magazines, so that peaks are those of both together.
        if !magazine::count_request(&block.pool, class, requested) {
            content.live.rise(class);
            content.requested.rise(requested);
        }
        block.requested = requested;
        Some(block)
    }

    /// Puts a returned block in this thread's slot. Returns it if the slot does not take it.
    #[inline(always)]
    pub(crate) fn put_in_slot(&self, block: Box<Block>) -> Option<Box<Block>> {
        if self.has_slots() { self.put_in_own(block) } else { Some(block) }
    }

    #[inline(never)]
    fn put_in_own(&self, block: Box<Block>) -> Option<Box<Block>> {
        let slot = own_slot();
        // Where streams compete, a free may record a marker. Relaxed: as at the depot.
        if !self.large_slots.is_granted(slot)
            || block.pool.marks.load(Relaxed)
            || block.last_use.sole_user().is_none()
        {
            return Some(block);
        }
        let mut content = self.large_slots.slots[slot].0.lock();
        let is_taken = content.class == block.key.class && block.key.kind == block.pool.kind;
        if !is_taken || content.block.is_some() {
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
            self.empty_own(depot);
        }
    }

    #[cold]
    #[inline(never)]
    fn empty_own(&self, depot: &mut Depot) {
        self.empty_slot(depot, own_slot());
    }

    /// Empties all slots.
    #[inline]
    pub(crate) fn empty_slots(&self, depot: &mut Depot) {
        if self.has_slots() {
            self.empty_all(depot);
        }
    }

    #[cold]
    #[inline(never)]
    fn empty_all(&self, depot: &mut Depot) {
        (0..LARGE_SLOTS).for_each(|slot| self.empty_slot(depot, slot));
    }

    /// Returns the block of a slot to its bucket, and what the slot counted to the accounts.
    fn empty_slot(&self, depot: &mut Depot, slot: usize) {
        if !self.large_slots.is_granted(slot) {
            return;
        }
        let mut content = self.large_slots.slots[slot].0.lock();
        let key = depot.buckets.key_of(mem::take(&mut content.class));
        let (block, hits) = (content.block.take(), mem::take(&mut content.hits));
        let ((live, most_live), (requested, most)) = (content.live.take(), content.requested.take());
        drop(content);
        self.large_slots.set_granted(slot, false);
        depot.accounts.add(Delta { requested, live }, Delta { requested: most, live: most_live });
        let bucket = if hits > 0 { depot.buckets.requested(&key) } else { depot.buckets.of(&key) };
        bucket.leased -= 1;
        bucket.requests.hits += hits;
        match block {
            Some(block) => {
                block.last_use.note_idle(depot.backend_state.ticks().now());
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
    pub(crate) fn note_kept(&self, depot: &mut Depot, class: u64) {
        if OWN.try_with(|own| own.last.replace(class)).ok() == Some(class | REQUESTED) {
            self.grant(depot, class, own_slot());
        }
    }

    #[cold]
    #[inline(never)]
    fn grant(&self, depot: &mut Depot, class: u64, slot: usize) {
        // A pool that shares caps counts as one with a sleeping request.
        if depot.is_guarded() || self.asleep.load(Relaxed) > 0 || self.large_slots.is_granted(slot) {
            return;
        }
        // If the block is of another kind, there may be none.
        let key = depot.buckets.key_of(class);
        let bucket = depot.buckets.of(&key);
        if let Some(block) = bucket.idle.pop_back() {
            bucket.leased += 1;
            let mut content = self.large_slots.slots[slot].0.lock();
            (content.class, content.block) = (class, Some(block));
            drop(content);
            self.large_slots.set_granted(slot, true);
        }
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
            class: 0,
            block: None,
            hits: 0,
            live: HighWater::new(),
            requested: HighWater::new(),
        }))
    }
}
