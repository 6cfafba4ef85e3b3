//! The state behind a pool: idle blocks, accounts and the arena under one lock, and each thread's magazines above it.
//!
//! * `request`: the way of a request past the magazines, and the queue of those that wait;
//! * `size_class`: rounding of requests; `magazine`: idle blocks of each thread; `store`: those of a pool, under its
//!   lock, frees, and the source of misses; `block`: the record of one block;
//! * `ledger`: bytes, limits and shares of pools and their children; `stats`: statistics;
//! * `pool_order`: the order of a pool's streams, by events on those that used idle blocks;
//! * `arena`: ranges of device memory, sub-allocated; `space`: their offsets, numbers only;
//! * `pool_core`: a new pool, its lock and its classes.
//!
//! The types of pools, depots, accounts, queues and blocks, whatever the backend, refer to each other: a block knows
//! its pool, and the pool's depot has blocks in its buckets. They are in this file, their methods in the folders.

pub mod arena;
mod block;
mod ledger;
pub(crate) mod magazine;
mod pool_core;
mod pool_order;
mod request;
pub(crate) mod size_class;
pub mod space;
pub(crate) mod stats;
mod store;

pub(crate) use {
    ledger::{Asked, Caps},
    pool_order::poll_in_flight,
    request::{GRACE, Position, allocate_observed, at_address, device_pools, reserve_share},
    store::{Borrowed, Supply, is_releasing},
};

