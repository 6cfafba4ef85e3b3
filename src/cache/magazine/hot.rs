//! The block that was freed last on this thread, of whichever pool: usually the next one to be requested.
//!
//! Most programs free a block and request it again before any other. The last freed block is therefore not
//! kept in its [lane](crate::cache::magazine::rack), but in a thread-local slot without a destructor, which
//! a hit reaches without a search of the thread's racks. The epoch, unique to each pool, identifies the
//! block's rack.
//!
//! A hit is recorded in one word, which [other threads read](Tally::last_lent), and is accounted for only
//! when another block is freed first. The hit itself only verifies that it sets no new peak.

use crate::cache::block::Block;
use crate::cache::core::Shared;
use crate::cache::magazine;
use crate::cache::magazine::class_table::NO_LANE;
use crate::cache::magazine::counters::Tally;
use crate::cache::magazine::rack::NEVER;
use std::cell::RefCell;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::StreamId;

/// The epoch of no rack, whether its pool is known or not.
const NOBODY: u64 = NEVER - 1;

/// Where a thread has it: with the mark of who borrows it, all that a hit touches shares a line.
///
/// Where threads' variables are not the loader's but looked up by keys, a thread's end may drop it before the
/// racks that take it back: what it holds stays taken then.
#[repr(align(64))]
struct Place(ManuallyDrop<RefCell<Last>>);

impl Place {
    const fn empty() -> Self {
        Self(ManuallyDrop::new(RefCell::new(Last::NONE)))
    }
}

#[repr(C)]
pub(crate) struct Last {
    /// The epoch of the rack that it is of.
    epoch: u64,
    /// Requests of fewer bytes are no new peak when the block serves them, as far as was looked. 0 whenever
    /// what was lent otherwise has risen since, or another block came back.
    proven: u64,
    /// None while it is out.
    block: Option<Box<Block>>,
    /// The rack's.
    tally: Option<Arc<Tally>>,
    /// The lane that the block is of.
    lane: u8,
    /// The number of the pool, by which the thread finds the rack.
    slot: u8,
}

/// What a rack gets back.
pub(crate) struct Given {
    pub(crate) tally: Arc<Tally>,
    /// The block and its lane, if it is not out.
    pub(crate) block: Option<(u8, Box<Block>)>,
}

#[cfg(not(model))]
thread_local! {
    static LAST: Place = const { Place::empty() };
}

#[cfg(model)]
loom::thread_local! {
    static LAST: Place = Place::empty();
}

/// What a look at the last block finds.
pub(crate) enum Look {
    /// It is of the lane: the block, if it needs no wait.
    Lent(Option<Box<Block>>),
    /// It is of the lane, and may be a new peak.
    Unproven,
    /// It is out, or of another lane.
    Elsewhere,
}

/// A block of `lane`: the last one, if that is of this lane and here, or one of the lane's. No block may mean
/// many things: ask the depot.
#[inline(never)]
pub(crate) fn take(pool: &Shared, lane: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    match look(pool, lane, requested, stream) {
        Look::Lent(block) => block,
        Look::Unproven => magazine::take_last(pool, requested, stream),
        Look::Elsewhere => magazine::take_from_lane(pool, lane, requested, stream),
    }
}

/// As [`take`], of the last block alone.
#[inline(always)]
pub(crate) fn look(pool: &Shared, lane: u8, requested: u64, stream: StreamId) -> Look {
    LAST.with(|last| {
        let Ok(mut last) = last.0.try_borrow_mut() else { return Look::Elsewhere };
        if last.epoch != pool.epoch.load(Relaxed) || last.lane != lane || last.block.is_none() {
            // It is out, or may soon be out together with what is taken now.
            last.proven = 0;
            return Look::Elsewhere;
        }
        if requested >= last.proven { Look::Unproven } else { Look::Lent(last.lend(requested, stream)) }
    })
}

