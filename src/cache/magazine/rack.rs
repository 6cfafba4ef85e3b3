//! One thread's magazines for one pool: lists of idle blocks, linked through their records.

use crate::cache::accounts::Lent;
use crate::cache::block::Block;
use crate::cache::core::PoolCore;
use crate::cache::magazine;
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

/// An epoch that no pool is ever in.
pub(crate) const NEVER: u64 = u64::MAX;

/// One thread's magazines for one pool at a time. In this order: what each hit touches shares a line.
#[repr(C, align(64))]
pub(crate) struct Rack {
    /// The epoch of the pool's that its content is of.
    pub(crate) epoch: Cell<u64>,
    pub(crate) tally: Arc<Tally>,
    /// Bytes lent from its lists, less those that came back, since the depot was last told. What was asked
    /// for of them is in the tally.
    live: HighWater,
    /// The tally once more, for [the hot block](crate::cache::magazine::hot) while that is of this rack: so
    /// no count of references changes.
    hot_tally: Cell<Option<Arc<Tally>>>,
    lists: [Cell<Option<Box<Block>>>; LISTS],
    /// What refilling remembers of each list.
    habits: [Cell<Habit>; LISTS],
    /// Bytes of all its slots.
    pub(crate) leased: Cell<u64>,
    pub(crate) pool: Cell<Option<Arc<PoolCore>>>,
}

/// What a thread leaves when it gives magazines up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaving {
    Pool,
    /// Itself: nothing is freed there.
    Thread,
}

/// What magazines were of, and the blocks that it does not keep.
struct Vacated {
    pool: Arc<PoolCore>,
    gone: Vec<Box<Block>>,
    is_closed: bool,
}

/// How a list is used, seen at the depot.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Habit {
    /// How many blocks it was last refilled with.
    pub(crate) refill: u64,
    /// The hits by then.
    pub(crate) hits: u64,
    /// What it held then.
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

    /// The slots of the list that is of `class`.
    pub(crate) fn slots_of(&self, class: u64) -> u64 {
        let list = self.tally.list(class_table::number(class));
        if list.class() == class { list.slots() } else { 0 }
    }

    pub(crate) fn habit(&self, list: u8) -> &Cell<Habit> {
        &self.habits[usize::from(list) % LISTS]
    }

    /// A hit by [the hot block](crate::cache::magazine::hot), of which it is not known whether it makes a new
    /// peak, if it needs no wait. If it does make one it is accounted for as any other.
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

    /// A hit, if the newest block in the list needs no wait. [The hot block](crate::cache::magazine::hot) is
    /// out, or of another list.
    #[inline(always)]
    pub(crate) fn pop(&self, number: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let list = self.list(number);
        let mut block = list.take()?;
        if !block.is_ready_on(stream) {
            set(list, Some(block));
            return None;
        }
        set(list, block.next.take());
        // Both are out now, and may be a new peak.
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

    /// Keeps a block of `list` that came back, if that has a slot for it: one that is not
    /// [the hot one](hot::put), or not as it went out.
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

    /// Takes a slot of a list, perhaps that of the hot block, which is out and keeps it until it is
    /// accounted for.
    #[inline(always)]
    fn has_slot(&self, list: u8) -> bool {
        let tally = self.tally.list(list);
        tally.push() || {
            self.settle_hot();
            tally.push()
        }
    }

    /// The hot block is another pool's, or there is none.
    #[cold]
    #[inline(never)]
    fn begin_hot(&self, list: u8, block: Option<Box<Block>>) {
        magazine::flush_hot();
        let Some(block) = block else { return };
        match self.hot_tally.take() {
            None => self.stack(list, block),
            Some(tally) => {
                if let Some(given) = hot::begin(self.epoch.get(), list, tally, block) {
                    self.take_back(given);
                }
            }
        }
    }

    /// As [`push`](Self::push), where classes share lists.
    pub(crate) fn push_in_shared_list(&self, list: u8, block: Box<Block>) -> Option<Box<Block>> {
        if !self.has_slot(list) {
            return Some(block);
        }
        self.live.fall(block.key.class);
        self.tally.requested().fall(block.requested);
        self.stack(list, block);
        None
    }

    /// Puts the block that came back last in its list, or accounts for it when it is out: before lists or
    /// accounts are looked at.
    pub(crate) fn flush_hot(&self) {
        if let Some(given) = hot::of(self.epoch.get(), HotBlock::give_up).flatten() {
            self.take_back(given);
        }
    }

    fn take_back(&self, Given { tally, block }: Given) {
        // It has none meanwhile: there is nothing to be dropped.
        mem::forget(self.hot_tally.replace(Some(tally)));
        match block {
            Some((list, block)) => self.stack(list, block),
            None => self.settle_hot(),
        }
    }

    /// Accounts for the hot block, if it is out, as for any other.
    fn settle_hot(&self) {
        if let Some((list, requested)) = self.tally.hot_lent() {
            let list = self.tally.list(list);
            list.pop();
            self.live.rise(list.class());
            self.tally.requested().rise(requested);
            self.tally.forget_hot();
        }
    }

    /// What the hot block may be lent for is to be found out anew.
    fn doubt_hot(&self) {
        hot::of(self.epoch.get(), |hot| hot.prove(0));
    }

    /// Whether nothing was lent or came back since that was last [taken](Self::take_lent).
    #[inline]
    pub(crate) fn lent_nothing(&self) -> bool {
        self.live.is_untouched() && self.tally.requested().is_untouched() && self.tally.hot_lent().is_none()
    }

    /// What was lent since this was last asked, and the most that was in between.
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
        // It has none below it yet: there is nothing to be dropped.
        mem::forget(mem::replace(&mut block.next, list.take()));
        set(list, Some(block));
    }

    /// Takes out the newest of the first `search` blocks of a list that `wanted` finds, uncounted.
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

    /// Gives blocks and slots back to the depot they are of.
    pub(crate) fn leave(&self) {
        if let Some(Vacated { pool, gone, is_closed }) = self.vacate(Leaving::Pool) {
            pool.give_back(gone);
            if is_closed {
                orphans::gave_up();
            }
        }
    }

    /// The same where the thread ends: neither a block nor the last handle of a pool is dropped there.
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
        // Of its slots, too, of which others may wait to hear.
        pool.notify_freed();
        self.leased.set(0);
        Some(Vacated { pool, gone, is_closed })
    }
}

/// Sets a list that is known to be empty: there is nothing to be dropped.
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

    /// With the depot's lock taken by somebody else: the next is asked for, then the one before freed, in
    /// sizes that change.
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