use crate::error::Error;
use crate::error::refusal_log::RefusalLog;
use crate::heap::ledger::{Bounds, Level, Sum, Waiting};
use crate::heap::magazine::ThreadCounters;
use crate::heap::magazine::class_table::ClassTable;
use crate::heap::size_class::SizeClasses;
use crate::heap::stats::{Peaks, PoolStats};
use crate::source::Key;
use crate::streams::{LastUse, Ticks};
use crate::sync::{AtomicU64, Condvar, GlobalMutex, GlobalU64, Instant, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use slab::Slab;
use smallvec::SmallVec;
use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;

// Of a block: the model does not step through its atomics.
use std::sync::atomic::{AtomicBool, AtomicU64 as StdAtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vrampool_backend::spi::{Hooks, Ticket};
use vrampool_backend::{DeviceId, MemoryKind, StreamId};

/// The state of a pool. First the fields that each hit reads, to share a line, then those that other requests read.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct PoolCore {
    /// The epoch that usable magazines belong to. A new epoch recalls their memory. It is separate from fields that are
    /// often written.
    epoch: AtomicU64,
    /// The number under which threads keep magazines for it.
    slot: u8,
    class_table: ClassTable,
    pub(crate) classes: SizeClasses,
    max_allocation: u64,
    /// The largest class: as large as the device allocates in one piece, and as the limit allows.
    largest_class: StdAtomicU64,
    pub(crate) kind: MemoryKind,
    /// Its own lock, or that of its arena.
    lock: &'static LockedDepot,
    /// Whether the streams of its arena have markers: a hint.
    has_markers: Arc<AtomicBool>,
    /// As it was built. Those that may change are in the depot's accounts.
    pub(crate) caps: Caps,
    device: DeviceId,
    pub(crate) name: String,
    /// When it was created, in seconds since 1970.
    pub(crate) start: u64,
    pub(crate) hooks: Hooks,
    /// Whether the device runs streams concurrently.
    are_streams_concurrent: bool,
    /// Whether frees of large blocks may get markers, because streams compete for memory: a hint.
    marks: AtomicBool,
    /// Whether the device reported that it is lost.
    pub(crate) is_device_lost: AtomicBool,
    /// The refused requests that are logged.
    refusals: RefusalLog,
    /// The pool that it is a child of.
    pub(crate) parent: Option<Arc<PoolCore>>,
    /// Whether it ever had children.
    has_children: AtomicBool,
    /// The counts of dropped children.
    dropped_children: GlobalMutex<PoolStats>,
    /// The [`Supply`] of its backend.
    supply: Box<dyn ErasedSupply>,
}

/// The [`Supply`] of any backend.
trait ErasedSupply: Any + Send + Sync + fmt::Debug {
    /// Releases memory that a dropped pool needs no more.
    fn end(&self);
    /// Releases free memory of an arena that grows until at most `idle_bytes` of it remain, and dropped memory that the
    /// device keeps for work.
    fn release(&self, idle_bytes: u64) -> Result<(), Error>;
    /// Returns the bytes that an arena that grows took from the device; `None` without one.
    fn mapped_bytes(&self) -> Option<u64>;
    /// Completes the statistics of a pool, whose highest block in an arena of fixed size ended there.
    fn complete(&self, stats: PoolStats, peak_end: u64) -> PoolStats;
}

/// A depot behind its [lock](crate::heap::store::depot_lock).
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct LockedDepot {
    depot: Mutex<Depot>,
    /// Number of sleeping requests of the pool, or of all pools of its tree. It changes under the lock of the
    /// accounts that the requests release, so later holders see it.
    sleeping: AtomicU64,
    /// Of the root's lock: the accounts of its tree. Locked after a depot.
    family: Mutex<Family>,
}

/// The accounts of the pools of a [tree](crate::heap::ledger::pool_tree).
#[derive(Default)]
struct Family {
    /// Idle bytes of all pools, and those of their magazines' slots.
    idle: u64,
    /// The caps of the tree.
    caps: Caps,
    /// The last change by a pool.
    change: u64,
    /// The node whose changes the nodes above do not count yet: of the pool that made the last change.
    uncounted: Option<usize>,
    /// Number of pools with requests that wait until a deadline.
    waiting: u64,
    /// Number of requests that ever waited, and whether those with a deadline reserve nothing now.
    turns: (u64, bool),
    /// The key of a member stays the same while its pool, or a pool below it, lives.
    members: Slab<Member>,
}

/// A pool in its tree.
struct Member {
    lock: &'static LockedDepot,
    pool: Weak<PoolCore>,
    /// The key of its parent.
    above: Option<usize>,
    /// The lock of the arena that it has in common with its parent.
    arena: Option<&'static LockedDepot>,
    /// As [`Depot::parked`].
    parked: Option<u64>,
    bounds: Bounds,
    /// The pool's own part, when its depot was unlocked last.
    own: Sum,
    /// Its part of the idle bytes.
    idle: u64,
    /// The number and the bytes of its first request that waits until a deadline.
    waiting: Option<(u64, u64)>,
    /// The sum of the nodes below it.
    below: Sum,
    /// The part that is counted in the node above.
    counted: Sum,
}

/// A locked depot, and the locked accounts of its pool's tree.
pub(crate) struct DepotGuard {
    depot: MutexGuard<'static, Depot>,
    family: Option<MutexGuard<'static, Family>>,
}

/// The backend's part of a depot: the order between streams, or the arena that serves misses, which has that order.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one in a depot, and each free reads the ticks")]
pub(crate) enum BackendState {
    /// The markers are the backend's.
    Order { ticks: Ticks, markers: Box<dyn Any + Send> },
    /// The state of the arena, which has the order.
    Arena(Box<dyn ErasedArena>),
}

/// The state of an arena of any backend.
pub(crate) trait ErasedArena: Any + Send + fmt::Debug {
    fn ticks(&self) -> &Ticks;
    fn ticks_mut(&mut self) -> &mut Ticks;
    /// Bytes of live blocks.
    fn used(&self) -> u64;
    /// Bytes of live blocks without physical memory.
    fn detached(&self) -> u64;
}

/// The [shared store](crate::heap::store::depot) of idle blocks.
pub(crate) struct Depot {
    pub(crate) buckets: Buckets,
    pub(crate) accounts: Accounts,
    /// The lock of the root, and the pool's index in the tree, if it is in one.
    pub(crate) node: Option<(&'static LockedDepot, usize)>,
    /// The last change of the tree that the accounts know.
    known_change: u64,
    /// The counts since the pool was created, and [`live_buffers`](PoolStats::live_buffers) with those in magazines.
    /// Its other figures are not kept here.
    counters: PoolStats,
    threads: Threads,
    /// Records without memory.
    records: Vec<Box<Block>>,
    backend_state: BackendState,
    /// Requests that wait.
    pub(crate) queue: Queue,
    pub(crate) life: Life,
    /// The pool, for its arena.
    pool: Weak<PoolCore>,
}

/// A depot's state of the threads that have magazines.
#[derive(Debug, Default)]
struct Threads {
    /// Counters of their magazines.
    counters: Vec<Arc<ThreadCounters>>,
    /// Magazines of earlier epochs release their memory to the source.
    trimmed: u64,
    /// Blocks not kept while other threads' magazines had slots of their class, since the last recall.
    without_slot: u64,
}

/// The pool of a depot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// No pool: the depot is the lock of an arena.
    NoPool,
    Open,
    /// Its arena is [detached](crate::heap::arena::detach): what that serves is refused, and only private idle memory
    /// is kept.
    Asleep,
    /// The program has closed it: requests are refused, and returned blocks are not kept.
    Closed,
    /// Its last handle was dropped: returned blocks are not kept.
    Dropped,
}

/// Idle blocks of one class.
#[derive(Debug)]
pub(crate) struct Bucket {
    key: Key,
    /// Oldest release first.
    idle: VecDeque<Box<Block>>,
    /// Slots of magazines, filled or not. They count as idle blocks.
    leased: u64,
    /// Whether a cap refused a block of the class since idle ones were last released: more of them would not
    /// spare another wait.
    has_overflowed: bool,
    /// The [clock](Buckets::clock) at its last request.
    last_request: u64,
    requests: Requests,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Requests {
    hits: u64,
    misses: u64,
}

/// The [buckets](crate::heap::store) of a depot.
#[derive(Debug)]
pub(crate) struct Buckets {
    /// The kind of memory that magazines take.
    kind: MemoryKind,
    classes: SizeClasses,
    /// Number of larger classes from which an empty class may borrow.
    borrow_classes: u32,
    /// Counts requests; a bucket stores the value of its last request.
    clock: u64,
    list: Vec<Bucket>,
    /// Index of each bucket in the list.
    places: FxHashMap<Key, usize>,
    /// Index of the last bucket found for a class of this [number](crate::heap::magazine::class_table::number).
    guesses: Box<[usize; 256]>,
    /// Number of buckets from which empty ones are forgotten.
    forget_from: usize,
    /// Hits and misses of forgotten buckets, by reported class.
    forgotten: BTreeMap<u64, Requests>,
}

/// The record of a block. It moves, boxed and by value, between buffer, magazine and bucket.
///
/// It holds a handle of its pool, so that these moves touch no reference count. An idle block thus keeps its
/// pool's shared state alive. The last pool handle empties the buckets and so breaks the cycle.
///
/// The fields that every path needs are here, those of each hit first, on one cache line. Fields of the backend's types
/// are behind a type-erased [part](ErasedPart), so one thread-local variable serves the pools of all backends.
#[repr(C, align(128))]
pub(crate) struct Block {
    /// The block below it in a magazine.
    next: Option<Box<Block>>,
    pub(crate) key: Key,
    /// Bytes requested by the current, or last, borrower.
    pub(crate) requested: u64,
    pub(crate) last_use: LastUse,
    /// The magazine bin that takes it, if that bin is for its class only.
    bin: u8,
    /// Its pool's.
    slot: u8,
    pub(crate) pool: Arc<PoolCore>,
    /// Its address, while it is known and fixed; 0 otherwise.
    place: StdAtomicU64,
    /// Bytes by which its class exceeds that of the request that it serves. Then no magazine takes it.
    excess: u64,
    /// The part of its backend, boxed so that a move copies one word.
    part: Box<dyn ErasedPart>,
}

/// Operations of a block's [part](crate::heap::block::backend_part) of any backend.
trait ErasedPart: Any + Send + Sync {
    /// Returns its memory to an arena, for a [refill](Block::refill), if that needs only bookkeeping.
    fn empty(&mut self, backend_state: &mut BackendState) -> bool;
    /// Whether its buffer of an arena has no block.
    fn is_emptied(&self) -> bool;
    /// Releases its memory, which may call the driver. Afterwards its block is a record for a [new](Block::new) one.
    /// Returns the number of waits inserted between streams.
    fn release_memory(&mut self) -> u64;
    fn address(&self) -> Option<(u64, bool)>;
    /// The hooks' ticket of the request that it serves, if they know of it.
    fn ticket(&mut self) -> &mut Option<Ticket>;
    /// The streams that may use it, the writer last, under the depot's lock.
    fn user_ids(&self, backend_state: &BackendState) -> SmallVec<[StreamId; 2]>;
    /// Records markers on the users. Returns the tick of the free.
    fn mark(&self, pool: &PoolCore) -> u64;
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
const DROPPED_EPOCH: u64 = 0;

/// An epoch that no pool is ever in.
const NEVER: u64 = u64::MAX;

/// The latest epoch of any pool. Each epoch is unique, so no two pools are ever in the same.
static EPOCH: GlobalU64 = GlobalU64::new(DROPPED_EPOCH);

/// Number of pools dropped so far.
#[cfg(not(model))]
static DROPPED: GlobalU64 = GlobalU64::new(0);
#[cfg(model)]
loom::lazy_static! {
    static ref DROPPED: AtomicU64 = AtomicU64::new(0);
}

/// The place of a refilled [empty](crate::heap::arena::ArenaBuffer::empty) buffer.
#[derive(Debug)]
pub(crate) struct Refill<S> {
    /// End of the block in a range of fixed size, bytes; 0 in a growing arena.
    end: u64,
    /// Permanent address, if the device has addresses and the block never moves; else 0.
    address: u64,
    /// Must be dropped without any lock.
    dropped: Option<S>,
}

/// Bytes by location.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// Out of the depot: live, or idle in a magazine.
    out: u64,
    /// Idle in the depot.
    cached: u64,
    /// All bytes that count against limit and budget.
    pub(crate) charged: u64,
}

/// Bytes with borrowers. Both wrap: one thread may report a return before another reports the request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Delta {
    requested: u64,
    live: u64,
}

/// The condition for a miss to ask the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Release at least this much idle memory first; 0 = none.
    Evict(u64),
    /// Wait: another thread is releasing enough memory.
    Wait,
    /// The limit does not allow it.
    Full,
}

