//! State that a pool's handles, buffers and idle blocks share, whatever the backend.

use crate::cache::caps::Caps;
use crate::cache::counts::Counters;
use crate::cache::depot::Depot;
use crate::cache::depot_lock::Place;
use crate::cache::magazine;
use crate::cache::magazine::class_table::ClassTable;
use crate::cache::magazine::{NO_SLOT, SLOTS};
use crate::cache::orphans;
use crate::cache::recorded::{RecordedBy, Records};
use crate::cache::size_class::SizeClasses;
use crate::cache::stats::PoolStats;
use crate::source::Key;
use crate::source::Supply;
use crate::sync::{AtomicU64, GlobalMutex, GlobalU64, MutexGuard};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use vrampool_backend::{Backend, DeviceId, Hooks, MemoryKind};

#[derive(Debug)]
pub(crate) struct PoolCore {
    pub(crate) device: DeviceId,
    pub(crate) name: String,
    pub(crate) kind: MemoryKind,
    pub(crate) classes: SizeClasses,
    pub(crate) max_allocation: u64,
    pub(crate) caps: Caps,
    pub(crate) class_table: ClassTable,
    /// The number under which threads keep magazines for it.
    pub(crate) slot: u8,
    /// The epoch that usable magazines belong to. A new epoch recalls their memory. Every hit reads it, so it
    /// is apart from fields that are often written.
    pub(crate) epoch: AtomicU64,
    /// How often the pool's arena forgot its blocks. Changes under the depot's lock.
    pub(crate) generation: AtomicU64,
    pub(crate) hooks: Hooks,
    pub(crate) records: Records,
    pub(super) place: Place,
    /// The [`Supply`] of its backend.
    supply: Box<dyn Any + Send + Sync>,
}

/// The purpose of a new epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recall {
    /// Recalls slots for threads without any. Blocks go to the depot.
    Slots,
    /// Recalls memory. Blocks go to the source.
    Memory,
}

/// The epoch of pools without a handle.
const CLOSED_EPOCH: u64 = 0;

/// The latest epoch of any pool. Each epoch is unique, so no two pools are ever in the same.
static EPOCH: GlobalU64 = GlobalU64::new(CLOSED_EPOCH);

/// Number of pools closed so far.
#[cfg(not(model))]
pub(crate) static CLOSED: GlobalU64 = GlobalU64::new(0);
#[cfg(model)]
loom::lazy_static! {
    pub(crate) static ref CLOSED: AtomicU64 = AtomicU64::new(0);
}

/// Slots in use.
static TAKEN: GlobalMutex<[bool; SLOTS]> = GlobalMutex::new([false; SLOTS]);

impl PoolCore {
    pub(crate) fn new<B: Backend>(
        name: String,
        kind: MemoryKind,
        caps: Caps,
        classes: SizeClasses,
        borrow_classes: usize,
        (hooks, recorded_by): (Hooks, &RecordedBy),
        supply: Supply<B>,
    ) -> Arc<Self> {
        let largest = caps.magazine_bytes.min(caps.magazine_class).min(caps.cached_class);
        let (class_table, records) = recorded_by.class_table(&hooks, &classes, largest);
        let arena = supply.arena().cloned();
        let pool = Arc::new(Self {
            device: supply.device.id(),
            max_allocation: supply.device.properties().max_allocation,
            name,
            kind,
            classes: classes.clone(),
            caps,
            class_table,
            records,
            hooks,
            slot: if caps.has_magazines() { take_slot() } else { NO_SLOT },
            epoch: AtomicU64::new(next_epoch()),
            generation: AtomicU64::new(0),
            place: Place::new(Depot::new(kind, classes, borrow_classes, caps)),
            supply: Box::new(supply),
        });
        if let Some(arena) = arena {
            let pool = Arc::downgrade(&pool);
            arena.on_reset(move || pool.upgrade().is_some_and(|pool| pool.forget_idle()));
        }
        pool
    }

    #[inline]
    pub(crate) fn depot(&self) -> MutexGuard<'static, Depot> {
        self.place.0.lock()
    }

    /// Signals that memory was released, or a reservation was cancelled. Call it without the lock.
    pub(crate) fn notify_freed(&self) {
        self.place.0.notify_freed();
    }

    pub(crate) fn supply<B: Backend>(&self) -> &Supply<B> {
        match self.supply.downcast_ref() {
            Some(supply) => supply,
            None => unreachable!("a pool has the supply of its own backend"),
        }
    }

    pub(crate) fn has_magazines(&self) -> bool {
        self.slot != NO_SLOT
    }

    #[inline]
    pub(crate) fn has_magazine_for(&self, key: Key) -> bool {
        self.caps.magazines_take(key.class) && self.has_magazines() && key.kind == self.kind
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.epoch.load(Relaxed) == CLOSED_EPOCH
    }

    /// Closes the pool after its last handle: releases idle memory, and keeps none from now on.
    pub(crate) fn close(&self) {
        magazine::leave(self);
        let mut depot = self.depot();
        let (idle, records) = depot.close();
        let magazines = depot.tallies.len();
        self.epoch.store(CLOSED_EPOCH, Relaxed);
        drop(depot);
        if self.has_magazines() {
            TAKEN.lock()[usize::from(self.slot)] = false;
        }
        // Release: pairs with the acquire load of a thread that looks for racks of closed pools. That thread
        // then also sees this pool's epoch as closed.
        CLOSED.fetch_add(1, Release);
        drop(records);
        self.give_back(idle);
        orphans::expect(magazines);
        orphans::free();
    }

    /// Returns statistics, and the highest end of a block in an arena of fixed size. Peaks include all
    /// requests of this thread, and those that other threads have settled.
    pub(crate) fn stats(&self) -> (PoolStats, u64) {
        magazine::inspect(self, |rack| {
            let mut depot = self.depot();
            rack.into_iter().for_each(|rack| depot.settle(rack));
            (depot.stats(), depot.accounts.peak_end)
        })
    }

    /// Restarts the peaks; `end` is the end of the highest block in an arena of fixed size.
    pub(crate) fn reset_peaks(&self, end: u64) {
        magazine::inspect(self, |rack| {
            let mut depot = self.depot();
            rack.into_iter().for_each(|rack| depot.settle(rack));
            depot.accounts.reset_peaks(end);
        });
    }

    /// Returns idle bytes, as of all requests of this thread and those that other threads have settled.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.depot().accounts.now.cached
    }

    pub(crate) fn count_failure(&self, counter: impl FnOnce(&mut Counters) -> &mut u64) {
        let mut depot = self.depot();
        *counter(&mut depot.counters) += 1;
    }

    #[inline]
    pub(crate) fn count_waits(&self, waits: u64) {
        if waits > 0 {
            self.depot().counters.stream_waits += waits;
        }
    }
}

pub(super) fn next_epoch() -> u64 {
    EPOCH.fetch_add(1, Relaxed) + 1
}

/// Claims a slot that no open pool has. Returns `NO_SLOT` when all are taken.
fn take_slot() -> u8 {
    let mut taken = TAKEN.lock();
    let free = (0..NO_SLOT).find(|&slot| !taken[usize::from(slot)]);
    if let Some(slot) = free {
        taken[usize::from(slot)] = true;
    }
    free.unwrap_or(NO_SLOT)
}
