//! A new pool, its source, its lock and its classes.

use crate::error::refusal_log::RefusalLog;
use crate::heap::arena::DeviceArena;
use crate::heap::ledger::Caps;
use crate::heap::magazine::class_table::ClassTable;
use crate::heap::magazine::slots;
use crate::heap::magazine::slots::NO_SLOT;
use crate::heap::size_class::{CLAMPED, SizeClasses};
use crate::heap::store::Supply;
use crate::heap::{
    BackendState, Buckets, DROPPED_EPOCH, Depot, DepotGuard, LockedDepot, PoolCore, next_epoch,
};
use crate::source::Key;
use crate::streams::Markers;
use crate::sync::{AtomicU64, GlobalMutex, unix_seconds};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64 as StdAtomicU64, Ordering::Relaxed};
use vrampool_backend::spi::{Hooks, Ticket};
use vrampool_backend::{Backend, Capabilities, HookEvent, MemoryKind, StreamId};

impl PoolCore {
    /// `parent`: the pool above, and whether idle memory is private. Returns `None` if the arena of `supply` serves, or
    /// served, another pool.
    pub(crate) fn new<B: Backend>(
        name: String,
        kind: MemoryKind,
        caps: Caps,
        classes: SizeClasses,
        borrow_classes: u32,
        hooks: Hooks,
        (supply, parent): (Supply<B>, Option<(Arc<Self>, bool)>),
    ) -> Option<Arc<Self>> {
        let max_allocation = supply.device.properties().max_allocation;
        let mut caps = caps;
        if classes.round(max_allocation) != Some(max_allocation) {
            // No magazine has a bin for a class that is clamped.
            caps.magazine_class = caps.magazine_class.min(max_allocation.saturating_sub(CLAMPED));
        }
        let largest = caps.magazine_bytes.min(caps.magazine_class).min(caps.cached_class);
        let class_table = ClassTable::new(&classes, largest, !hooks.is_empty());
        let order = BackendState::order(Markers::<B>::new());
        let mut depot = Depot::new(Buckets::new(kind, classes.clone(), borrow_classes), caps, order);
        let (parent, is_private) = parent.unzip();
        depot.accounts.is_private = is_private.unwrap_or_default();
        let lock = match supply.exclusive_arena() {
            Some(arena) => arena.with_lock(|lock| lock.over_arena(depot))?,
            None => LockedDepot::new(depot),
        };
        let arena =
            supply.arena.as_ref().filter(|_| supply.is_of_parent).map(|arena| arena.with_lock(|lock| lock));
        let core = Arc::new(Self {
            device: supply.device.id(),
            start: unix_seconds(),
            max_allocation,
            largest_class: StdAtomicU64::new(caps.largest_class(max_allocation)),
            name,
            kind,
            classes,
            caps,
            class_table,
            hooks,
            are_streams_concurrent: supply
                .device
                .properties()
                .capabilities
                .contains(Capabilities::CONCURRENT_STREAMS),
            marks: AtomicBool::new(false),
            has_markers: supply.arena.as_ref().map(DeviceArena::has_markers).unwrap_or_default(),
            is_device_lost: AtomicBool::new(false),
            refusals: RefusalLog::default(),
            slot: if caps.has_magazines() { slots::take() } else { NO_SLOT },
            epoch: AtomicU64::new(next_epoch()),
            lock,
            parent,
            has_children: AtomicBool::new(false),
            dropped_children: GlobalMutex::default(),
            supply: Box::new(supply),
        });
        core.depot().pool = Arc::downgrade(&core);
        if let Some(parent) = &core.parent {
            core.join(parent, arena);
        }
        Some(core)
    }

    pub(crate) fn supply<B: Backend>(&self) -> &Supply<B> {
        match (&*self.supply as &dyn Any).downcast_ref() {
            Some(supply) => supply,
            None => unreachable!("a pool has the supply of its own backend"),
        }
    }

    /// Returns the class of a request, clamped to what the device allocates in one piece and to the limit while the
    /// request fits. `None` if the device never allocates as much.
    pub(crate) fn class_of(&self, bytes: u64) -> Option<u64> {
        // Relaxed: the limit is checked again under the lock.
        let class = self.classes.round_within(bytes, self.largest_class.load(Relaxed));
        class.or_else(|| self.classes.round_within(bytes, self.max_allocation))
    }

    /// Applies a changed limit to later requests.
    pub(crate) fn set_largest_class(&self, depot: &Depot) {
        let caps = Caps { limit: depot.accounts.least_limit(), ..depot.accounts.caps };
        self.largest_class.store(caps.largest_class(self.max_allocation), Relaxed);
    }

    #[inline]
    pub(crate) fn depot(&self) -> DepotGuard {
        self.lock.lock()
    }

    /// Wakes the requests that can go on after a release or a cancelled reservation. Call it without the lock.
    pub(crate) fn notify_freed(&self) {
        self.lock.notify_freed();
    }

    pub(crate) fn has_magazines(&self) -> bool {
        self.slot != NO_SLOT
    }

    #[inline]
    pub(crate) fn has_magazine_for(&self, key: Key) -> bool {
        self.caps.magazines_take(key.class) && self.has_magazines() && key.kind == self.kind
    }

    /// Whether it has hooks, which [observe](crate::heap::request::observed) it.
    #[inline(always)]
    pub(crate) fn is_observed(&self) -> bool {
        self.class_table.is_observed
    }

    /// Whether it is in a tree of pools.
    pub(crate) fn is_in_tree(&self) -> bool {
        self.depot().node.is_some()
    }

    /// Whether its last handle was dropped.
    pub(crate) fn is_dropped(&self) -> bool {
        self.epoch.load(Relaxed) == DROPPED_EPOCH
    }

    #[inline]
    pub(crate) fn event(
        &self,
        ticket: Ticket,
        requested: u64,
        class: u64,
        stream: StreamId,
    ) -> HookEvent<'_> {
        HookEvent::new(&self.name, self.device, ticket, requested, class, stream)
    }
}
