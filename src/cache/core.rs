//! What a pool's handles, buffers and idle blocks share, whatever its backend; a buffer's way back.

use crate::cache::accounts::Caps;
use crate::cache::block::Block;
use crate::cache::depot::{Counters, Depot, Permit};
use crate::cache::depot_lock::Place;
use crate::cache::magazine;
use crate::cache::magazine::class_table::Lanes;
use crate::cache::magazine::{NO_SLOT, SLOTS};
use crate::cache::orphans as ended;
use crate::cache::recorded::{RecordedBy, Records};
use crate::cache::reservation::{NoRoom, Promise};
use crate::cache::size_class::SizeClasses;
use crate::cache::stats::{PoolStats, Rung};
use crate::error::Error;
use crate::source::Key;
use crate::source::Supply;
use crate::sync::{AtomicU64, GlobalMutex, GlobalU64, MutexGuard};
use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};
use vrampool_backend::{Backend, DeviceId, Hooks, MemoryKind, StreamId};

/// What a pool's handles, buffers and idle blocks share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: DeviceId,
    pub(crate) name: String,
    pub(crate) kind: MemoryKind,
    pub(crate) classes: SizeClasses,
    /// The most that the device gives at once.
    pub(crate) max_allocation: u64,
    pub(crate) caps: Caps,
    pub(crate) lanes: Lanes,
    /// Under which number threads keep magazines for it.
    pub(crate) slot: u8,
    /// What magazines have to be of to be used. Another one calls their memory back. Read by every hit, so apart from what
    /// is written often.
    pub(crate) epoch: AtomicU64,
    /// How often the pool's arena forgot its blocks. Changes under the depot's lock.
    pub(crate) generation: AtomicU64,
    pub(crate) hooks: Hooks,
    pub(crate) records: Records,
    place: Place,
    /// The [`Supply`] of its backend.
    supply: Box<dyn Any + Send + Sync>,
}

/// The epoch of pools that no handle is left of.
const CLOSED_EPOCH: u64 = 0;

/// The last epoch that any pool began; each begins one of its own, so that no two pools are ever in the same.
static EPOCH: GlobalU64 = GlobalU64::new(CLOSED_EPOCH);

/// Pools closed so far.
#[cfg(not(model))]
pub(crate) static CLOSED: GlobalU64 = GlobalU64::new(0);
#[cfg(model)]
loom::lazy_static! {
    pub(crate) static ref CLOSED: AtomicU64 = AtomicU64::new(0);
}

/// Which slots pools have.
static TAKEN: GlobalMutex<[bool; SLOTS]> = GlobalMutex::new([false; SLOTS]);

thread_local! {
    /// Whether this thread is giving memory back at this moment: a destructor that allocates must not wait for itself.
    static GIVING_BACK: Cell<bool> = const { Cell::new(false) };
}