#[derive(Debug, Default)]
pub(crate) struct Accounts {
    pub(crate) caps: Caps,
    pub(crate) now: Bytes,
    /// The part of `charged` that is of a detached arena, and counts against no limit.
    detached: u64,
    /// Bytes that are reserved for the pool in the [nodes above](crate::heap::ledger).
    pub(crate) share: u64,
    /// Whether idle memory stays until the pool is dropped.
    pub(crate) is_private: bool,
    /// The sum of the nodes below the pool's.
    below: Sum,
    /// The nodes above the pool's, the root last.
    above: SmallVec<[Level; 2]>,
    /// Idle bytes of all other pools of the tree, and those of their magazines' slots.
    pub(crate) others_idle: u64,
    /// The highest byte counts. Live counts include the deltas that threads [reported](Self::add); cached counts
    /// include all slots of magazines. Those of the source are not kept here.
    peak: Peaks,
    /// Requested bytes of borrowers, as far as threads have reported. Not next to `live`: a free changes
    /// both in turn, and an allocation that loaded both at once would stall until both stores had reached the cache.
    requested: u64,
    /// Bytes of the slots of threads' magazines, filled or not. They count as cached.
    leased: u64,
    /// The part of `leased` whose threads did not return it in time after a recall.
    unanswered: u64,
    /// The highest end of a block in an arena of fixed size.
    peak_end: u64,
    /// Live bytes once the classes of requests are at their peak again, beside the live blocks that serve a smaller
    /// class than theirs: that peak, which never restarts, and the excess of these blocks.
    expected: u64,
    /// Bytes taken from the device in total.
    allocated: u64,
    /// Bytes, idle or free in the arena, that device work may still use, as far as markers show.
    in_flight: Arc<StdAtomicU64>,
    /// As [`Overlap::refused_at`].
    overlap_refused_at: Option<u64>,
    /// Bytes of borrowed blocks, as far as threads have reported.
    live: u64,
    /// The part in transit that will return to the device.
    freeing: u64,
    /// Bytes returned to the device in total.
    freed: u64,
    /// Counts changes that may let a refused request succeed.
    pub(crate) changes: u64,
}

