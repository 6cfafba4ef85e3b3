//! Idle blocks of one thread: hits without a lock, a shared cache line, or a reference count.
//!
//! ```text
//!  thread-local        thread cache of pool 0              depot of pool 0 (one lock)
//!  ┌──────────┐        ┌──────────────────────┐            ┌────────────────────────┐
//!  │ slot 0 ──┼───────▶│ bin of 4 KiB   ▣▣▢   │  refill ◀──│ bucket of 4 KiB  ▣▣▣▣  │
//!  │ slot 1   │        │ bin of 64 KiB  ▣▢    │──▶ spill   │   slots leased: 3      │
//!  │ …        │        │ …                    │            │ bucket of 64 KiB …     │
//!  └──────────┘        └──────────────────────┘            └────────────────────────┘
//!                       ▣ idle block   ▢ slot that a block may come back to
//! ```
//!
//! A *thread cache* is one thread's magazines for one pool. It has a *bin* for each class, or classes share bins. A
//! bin is linked through the blocks' records, and holds at most as many blocks as it has *slots*. Slots are leased
//! from the depot, where they count against the caps like idle blocks, filled or not. So the caps hold at every
//! instant, and a hit need not check them.
//!
//! A thread cache is valid for one *epoch* of its pool. A trim, a close, or a lack of slots for another thread
//! starts a new epoch. Each thread then returns its blocks at its next request of a small class or free. A
//! request that finds no memory waits a moment for that.
//!
//! Blocks of a thread that makes no call are out of reach: to take them, each hit would need a lock or an
//! atomic operation. They are at most an eighth of the limit in all threads, and less when the limit is near.
//! An inactive thread keeps at most [`PoolBuilder::magazine_bytes`](crate::PoolBuilder) until it ends. It keeps blocks
//! of a dropped pool until it next visits any pool's depot for a small class or a free. These blocks keep no other
//! memory of an arena that the pool made: it releases its memory once no buffer is live, if it grows or the device
//! [releases](vrampool_backend::Memory::release) memory behind handles.
//!
//! A thread frees nothing when it ends: its blocks move to the depot, and [another
//! thread](crate::heap::magazine::left_blocks) frees those of dropped pools.

pub(crate) mod class_table;
mod counters;
mod exchange;
pub(crate) mod left_blocks;
mod local;
pub(crate) mod slots;

pub(crate) use {
    counters::ThreadCounters,
    local::{
        apply_delta, forget_known, inspect, know, leave, put, put_in_shared_bin, take, take_class,
        take_known, visit, visit_with, with_known,
    },
};

#[cfg(not(model))]
pub use local::Numbers;
#[cfg(all(test, model))]
pub(crate) use local::end_thread;

use crate::heap::magazine::class_table::BINS;
use crate::heap::magazine::counters::HighWater;
use crate::heap::store::SAME_STREAM_SEARCH;
use crate::heap::{Block, Delta, NEVER, PoolCore};
use std::cell::{Cell, RefCell};
use std::mem;
use std::sync::Arc;
use vrampool_backend::StreamId;

/// One thread's magazines for one pool at a time. Fields used by each hit come first, to share a line.
#[repr(C, align(64))]
pub(crate) struct ThreadCache {
    /// The epoch of the pool that its content belongs to.
    epoch: Cell<u64>,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Bytes served from its bins, less returned ones, since the last report.
    live: HighWater,
    pool: RefCell<Option<Arc<PoolCore>>>,
    /// Bytes of all its slots.
    pub(crate) leased: Cell<u64>,
    bins: [Cell<Option<Box<Block>>>; BINS],
    /// State of each bin for refills.
    refills: [Cell<RefillState>; BINS],
}

/// Why a thread returns its magazines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    Pool,
    /// The thread ends, and nothing may be freed.
    Thread,
}

/// Use of a bin, as of its last refill.
#[derive(Debug, Clone, Copy, Default)]
struct RefillState {
    /// Number of blocks of the last refill.
    refill: u64,
    /// Hits at that time.
    hits: u64,
    /// Idle blocks at that time.
    idle: u64,
}

