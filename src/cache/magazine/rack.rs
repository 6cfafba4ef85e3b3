//! One thread's magazines for one pool: lists of idle blocks, linked through their records.

use crate::cache::accounts::Lent;
use crate::cache::block::Block;
use crate::cache::core::{NEVER, PoolCore};
use crate::cache::magazine::class_table;
use crate::cache::magazine::class_table::LISTS;
use crate::cache::magazine::counters::{HighWater, Tally};
use crate::cache::magazine::hot;
use crate::cache::magazine::hot::{Given, HotBlock};
use crate::cache::orphans;
use std::cell::Cell;
use std::mem;
use std::sync::Arc;
use vrampool_backend::StreamId;

/// One thread's magazines for one pool at a time. Fields used by each hit come first, to share a line.
#[repr(C, align(64))]
pub(crate) struct Rack {
    /// The epoch of the pool that its content belongs to.
    pub(crate) epoch: Cell<u64>,
    pub(crate) tally: Arc<Tally>,
    /// Bytes lent from its lists, less returned ones, since the last settlement.
    live: HighWater,
    /// A second handle of the tally, for [the hot block](crate::cache::magazine::hot) while it is of this
    /// rack, so that no reference count changes.
    pub(super) hot_tally: Cell<Option<Arc<Tally>>>,
    lists: [Cell<Option<Box<Block>>>; LISTS],
    /// State of each list for refills.
    habits: [Cell<Habit>; LISTS],
    /// Bytes of all its slots.
    pub(crate) leased: Cell<u64>,
    pub(crate) pool: Cell<Option<Arc<PoolCore>>>,
}

/// Why a thread gives up magazines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    Pool,
    /// The thread ends, and nothing may be freed.
    Thread,
}

/// The former pool of a rack, and the blocks that the pool does not keep.
struct Vacated {
    pool: Arc<PoolCore>,
    gone: Vec<Box<Block>>,
    is_closed: bool,
}

/// Use of a list, as of its last refill.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Habit {
    /// Number of blocks of the last refill.
    pub(crate) refill: u64,
    /// Hits at that time.
    pub(crate) hits: u64,
    /// Idle blocks at that time.
    pub(crate) idle: u64,
}

impl Rack {
    pub(crate) fn new() -> Self {
        let tally = Arc::new(Tally::new());
        Self {
            epoch: Cell::new(NEVER),
            hot_tally: Cell::new(Some(Arc::clone(&tally))),
            tally,
            lists: [const { Cell::new(None) }; LISTS],
            habits: [const { Cell::new(Habit { refill: 0, hits: 0, idle: 0 }) }; LISTS],
            live: HighWater::new(),
            leased: Cell::new(0),
            pool: Cell::new(None),
        }
    }

    #[inline(always)]
    fn list(&self, list: u8) -> &Cell<Option<Box<Block>>> {
        &self.lists[usize::from(list) % LISTS]
    }

    /// Returns the slots of the list that holds `class`.
    pub(crate) fn slots_of(&self, class: u64) -> u64 {
        let list = self.tally.list(class_table::number(class));
        if list.class() == class { list.slots() } else { 0 }
    }

    pub(crate) fn habit(&self, list: u8) -> &Cell<Habit> {
        &self.habits[usize::from(list) % LISTS]
    }

    /// Serves a hit with [the hot block](crate::cache::magazine::hot), which may set a new peak, if it needs
    /// no wait. A hit that sets a new peak is accounted for at once.
    pub(crate) fn pop_hot(&self, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let popped = hot::of(self.epoch.get(), |hot| {
            if self.live.has_room(hot.class()?) && self.tally.requested().has_room(requested) {
                hot.prove(requested + 1);
                return hot.lend(requested, stream);
            }
            let (list, mut block) = hot.take_ready(stream)?;
            self.count_hit(list, &mut block, requested);
            Some(block)
        });
        popped.flatten()
    }

    /// Serves a hit if the newest block in the list needs no wait. [The hot
    /// block](crate::cache::magazine::hot) is out, or of another list.
    #[inline(always)]
    pub(crate) fn pop(&self, number: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let list = self.list(number);
        let mut block = list.take()?;
        if !block.is_ready_on(stream) {
            set(list, Some(block));
            return None;
        }
        set(list, block.next.take());
        // Both blocks are out now, and may set a new peak.
        self.settle_hot();
        self.count_hit(number, &mut block, requested);
        Some(block)
    }

    #[inline(always)]
    fn count_hit(&self, list: u8, block: &mut Block, requested: u64) {
        block.requested = requested;
        let tally = self.tally.list(list);
        tally.pop();
        tally.hit();
        self.live.rise(block.key.class);
        self.tally.requested().rise(requested);
    }

    /// Keeps a returned block of `list`, if the list has a slot for it. The block is not [the hot
    /// one](hot::put), or changed since it was lent.
    #[inline(always)]
    pub(crate) fn push(&self, list: u8, block: Box<Block>) -> Option<Box<Block>> {
        if !self.has_slot(list) {
            return Some(block);
        }
        let (class, requested) = (block.key.class, block.requested);
        let mut block = Some(block);
        let before = hot::of(self.epoch.get(), |hot| hot.replace(list, block.take()?));
        match before {
            Some(Some((list, before))) => self.stack(list, before),
            Some(None) => self.settle_hot(),
            None => self.begin_hot(list, block),
        }
        self.live.fall(class);
        self.tally.requested().fall(requested);
        self.tally.set_hot_list(list);
        None
    }