/// Takes the last block back, if that is what this is. Answers one that is not.
#[inline(always)]
pub(crate) fn put(lane: u8, block: Box<Block>) -> Option<Box<Block>> {
    LAST.with(|last| {
        let Ok(mut last) = last.0.try_borrow_mut() else { return Some(block) };
        let is_of_rack = last.epoch == block.pool.epoch.load(Relaxed) && last.lane == lane;
        match &last.tally {
            Some(tally) if is_of_rack && tally.last_came_back(block.requested) => {
                set(&mut last.block, block);
                None
            }
            _ => Some(block),
        }
    })
}

/// Does something with it, if it is of the rack of `epoch`.
#[inline(always)]
pub(crate) fn of<T>(epoch: u64, act: impl FnOnce(&mut Last) -> T) -> Option<T> {
    let acted = LAST.try_with(|last| {
        let mut last = last.0.try_borrow_mut().ok()?;
        (last.epoch == epoch).then(|| act(&mut last))
    });
    // There always is one, but in a model.
    acted.ok().flatten()
}

/// The number of the pool that it is of, if any.
pub(crate) fn slot() -> Option<u8> {
    LAST.with(|last| last.0.try_borrow().ok().filter(|last| last.epoch != NOBODY).map(|last| last.slot))
}

/// Makes a block that came back to the rack of `epoch` the last. Answers what it was given if there is one
/// already.
pub(crate) fn begin(epoch: u64, lane: u8, tally: Arc<Tally>, block: Box<Block>) -> Option<Given> {
    LAST.with(|last| match last.0.try_borrow_mut() {
        Ok(mut last) if last.epoch == NOBODY => {
            let slot = block.pool.slot;
            let begun = Last { epoch, proven: 0, block: Some(block), tally: Some(tally), lane, slot };
            // Nobody's has nothing to be dropped.
            mem::forget(mem::replace(&mut *last, begun));
            None
        }
        _ => Some(Given { tally, block: Some((lane, block)) }),
    })
}

impl Last {
    const NONE: Self = Self { epoch: NOBODY, proven: 0, block: None, tally: None, lane: NO_LANE, slot: 0 };

    /// Its class, bytes, if it is not out.
    pub(crate) fn class(&self) -> Option<u64> {
        self.block.as_ref().map(|block| block.key.class)
    }

    /// The block, if it needs no wait for `stream`; counts the hit. That it is no new peak is known.
    #[inline(always)]
    pub(crate) fn lend(&mut self, requested: u64, stream: StreamId) -> Option<Box<Block>> {
        let tally = self.tally.as_deref()?;
        if !self.block.as_ref()?.is_ready_on(stream) {
            return None;
        }
        let mut block = self.block.take()?;
        block.requested = requested;
        tally.lane(self.lane).hit();
        tally.lend_last(requested);
        Some(block)
    }

    /// The block, if it needs no wait for `stream`, and its lane; uncounted.
    pub(crate) fn take_ready(&mut self, stream: StreamId) -> Option<(u8, Box<Block>)> {
        let block = self.block.take_if(|block| block.is_ready_on(stream))?;
        Some((self.lane, block))
    }

    /// Another block comes back, which is the last now. Answers the one before, if it is not out, and its
    /// lane.
    pub(crate) fn replace(&mut self, lane: u8, block: Box<Block>) -> Option<(u8, Box<Block>)> {
        self.proven = 0;
        let lane_before = mem::replace(&mut self.lane, lane);
        self.block.replace(block).map(|before| (lane_before, before))
    }

    /// Requests of fewer bytes are no new peak.
    pub(crate) fn prove(&mut self, below: u64) {
        self.proven = below;
    }

    /// There is none any more.
    pub(crate) fn give_up(&mut self) -> Option<Given> {
        let Self { block, tally, lane, .. } = mem::replace(self, Self::NONE);
        Some(Given { tally: tally?, block: block.map(|block| (lane, block)) })
    }
}

/// Sets what is known to be empty: there is nothing to be dropped.
#[inline(always)]
fn set(place: &mut Option<Box<Block>>, block: Box<Block>) {
    mem::forget(place.replace(block));
}