impl ThreadCache {
    fn new() -> Self {
        Self {
            epoch: Cell::new(NEVER),
            counters: Arc::new(ThreadCounters::new()),
            bins: [const { Cell::new(None) }; BINS],
            refills: [const { Cell::new(RefillState { refill: 0, hits: 0, idle: 0 }) }; BINS],
            live: HighWater::new(),
            leased: Cell::new(0),
            pool: RefCell::new(None),
        }
    }

    #[inline(always)]
    fn bin(&self, bin: u8) -> &Cell<Option<Box<Block>>> {
        &self.bins[usize::from(bin) % BINS]
    }

    /// Returns the slots of the bin that holds `class`.
    pub(crate) fn slots_of(&self, class: u64) -> u64 {
        let bin = self.counters.bin(class_table::number(class));
        if bin.class() == class { bin.slots() } else { 0 }
    }

    fn refill_state(&self, bin: u8) -> &Cell<RefillState> {
        &self.refills[usize::from(bin) % BINS]
    }

    /// Serves a hit if the newest block in the bin needs no wait.
    #[inline(always)]
    fn pop(&self, number: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let bin = self.bin(number);
        let mut block = bin.take()?;
        if !block.is_ready_on(stream) {
            set(bin, Some(block));
            return self.pop_below(number, requested, stream);
        }
        set(bin, block.next.take());
        self.count_hit(number, &mut block, requested);
        Some(block)
    }

    /// As [`pop`](Self::pop), for one of the blocks below: streams that take turns have their blocks in one
    /// bin.
    #[cold]
    #[inline(never)]
    fn pop_below(&self, number: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let mut block = self.unstack(number, SAME_STREAM_SEARCH, |block| block.is_ready_on(stream))?;
        self.count_hit(number, &mut block, requested);
        Some(block)
    }

    #[inline(always)]
    fn count_hit(&self, bin: u8, block: &mut Block, requested: u64) {
        block.requested = requested;
        // Loaded once: the compiler must assume that a write to a counter changes this pointer.
        let counters = &*self.counters;
        counters.bin(bin).pop();
        counters.bin(bin).hit();
        self.live.rise(block.key.class);
        counters.requested().rise(requested);
    }

    /// Keeps a returned block of `bin`, if the bin has a slot for it.
    #[inline(always)]
    fn push(&self, bin: u8, block: Box<Block>) -> Option<Box<Block>> {
        let counters = &*self.counters;
        if !counters.bin(bin).push() {
            return Some(block);
        }
        self.live.fall(block.key.class);
        counters.requested().fall(block.requested);
        self.stack(bin, block);
        None
    }

    /// Whether no block was served or returned since [`take_delta`](Self::take_delta).
    #[inline]
    fn has_no_delta(&self) -> bool {
        self.live.is_untouched() && self.counters.requested().is_untouched()
    }

    /// Returns and resets the bytes served since the last call, and the highest sum in between.
    fn take_delta(&self) -> (Delta, Delta) {
        let ((live, most_live), (requested, most_requested)) =
            (self.live.take(), self.counters.requested().take());
        (Delta { requested, live }, Delta { requested: most_requested, live: most_live })
    }

    /// Puts a block on top of its bin, uncounted.
    #[inline(always)]
    fn stack(&self, bin: u8, mut block: Box<Block>) {
        let bin = self.bin(bin);
        // `next` is empty, so there is nothing to drop.
        mem::forget(mem::replace(&mut block.next, bin.take()));
        set(bin, Some(block));
    }

    /// Takes out the newest of the first `search` blocks of a bin that satisfies `wanted`, uncounted.
    fn unstack(&self, bin: u8, search: usize, wanted: impl Fn(&Block) -> bool) -> Option<Box<Block>> {
        let bin = self.bin(bin);
        let mut head = bin.take();
        let mut found = None;
        let mut link = &mut head;
        for _ in 0..search {
            match link {
                Some(block) if wanted(block) => {
                    let next = block.next.take();
                    found = mem::replace(link, next);
                    break;
                }
                Some(block) => link = &mut block.next,
                None => break,
            }
        }
        set(bin, head);
        found
    }

