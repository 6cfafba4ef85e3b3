//! One thread's magazines for one pool: lanes of idle blocks, linked through their records.

use crate::block::Block;
use crate::budget::Lent;
use crate::lanes::{self, LANES, NO_LANE};
use crate::shared::Shared;
use crate::tally::{HighWater, Tally};
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
    /// Bytes lent from its lanes, less those that came back, since the depot was last told. What was asked for of them is in
    /// the tally.
    live: HighWater,
    /// The block that came back last, if it is still here, and its lane, which it is not in. Mostly it is the one that is
    /// wanted next, and where it is is known before anything of the block is.
    last: Cell<Option<Box<Block>>>,
    last_lane: Cell<u8>,
    /// Requests of fewer bytes are no new peak when that block serves them, as far as was looked. 0 whenever what was lent
    /// otherwise has risen since, or the block is another.
    proven: Cell<u64>,
    lanes: [Cell<Option<Box<Block>>>; LANES],
    /// What refilling remembers of each lane.
    habits: [Cell<Habit>; LANES],
    /// Bytes of all its slots.
    pub(crate) leased: Cell<u64>,
    pub(crate) pool: Cell<Option<Arc<Shared>>>,
}

/// How a lane is used, seen at the depot.
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
        Self {
            epoch: Cell::new(NEVER),
            tally: Arc::new(Tally::new()),
            last: Cell::new(None),
            last_lane: Cell::new(NO_LANE),
            proven: Cell::new(0),
            lanes: [const { Cell::new(None) }; LANES],
            habits: [const { Cell::new(Habit { refill: 0, hits: 0, idle: 0 }) }; LANES],
            live: HighWater::new(),
            leased: Cell::new(0),
            pool: Cell::new(None),
        }
    }

    #[inline(always)]
    fn lane(&self, lane: u8) -> &Cell<Option<Box<Block>>> {
        &self.lanes[usize::from(lane) % LANES]
    }

    /// The slots of the lane that is of `class`.
    pub(crate) fn slots_of(&self, class: u64) -> u64 {
        let lane = self.tally.lane(lanes::number(class));
        if lane.class() == class { lane.slots() } else { 0 }
    }

    pub(crate) fn habit(&self, lane: u8) -> &Cell<Habit> {
        &self.habits[usize::from(lane) % LANES]
    }

    /// A hit, if the newest block for the lane needs no wait.
    ///
    /// Mostly a block goes out and comes back before any other, over and over. So what goes out of `last` is noted in one
    /// word, [which others read](Tally::last_lent), and accounted for only when another block comes back first; here it is
    /// only made sure that it would be no new peak.
    #[inline(always)]
    pub(crate) fn pop(&self, number: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        if self.last_lane.get() != number {
            return self.pop_from_lane(number, requested, stream);
        }
        match self.last.take() {
            Some(mut block) if block.is_ready_on(stream) => {
                block.requested = requested;
                let tally: &Tally = &self.tally;
                tally.lane(number).hit();
                tally.lend_last(requested);
                if requested >= self.proven.get() {
                    self.prove(block.key.class, requested);
                }
                Some(block)
            }
            Some(block) => {
                set(&self.last, Some(block));
                None
            }
            None => self.pop_from_lane(number, requested, stream),
        }
    }

    /// A function of its own, so that where the last block is does not wait for which lane it is of.
    #[inline(never)]
    fn pop_from_lane(&self, number: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let lane = self.lane(number);
        let mut block = lane.take()?;
        if !block.is_ready_on(stream) {
            set(lane, Some(block));
            return None;
        }
        set(lane, block.next.take());
        // Both are out now, and may be a new peak.
        self.settle_last();
        self.proven.set(0);
        block.requested = requested;
        let tally = self.tally.lane(number);
        tally.pop();
        tally.hit();
        self.live.rise(block.key.class);
        self.tally.requested().rise(requested);
        Some(block)
    }

    /// Keeps a block that came back, if its lane has a slot for it.
    #[inline(always)]
    pub(crate) fn push(&self, block: Box<Block>) -> Option<Box<Block>> {
        if self.last_lane.get() == block.lane && self.tally.last_came_back(block.requested) {
            set(&self.last, Some(block));
            return None;
        }
        self.push_anew(block)
    }

    /// As [`push`](Self::push), of a block of `lane` that does not say so itself: of a pool that is recorded.
    #[cfg(feature = "trace")]
    #[inline(always)]
    pub(crate) fn push_back(&self, lane: u8, block: Box<Block>) -> Option<Box<Block>> {
        if self.last_lane.get() == lane && self.tally.last_came_back(block.requested) {
            set(&self.last, Some(block));
            return None;
        }
        self.push_to(lane, block)
    }

    /// A block comes back that is not the one that went out last, or not as it went.
    #[inline(never)]
    fn push_anew(&self, block: Box<Block>) -> Option<Box<Block>> {
        self.push_to(block.lane, block)
    }

    #[inline(always)]
    fn push_to(&self, lane: u8, block: Box<Block>) -> Option<Box<Block>> {
        if !self.tally.lane(lane).push() {
            return Some(block);
        }
        self.stow();
        self.live.fall(block.key.class);
        self.tally.requested().fall(block.requested);
        self.last_lane.set(lane);
        self.proven.set(0);
        self.tally.set_last_lane(lane);
        set(&self.last, Some(block));
        None
    }

    /// As [`push`](Self::push), where classes share lanes.
    pub(crate) fn push_in_shared_lane(&self, lane: u8, block: Box<Block>) -> Option<Box<Block>> {
        if !self.tally.lane(lane).push() {
            return Some(block);
        }
        self.live.fall(block.key.class);
        self.tally.requested().fall(block.requested);
        self.stack(lane, block);
        None
    }

    /// Puts the block that came back last in its lane, or accounts for it when it is out: before lanes or accounts are looked
    /// at.
    pub(crate) fn stow(&self) {
        match self.last.take() {
            Some(last) => self.stack(self.last_lane.get(), last),
            None => self.settle_last(),
        }
        self.last_lane.set(NO_LANE);
    }

    /// Finds out whether the last block, which went out, makes a new peak, and if so accounts for it as for any other.
    #[cold]
    #[inline(never)]
    fn prove(&self, class: u64, requested: u64) {
        if self.live.has_room(class) && self.tally.requested().has_room(requested) {
            self.proven.set(requested + 1);
        } else {
            self.settle_last();
        }
    }

    /// Accounts for the last block, if it is out, as for any other.
    fn settle_last(&self) {
        if let Some((lane, requested)) = self.tally.last_lent() {
            let lane = self.tally.lane(lane);
            lane.pop();
            self.live.rise(lane.class());
            self.tally.requested().rise(requested);
            self.tally.forget_last();
            self.proven.set(0);
        }
    }

    /// Whether nothing was lent or came back since that was last [taken](Self::take_lent).
    #[inline]
    pub(crate) fn lent_nothing(&self) -> bool {
        self.live.is_untouched() && self.tally.requested().is_untouched() && self.tally.last_lent().is_none()
    }

    /// What was lent since this was last asked, and the most that was in between.
    pub(crate) fn take_lent(&self) -> (Lent, Lent) {
        self.settle_last();
        self.proven.set(0);
        let ((live, most_live), (requested, most_requested)) =
            (self.live.take(), self.tally.requested().take());
        (Lent { requested, live }, Lent { requested: most_requested, live: most_live })
    }

    /// Puts a block on top of its lane, uncounted.
    #[inline(always)]
    pub(crate) fn stack(&self, lane: u8, mut block: Box<Block>) {
        let lane = self.lane(lane);
        // It has none below it yet: there is nothing to be dropped.
        mem::forget(mem::replace(&mut block.next, lane.take()));
        set(lane, Some(block));
    }

    /// Takes out the newest of the first `search` blocks of a lane that `wanted` finds, uncounted.
    pub(crate) fn unstack(
        &self,
        lane: u8,
        search: usize,
        wanted: impl Fn(&Block) -> bool,
    ) -> Option<Box<Block>> {
        self.stow();
        let lane = self.lane(lane);
        let mut head = lane.take();
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
        set(lane, head);
        found
    }

    /// Takes out all but the newest `keep` blocks of a lane, uncounted; newest first.
    pub(crate) fn unstack_below(&self, lane: u8, keep: u64) -> Vec<Box<Block>> {
        self.stow();
        let lane = self.lane(lane);
        let mut head = lane.take();
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
        set(lane, head);
        below
    }

    /// Gives blocks and slots back to the depot they are of.
    pub(crate) fn leave(&self) {
        let epoch = self.epoch.replace(NEVER);
        if let Some(pool) = self.pool.take() {
            let gone = pool.depot().dismiss(self, epoch);
            self.leased.set(0);
            pool.give_back(gone);
        }
    }
}

/// Sets a lane that is known to be empty: there is nothing to be dropped.
#[inline(always)]
fn set(lane: &Cell<Option<Box<Block>>>, blocks: Option<Box<Block>>) {
    mem::forget(lane.replace(blocks));
}
