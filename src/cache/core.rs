//! State that a pool's handles, buffers and idle blocks share, whatever the backend.
//!
//! A block knows its pool, and the pool's depot holds blocks in its buckets. These types are therefore in one
//! file. What each of them does is in `block`, `buckets`, `depot` and `depot_lock`.

use crate::cache::accounts::Accounts;
use crate::cache::block_body::Content;
use crate::cache::caps::Caps;
use crate::cache::counts::Counters;
use crate::cache::magazine::class_table::ClassTable;
use crate::cache::magazine::counters::Tally;
use crate::cache::magazine::slots;
use crate::cache::magazine::slots::NO_SLOT;
use crate::cache::pool_recorder::{PoolRecorder, RecordedBy};
use crate::cache::retry_queue::Turns;
use crate::cache::size_class::SizeClasses;
use crate::cache::waiters::Waiters;
use crate::source::Key;
use crate::source::Supply;
use crate::sync::{AtomicU64, Condvar, GlobalU64, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
// Of a block: the model does not step through its atomics.
use std::sync::Arc;
use std::sync::atomic::{AtomicU64 as StdAtomicU64, Ordering::Relaxed};
use vrampool_backend::spi::Hooks;
use vrampool_backend::{Backend, DeviceId, MemoryKind, StreamId};

/// The state of a pool.
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
    pub(crate) recorder: PoolRecorder,
    pub(super) place: Place,
    /// The [`Supply`] of its backend.
    supply: Box<dyn Any + Send + Sync>,
}

/// A pool's exclusive use of a lock.
#[derive(Debug)]
pub(crate) struct Place(pub(crate) &'static LockedDepot);

/// A depot behind its [lock](crate::cache::depot_lock).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LockedDepot {
    pub(super) depot: Mutex<Depot>,
    /// Signalled when memory is released or a reservation is cancelled.
    pub(super) freed: Condvar,
}

/// The [shared store](crate::cache::depot) of idle blocks.
#[derive(Debug)]
pub(crate) struct Depot {
    /// The kind of memory that magazines take.
    pub(crate) kind: MemoryKind,
    pub(super) classes: SizeClasses,
    /// Number of larger classes from which an empty class may borrow.
    pub(super) borrow_classes: u32,
    pub(crate) buckets: Buckets,
    pub(crate) accounts: Accounts,
    pub(crate) counters: Counters,
    /// Counts requests; a bucket stores the value of its last request.
    pub(super) clock: u64,
    /// Counters of threads' magazines.
    pub(crate) tallies: Vec<Arc<Tally>>,
    /// Magazines of earlier epochs release their memory to the source.
    pub(crate) trimmed: u64,
    /// Blocks not kept while other threads' magazines had slots of their class, since the last recall.
    pub(crate) without_slot: u64,
    /// Records without memory.
    pub(crate) records: Vec<Box<Block>>,
    /// How often the source forgot its blocks; `forgotten` counts older blocks that are out of the depot.
    pub(crate) generation: u64,
    pub(super) forgotten: u64,
    /// Forgotten blocks that returned where none may be dropped.
    pub(super) dead: Vec<Box<Block>>,
    /// Requests that wait for memory in transit, in order of arrival: number and class.
    pub(super) waiting: VecDeque<(u64, u64)>,
    /// Number of requests that ever waited.
    pub(super) waited: u64,
    /// Requests that found the device out of memory.
    pub(crate) turns: Turns,
    /// Requests that wait for memory until a deadline.
    pub(crate) waiters: Waiters,
    /// The program has closed the pool: requests are refused, and returned blocks are not kept.
    pub(crate) is_shut: bool,
    /// The last pool handle is gone: returned blocks are not kept.
    pub(super) closed: bool,
}

/// Idle blocks of one class.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(super) key: Key,
    /// Oldest release first.
    pub(crate) idle: VecDeque<Box<Block>>,
    /// Slots of magazines, filled or not. They count as idle blocks.
    pub(crate) leased: u64,
    /// The [clock](Depot::clock) at its last request.
    pub(crate) last_request: u64,
    pub(crate) requests: Requests,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Requests {
    pub(crate) hits: u64,
    pub(crate) misses: u64,
}