    /// Calls `visit` with the first `most` blocks of a bin.
    fn visit(&self, bin: u8, most: usize, mut visit: impl FnMut(&Block)) {
        let bin = self.bin(bin);
        let head = bin.take();
        let mut next = head.as_deref();
        for _ in 0..most {
            let Some(block) = next else { break };
            visit(block);
            next = block.next.as_deref();
        }
        set(bin, head);
    }

    /// Takes out all but the newest `keep` blocks of a bin, uncounted; newest first.
    fn unstack_below(&self, bin: u8, keep: u64) -> Vec<Box<Block>> {
        let bin = self.bin(bin);
        let mut head = bin.take();
        let mut link = &mut head;
        for _ in 0..keep {
            match link {
                Some(block) => link = &mut block.next,
                None => break,
            }
        }
        let mut below = Vec::new();
        let mut rest = link.take();
        while let Some(mut block) = rest {
            rest = block.next.take();
            below.push(block);
        }
        set(bin, head);
        below
    }

    /// Returns blocks and slots to their depot.
    fn leave(&self) {
        match self.vacate(Leaving::Pool) {
            Some((pool, dismissed)) if left_blocks::is_deferring() => left_blocks::add(pool, dismissed),
            Some((pool, dismissed)) => _ = pool.release_blocks(dismissed),
            None => {}
        }
    }

    /// As [`leave`](Self::leave) at the thread's end: drops neither a block nor the last handle of a pool.
    fn leave_at_end(&self) {
        if let Some((pool, dismissed)) = self.vacate(Leaving::Thread) {
            left_blocks::add(pool, dismissed);
        }
    }

    /// Returns the pool, and the blocks that it does not keep.
    fn vacate(&self, leaving: Leaving) -> Option<(Arc<PoolCore>, Vec<Box<Block>>)> {
        let pool = self.pool.try_borrow_mut().ok()?.take()?;
        let epoch = self.epoch.replace(NEVER);
        let dismissed = pool.depot().dismiss(self, epoch, leaving);
        // Other threads may also wait for its slots.
        pool.notify_freed();
        self.leased.set(0);
        Some((pool, dismissed))
    }
}

/// Sets a bin that is known to be empty, so there is nothing to drop.
#[inline(always)]
fn set(bin: &Cell<Option<Box<Block>>>, blocks: Option<Box<Block>>) {
    mem::forget(bin.replace(blocks));
}

#[cfg(all(test, feature = "host", not(model)))]
mod tests {
    use crate::host::HostDevice;
    use crate::{Backend, Buffer, Pool};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    /// With the depot's lock held: the next buffer is allocated, then the previous freed, in changing sizes.
    #[test]
    fn a_free_that_its_bin_has_room_for_needs_no_lock() {
        let device = HostDevice::new();
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).build().expect("good settings");
        let ((warm, is_warm), (go, going), (done, is_done)) =
            (mpsc::channel(), mpsc::channel(), mpsc::channel());
        let worker = thread::spawn({
            let pool = pool.clone();
            move || {
                let turn = |before: Option<Buffer<HostDevice>>, bytes| {
                    let next = pool.allocate(bytes, &stream).expect("memory");
                    drop(before);
                    next
                };
                let mut last = turn(None, 1000);
                for bytes in [900, 1000, 900, 1000] {
                    last = turn(Some(last), bytes);
                }
                warm.send(()).expect("the receiver waits");
                going.recv().expect("the signal");
                for bytes in [900, 1000, 900, 1000, 900] {
                    last = turn(Some(last), bytes);
                }
                done.send(()).expect("the receiver waits");
            }
        });
        is_warm.recv().expect("it works");
        let depot = pool.handle.core.depot();
        go.send(()).expect("it listens");
        let outcome = is_done.recv_timeout(Duration::from_secs(60));
        drop(depot);
        worker.join().expect("no panic");
        assert!(outcome.is_ok(), "it waited for the lock");
    }
}