impl Shared {
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
        let (lanes, records) = recorded_by.lanes(&hooks, classes, largest);
        let arena = supply.arena().cloned();
        let pool = Arc::new(Self {
            device: supply.device.id(),
            max_allocation: supply.device.properties().max_allocation,
            name,
            kind,
            classes,
            caps,
            lanes,
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

    /// Memory was given back, or a promise was broken. To be called without the lock.
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

    /// A buffer's way back.
    #[inline]
    pub(crate) fn release(block: Box<Block>) {
        if let Some(block) = magazine::put(block.lane, block) {
            Self::release_to_depot(block);
        }
    }

    #[cold]
    #[inline(never)]
    fn release_to_depot(block: Box<Block>) {
        // Those of pools with hooks are not.
        if !block.pool.lanes.are_quick() && !block.pool.hooks.is_empty() {
            Self::release_announced(block);
        } else {
            Self::release_unannounced(block);
        }
    }

    #[inline]
    pub(crate) fn release_unannounced(mut block: Box<Block>) {
        if !block.pool.lanes.are_unshared() && block.pool.has_magazine_for(block.key) {
            match magazine::put_in_shared_lane(block) {
                Some(unplaced) => block = unplaced,
                None => return,
            }
        }
        let place = block.pool.place.0;
        if !block.pool.has_magazine_for(block.key) {
            // Mostly the depot keeps it, or the arena has it back, whatever this thread has.
            let is_cached = block.pool.caps.cache(block.key.class);
            let mut depot = place.lock();
            let is_settled = magazine::settle(&block.pool, &mut depot);
            let unkept = match is_cached {
                _ if !is_settled => Some(block),
                true => depot.keep(block),
                false => depot.recycle_lent(block),
            };
            let mut errand = None;
            let unkept = match unkept {
                Some(block) if is_settled && !is_cached => {
                    depot.recycle_shared(block).map(|left| errand = Some(left)).err()
                }
                unkept => unkept,
            };
            drop(depot);
            errand.into_iter().for_each(|errand| errand());
            match unkept {
                Some(unkept) => block = unkept,
                None if is_cached => return,
                None => return place.notify_freed(),
            }
        }
        let unkept = magazine::visit_with(block, |rack, block| {
            let mut depot = place.lock();
            let unkept = depot.put(block, rack)?;
            if depot.lacks_slots() {
                unkept.pool.recall(&mut depot, Recall::Slots);
            }
            let unkept = depot.recycle(unkept);
            drop(depot);
            if unkept.is_none() {
                place.notify_freed();
            }
            unkept
        });
        if let Some(block) = unkept {
            let (pool, bytes) = (Arc::clone(&block.pool), block.key.class);
            pool.give_back_counting([block], bytes);
        }
    }

    /// Counts and bytes, and the most that a source that reserves ahead had to have; the peaks, as of all that this thread
    /// did and what others told.
    pub(crate) fn stats(&self) -> (PoolStats, u64) {
        magazine::look(self, |rack| {
            let mut depot = self.depot();
            rack.into_iter().for_each(|rack| depot.settle(rack));
            (depot.stats(), depot.budget.peak_reserved)
        })
    }

    /// Starts the peaks anew from now.
    pub(crate) fn reset_peaks(&self, reserved: u64) {
        magazine::look(self, |rack| {
            let mut depot = self.depot();
            rack.into_iter().for_each(|rack| depot.settle(rack));
            depot.budget.reset_peaks(reserved);
        });
    }

    /// Begins another epoch: every thread gives up its magazines when it next calls the pool.
    pub(crate) fn recall(&self, depot: &mut Depot, what: Recall) {
        if depot.is_closed() {
            return;
        }
        let epoch = next_epoch();
        if what == Recall::Memory {
            depot.trimmed = epoch;
        }
        self.epoch.store(epoch, Relaxed);
    }

    /// Gives idle memory back until at most `cached_bytes` are idle. Answers how many bytes were given back.
    pub(crate) fn trim_to(&self, cached_bytes: u64) -> u64 {
        magazine::leave(self);
        let mut depot = self.depot();
        let surplus =
            depot.budget.now.cached.saturating_add(depot.budget.leased).saturating_sub(cached_bytes);
        if surplus > depot.budget.now.cached {
            self.recall(&mut depot, Recall::Memory);
        }
        let idle = depot.evict(surplus);
        drop(depot);
        ended::free();
        self.give_back(idle)
    }

    /// The arena forgot its blocks: gives up what is idle. Blocks that are out are not kept when they come back, and until all
    /// of them have there are no magazines, which do not look at a block that comes back.
    /// Returns whether the pool is open.
    pub(crate) fn forget_idle(&self) -> bool {
        let mut depot = self.depot();
        if depot.is_closed() {
            return false;
        }
        self.recall(&mut depot, Recall::Memory);
        let idle = depot.begin_generation();
        self.generation.store(depot.generation, Relaxed);
        drop(depot);
        self.give_back(idle);
        magazine::leave(self);
        true
    }

    /// Bytes that are idle, as of all that this thread did and what others told.
    pub(crate) fn cached_bytes(&self) -> u64 {
        self.depot().budget.now.cached
    }

    /// No handle is left: gives back what is idle, and keeps nothing from now on.
    pub(crate) fn close(&self) {
        magazine::leave(self);
        let mut depot = self.depot();
        let (idle, spares) = depot.close();
        let magazines = depot.tallies.len();
        self.epoch.store(CLOSED_EPOCH, Relaxed);
        drop(depot);
        if self.has_magazines() {
            TAKEN.lock()[usize::from(self.slot)] = false;
        }
        // Release: pairs with the acquire of a thread that looks for racks of closed pools, and so finds this one's epoch closed.
        CLOSED.fetch_add(1, Release);
        drop(spares);
        self.give_back(idle);
        ended::expect(magazines);
        ended::free();
    }

    /// Gets a promise of `class` bytes within limit and budget, giving idle memory back where they demand it. The error
    /// is the limit, or what `relief` answers, which is asked before anything is given back or waited for.
    pub(crate) fn make_room(
        &self,
        class: u64,
        relief: impl Fn() -> Result<(), Error>,
    ) -> Result<Promise<'_>, NoRoom> {
        let (mut number, mut recalled) = (None, false);
        let mut depot = self.depot();
        let outcome = loop {
            if !recalled && depot.is_short_of(class) {
                recalled = true;
                drop(depot);
                relief().map_err(NoRoom::Relief)?;
                magazine::leave(self);
                ended::free();
                depot = self.depot();
                if depot.is_over_limit_with(class) && depot.budget.leased > 0 {
                    self.recall(&mut depot, Recall::Memory);
                }
            }
            // In a destructor nobody waits: what is to come back may be what is being dropped.
            let may_wait = !is_giving_back();
            match depot.permit(class, number, may_wait) {
                Permit::Wait if may_wait => {
                    if number.is_none() {
                        depot.count(Rung::Wait);
                        number = Some(depot.begin_wait(class));
                    }
                    depot = self.wait_for_freed(depot);
                }
                permit => break permit,
            }
        };
        let do_others_wait = number.is_some_and(|number| depot.end_wait(number));
        let limit = depot.budget.caps.limit;
        drop(depot);
        if do_others_wait {
            // Perhaps one of them is first now.
            self.notify_freed();
        }
        match outcome {
            Permit::Granted { evicted, surplus } => {
                // From here on the promise is kept or broken, whatever a destructor or the device does.
                let promise = Promise::new(self, class);
                self.give_back_counting(evicted, surplus);
                Ok(promise)
            }
            Permit::Wait | Permit::Refused => Err(NoRoom::Limit(limit)),
        }
    }

    /// The device has no memory left: gives back `bytes` of idle memory. Returns whether there was any.
    pub(crate) fn relieve(&self, bytes: u64) -> bool {
        magazine::leave(self);
        ended::free();
        let mut depot = self.depot();
        if depot.budget.now.cached == 0 {
            return false;
        }
        depot.count(Rung::Trim);
        let idle = depot.evict(bytes);
        drop(depot);
        self.give_back(idle);
        true
    }

    /// As [`relieve`](Self::relieve), of all idle memory: calls magazines back, too, and waits for what other threads are giving back at
    /// this moment.
    pub(crate) fn relieve_wholly(&self) {
        magazine::leave(self);
        ended::free();
        let mut depot = self.depot();
        if depot.budget.leased > 0 {
            self.recall(&mut depot, Recall::Memory);
        }
        depot.count(Rung::Trim);
        let idle = depot.evict(u64::MAX);
        drop(depot);
        self.give_back(idle);
        if !is_giving_back() {
            // It may be just what is missing.
            let mut depot = self.depot();
            let quiet = depot.budget.freed_when_quiet();
            if !depot.budget.has_freed(quiet) {
                depot.count(Rung::Wait);
            }
            while !depot.budget.has_freed(quiet) {
                depot = self.wait_for_freed(depot);
            }
        }
    }

    /// Lets the depot go until memory was freed, a promise was broken, or a request had its answer.
    pub(crate) fn wait_for_freed(&self, depot: MutexGuard<'static, Depot>) -> MutexGuard<'static, Depot> {
        self.place.0.wait(depot)
    }

    /// The source is about to map more for `key` on `stream`: gives it back what is idle there, where that may serve as well, so
    /// that a pool does not grow for what it keeps idle; and what this thread keeps for itself only when that was not enough.
    /// What is idle for other streams stays: it would take waits, and a captured stream's nobody else gets. So does what is of
    /// another kind, which is not the source's. Magazines of other threads are called back for the next time. Answers whether
    /// it gave anything back, and so is to be asked again.
    pub(crate) fn spare(&self, key: Key, stream: StreamId) -> bool {
        if !self.caps.cache(key.class) {
            // All that is idle is smaller.
            return false;
        }
        let mut depot = self.depot();
        let mut idle = depot.evict_ready(key.kind, stream);
        if idle.is_empty() {
            drop(depot);
            magazine::leave(self);
            depot = self.depot();
            if depot.budget.leased > 0 {
                self.recall(&mut depot, Recall::Slots);
            }
            idle = depot.evict_ready(key.kind, stream);
        }
        if idle.is_empty() {
            return false;
        }
        // With their records kept: what is idle now is asked for again.
        let unspared = idle.into_iter().filter_map(|block| depot.recycle(block)).collect();
        drop(depot);
        self.notify_freed();
        self.give_back(unspared);
        true
    }

    /// Drops blocks that left their buckets. Answers their bytes.
    pub(crate) fn give_back(&self, blocks: Vec<Box<Block>>) -> u64 {
        let bytes = blocks.iter().map(|block| block.key.class).sum();
        self.give_back_counting(blocks, bytes);
        bytes
    }

    /// Drops blocks, of whose bytes `freed` come back to the device for good, outside any lock: a destructor may call the
    /// pool again.
    fn give_back_counting(&self, blocks: impl AsRef<[Box<Block>]>, freed: u64) {
        let count = blocks.as_ref().len() as u64;
        if count == 0 {
            return;
        }
        let _report = GiveBack { pool: self, count, freed, was: GIVING_BACK.replace(true) };
        drop(blocks);
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

/// What another epoch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recall {
    /// Slots, for threads that have none. Blocks go to the depot.
    Slots,
    /// Memory. Blocks go to the source.
    Memory,
}

/// Reports memory as given back once its destructors ran, also when one panics.
struct GiveBack<'a> {
    pool: &'a Shared,
    count: u64,
    freed: u64,
    was: bool,
}

impl Drop for GiveBack<'_> {
    fn drop(&mut self) {
        GIVING_BACK.set(self.was);
        let mut depot = self.pool.depot();
        depot.counters.source_frees += self.count;
        depot.budget.freed(self.freed);
        drop(depot);
        self.pool.notify_freed();
    }
}

pub(crate) fn is_giving_back() -> bool {
    GIVING_BACK.get()
}

fn next_epoch() -> u64 {
    EPOCH.fetch_add(1, Relaxed) + 1
}

/// A slot that no open pool has; none when all are taken.
fn take_slot() -> u8 {
    let mut taken = TAKEN.lock();
    let free = (0..NO_SLOT).find(|&slot| !taken[usize::from(slot)]);
    if let Some(slot) = free {
        taken[usize::from(slot)] = true;
    }
    free.unwrap_or(NO_SLOT)
}