    /// Takes a slot of a list. The hot block keeps its slot while it is out, until it is accounted for.
    #[inline(always)]
    fn has_slot(&self, list: u8) -> bool {
        let tally = self.tally.list(list);
        tally.push() || {
            self.settle_hot();
            tally.push()
        }
    }

    /// As [`push`](Self::push), for classes that share lists.
    pub(crate) fn push_in_shared_list(&self, list: u8, block: Box<Block>) -> Option<Box<Block>> {
        if !self.has_slot(list) {
            return Some(block);
        }
        self.live.fall(block.key.class);
        self.tally.requested().fall(block.requested);
        self.stack(list, block);
        None
    }

    /// Puts the hot block in its list, or accounts for it if it is out.
    pub(crate) fn flush_hot(&self) {
        if let Some(given) = hot::of(self.epoch.get(), HotBlock::give_up).flatten() {
            self.take_back(given);
        }
    }

    /// Takes [the hot block](crate::cache::magazine::hot) back when it is no longer this thread's hot one.
    pub(crate) fn take_back(&self, Given { tally, block }: Given) {
        // `hot_tally` is empty meanwhile, so there is nothing to drop.
        mem::forget(self.hot_tally.replace(Some(tally)));
        match block {
            Some((list, block)) => self.stack(list, block),
            None => self.settle_hot(),
        }
    }

    /// Accounts for the hot block, if it is out, like for any other.
    fn settle_hot(&self) {
        if let Some((list, requested)) = self.tally.hot_lent() {
            let list = self.tally.list(list);
            list.pop();
            self.live.rise(list.class());
            self.tally.requested().rise(requested);
            self.tally.forget_hot();
        }
    }

    /// Requires a new check for peaks before the hot block is lent.
    fn doubt_hot(&self) {
        hot::of(self.epoch.get(), |hot| hot.prove(0));
    }

    /// Whether no block was lent or returned since [`take_lent`](Self::take_lent).
    #[inline]
    pub(crate) fn lent_nothing(&self) -> bool {
        self.live.is_untouched() && self.tally.requested().is_untouched() && self.tally.hot_lent().is_none()
    }

    /// Returns and resets the bytes lent since the last call, and the highest sum in between.
    pub(crate) fn take_lent(&self) -> (Lent, Lent) {
        self.settle_hot();
        self.doubt_hot();
        let ((live, most_live), (requested, most_requested)) =
            (self.live.take(), self.tally.requested().take());
        (Lent { requested, live }, Lent { requested: most_requested, live: most_live })
    }

    /// Puts a block on top of its list, uncounted.
    #[inline(always)]
    pub(crate) fn stack(&self, list: u8, mut block: Box<Block>) {
        let list = self.list(list);
        // `next` is empty, so there is nothing to drop.
        mem::forget(mem::replace(&mut block.next, list.take()));
        set(list, Some(block));
    }

    /// Takes out the newest of the first `search` blocks of a list that satisfies `wanted`, uncounted.
    pub(crate) fn unstack(
        &self,
        list: u8,
        search: usize,
        wanted: impl Fn(&Block) -> bool,
    ) -> Option<Box<Block>> {
        self.flush_hot();
        let list = self.list(list);
        let mut head = list.take();
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
        set(list, head);
        found
    }

    /// Takes out all but the newest `keep` blocks of a list, uncounted; newest first.
    pub(crate) fn unstack_below(&self, list: u8, keep: u64) -> Vec<Box<Block>> {
        self.flush_hot();
        let list = self.list(list);
        let mut head = list.take();
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
        set(list, head);
        below
    }

    /// Returns blocks and slots to their depot.
    pub(crate) fn leave(&self) {
        if let Some(Vacated { pool, gone, is_closed }) = self.vacate(Leaving::Pool) {
            pool.give_back(gone);
            if is_closed {
                orphans::gave_up();
            }
        }
    }

    /// As [`leave`](Self::leave) at the thread's end: drops neither a block nor the last handle of a pool.
    pub(crate) fn leave_at_end(&self) {
        if let Some(Vacated { pool, gone, is_closed }) = self.vacate(Leaving::Thread) {
            orphans::leave(pool, gone, is_closed);
        }
    }

    fn vacate(&self, leaving: Leaving) -> Option<Vacated> {
        self.flush_hot();
        let epoch = self.epoch.replace(NEVER);
        let pool = self.pool.take()?;
        let mut depot = pool.depot();
        let gone = depot.dismiss(self, epoch, leaving);
        let is_closed = depot.is_closed();
        drop(depot);
        // Other threads may also wait for its slots.
        pool.notify_freed();
        self.leased.set(0);
        Some(Vacated { pool, gone, is_closed })
    }
}

/// Sets a list that is known to be empty, so there is nothing to drop.
#[inline(always)]
fn set(list: &Cell<Option<Box<Block>>>, blocks: Option<Box<Block>>) {
    mem::forget(list.replace(blocks));
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
    fn what_a_list_has_room_for_needs_no_lock() {
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
                warm.send(()).expect("somebody waits");
                going.recv().expect("somebody says so");
                for bytes in [900, 1000, 900, 1000, 900] {
                    last = turn(Some(last), bytes);
                }
                done.send(()).expect("somebody waits");
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