/// The lack of room for a share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoShare {
    /// The number of levels between the pool's node and the refusing node.
    height: usize,
    limit: u64,
    /// The bytes that the limit lacks.
    lacking: u64,
    /// Whether they are being released.
    is_in_transit: bool,
    /// The unused bytes of the share before.
    unused: u64,
}

/// The event that a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Nothing: it is being served.
    Nothing,
    /// Any change, because it checks its own condition.
    Change,
    /// Enough memory that is being released.
    Release,
    /// Its turn to ask the device again, which refused memory: requests ask in order of arrival.
    Device,
    /// Memory, until a deadline, as the first of those.
    Memory,
}

/// How long requests with a deadline reserve memory, and then let others pass, in turns. What is freed for the first
/// one stays its own for a whole turn, so it is served within the longest time that a program holds a buffer, if that
/// is less.
const TURN: Duration = Duration::from_secs(90);

/// The queue of a pool.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Earliest first.
    entries: VecDeque<Entry>,
    /// Number of requests that ever waited, of all pools of a tree.
    begun: u64,
    /// Number of entries with a deadline.
    pub(crate) deadlines: u64,
    /// Whether entries with a deadline reserve nothing now, because the first one of the tree may never be served.
    is_open: bool,
    /// The first requests with a deadline of the other pools of the tree.
    others: SmallVec<[Waiting; 2]>,
    /// As [`TURN`], except in tests.
    pub(crate) turn: Duration,
}

/// A request in a [queue](Queue).
#[derive(Debug)]
struct Entry {
    number: u64,
    /// Bytes that it waits for; 0 once a reservation counts them.
    bytes: u64,
    awaited: Awaited,
    /// Later requests get only what the limit leaves beside its bytes, unless the queue is open.
    has_deadline: bool,
    woken: Arc<Condvar>,
    /// When it was added.
    since: Instant,
}

impl BackendState {
    fn order(markers: impl Any + Send) -> Self {
        Self::Order { ticks: Ticks::from_one(), markers: Box::new(markers) }
    }

    /// The order of frees and markers.
    #[inline]
    fn ticks(&self) -> &Ticks {
        match self {
            Self::Order { ticks, .. } => ticks,
            Self::Arena(state) => state.ticks(),
        }
    }

    #[inline]
    fn ticks_mut(&mut self) -> &mut Ticks {
        match self {
            Self::Order { ticks, .. } => ticks,
            Self::Arena(state) => state.ticks_mut(),
        }
    }
}

fn next_epoch() -> u64 {
    EPOCH.fetch_add(1, Relaxed) + 1
}