/// The [buckets](crate::cache::buckets) of a depot.
#[derive(Debug)]
pub(crate) struct Buckets {
    pub(super) classes: SizeClasses,
    pub(super) list: Vec<Bucket>,
    /// Index of each bucket in the list.
    pub(super) places: FxHashMap<Key, usize>,
    /// Index of the last bucket found for a class of this [number](crate::cache::magazine::class_table::number).
    pub(super) guesses: Box<[usize; 256]>,
    /// Number of buckets from which empty ones are forgotten.
    pub(super) forget_from: usize,
    /// Hits and misses of forgotten buckets, by reported class.
    pub(super) forgotten: BTreeMap<u64, Requests>,
}

/// The record of a block. It moves, boxed and by value, between buffer, magazine and bucket.
///
/// It holds a handle of its pool, so that these moves touch no reference count. An idle block thus keeps its
/// pool's shared state alive. The last pool handle empties the buckets and so breaks the cycle.
///
/// The fields that every path needs are here. Fields of the backend's types are behind a type-erased
/// [body](Content), so one thread-local variable serves the pools of all backends.
pub(crate) struct Block {
    /// The block below it in a magazine.
    pub(crate) next: Option<Box<Block>>,
    pub(crate) key: Key,
    /// Bytes requested by the current, or last, borrower.
    pub(crate) requested: u64,
    /// The stream on which it needs no wait: the stream that allocated or wrote it last, ordered behind all
    /// earlier users. 0 after another stream has read it.
    pub(super) ready_on: StdAtomicU64,
    /// The stream that allocated or wrote it last.
    pub(crate) stream: StreamId,
    /// The pool's [generation](PoolCore::generation) in which it was allocated.
    pub(crate) generation: u64,
    /// The magazine list that takes it, if that list is for its class only.
    pub(crate) list: u8,
    pub(crate) pool: Arc<PoolCore>,
    /// The recorder's number of the request that it serves; 0 if the request was not recorded.
    #[cfg(feature = "trace")]
    pub(crate) recorded: u64,
    /// As `list`, which is unset for blocks of a recorded pool; set when it is handed out.
    #[cfg(feature = "trace")]
    pub(crate) recorded_list: u8,
    /// Its address, while it is known and fixed; 0 otherwise.
    pub(super) place: StdAtomicU64,
    /// The part of its backend, boxed so that a move copies one word.
    pub(super) body: Box<dyn Content>,
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
pub(super) const CLOSED_EPOCH: u64 = 0;

/// An epoch that no pool is ever in.
pub(crate) const NEVER: u64 = u64::MAX;

/// The latest epoch of any pool. Each epoch is unique, so no two pools are ever in the same.
static EPOCH: GlobalU64 = GlobalU64::new(CLOSED_EPOCH);

/// Number of pools closed so far.
#[cfg(not(model))]
pub(crate) static CLOSED: GlobalU64 = GlobalU64::new(0);
#[cfg(model)]
loom::lazy_static! {
    pub(crate) static ref CLOSED: AtomicU64 = AtomicU64::new(0);
}

impl PoolCore {
    pub(crate) fn new<B: Backend>(
        name: String,
        kind: MemoryKind,
        caps: Caps,
        classes: SizeClasses,
        borrow_classes: u32,
        (hooks, recorded_by): (Hooks, &RecordedBy),
        supply: Supply<B>,
    ) -> Arc<Self> {
        let largest = caps.magazine_bytes.min(caps.magazine_class).min(caps.cached_class);
        let (class_table, recorder) = recorded_by.class_table(&hooks, &classes, largest);
        let arena = supply.arena().cloned();
        let pool = Arc::new(Self {
            device: supply.device.id(),
            max_allocation: supply.device.properties().max_allocation,
            name,
            kind,
            classes: classes.clone(),
            caps,
            class_table,
            recorder,
            hooks,
            slot: if caps.has_magazines() { slots::take() } else { NO_SLOT },
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
}

pub(super) fn next_epoch() -> u64 {
    EPOCH.fetch_add(1, Relaxed) + 1
}
