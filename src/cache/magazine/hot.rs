//! The block that was freed last on this thread, of whichever pool: usually the next one to be requested.
//!
//! Most programs free a block and request it again before any other. That hot block is therefore not
//! kept in its [list](crate::cache::magazine::rack), but in a thread-local slot without a destructor, which
//! a hit reaches without a search of the thread's racks. The epoch, unique to each pool, identifies the
//! block's rack.
//!
//! A hit is recorded in one word, which [other threads read](Tally::hot_lent), and is accounted for only
//! when another block is freed first. The hit itself only verifies that it sets no new peak.

use crate::cache::block::Block;
use crate::cache::core::PoolCore;
use crate::cache::magazine;
use crate::cache::magazine::class_table::NO_LIST;
use crate::cache::magazine::counters::Tally;
use crate::cache::magazine::rack::NEVER;
use std::cell::RefCell;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::StreamId;

/// The epoch of no rack, whether its pool is known or not.
const NOBODY: u64 = NEVER - 1;

/// Where a thread has it: with the flag of the borrow, all that a hit touches shares a line.
///
/// Where threads' variables are not the loader's but looked up by keys, a thread's end may drop it before the
/// racks that take it back: what it holds stays taken then.
#[repr(align(64))]
struct Place(ManuallyDrop<RefCell<HotBlock>>);

impl Place {
    const fn empty() -> Self {
        Self(ManuallyDrop::new(RefCell::new(HotBlock::NONE)))
    }
}

#[repr(C)]
pub(crate) struct HotBlock {
    /// The epoch of the rack that it is of.
    epoch: u64,
    /// Requests of fewer bytes are no new peak when the block serves them, as far as was looked. 0 whenever
    /// what was lent otherwise has risen since, or another block came back.
    proven: u64,
    /// None while it is out.
    block: Option<Box<Block>>,
    /// The rack's.
    tally: Option<Arc<Tally>>,
    /// The list that the block is of.
    list: u8,
    /// The number of the pool, by which the thread finds the rack.
    slot: u8,
}

/// What a rack gets back.
pub(crate) struct Given {
    pub(crate) tally: Arc<Tally>,
    /// The block and its list, if it is not out.
    pub(crate) block: Option<(u8, Box<Block>)>,
}

#[cfg(not(model))]
thread_local! {
    static HOT: Place = const { Place::empty() };
}

#[cfg(model)]
loom::thread_local! {
    static HOT: Place = Place::empty();
}

/// What a look at the hot block finds.
pub(crate) enum Peek {
    /// It is of the list: the block, if it needs no wait.
    Lent(Option<Box<Block>>),
    /// It is of the list, and may be a new peak.
    Unproven,
    /// It is out, or of another list.
    Elsewhere,
}

/// A block of `list`: the hot one, if that is of this list and here, or one of the list's. No block may mean
/// many things: ask the depot.
#[inline(never)]
pub(crate) fn take(pool: &PoolCore, list: u8, requested: u64, stream: StreamId) -> Option<Box<Block>> {
    match peek(pool, list, requested, stream) {
        Peek::Lent(block) => block,
        Peek::Unproven => magazine::take_hot(pool, requested, stream),
        Peek::Elsewhere => magazine::take_from_list(pool, list, requested, stream),
    }
}

/// As [`take`], of the hot block alone.
#[inline(always)]
pub(crate) fn peek(pool: &PoolCore, list: u8, requested: u64, stream: StreamId) -> Peek {
    HOT.with(|hot| {
        let Ok(mut hot) = hot.0.try_borrow_mut() else { return Peek::Elsewhere };
        if hot.epoch != pool.epoch.load(Relaxed) || hot.list != list || hot.block.is_none() {
            // It is out, or may soon be out together with what is taken now.
            hot.proven = 0;
            return Peek::Elsewhere;
        }
        if requested >= hot.proven { Peek::Unproven } else { Peek::Lent(hot.lend(requested, stream)) }
    })
}

/// Takes the hot block back, if that is what this is. Answers one that is not.
#[inline(always)]
pub(crate) fn put(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    HOT.with(|hot| {
        let Ok(mut hot) = hot.0.try_borrow_mut() else { return Some(block) };
        let is_of_rack = hot.epoch == block.pool.epoch.load(Relaxed) && hot.list == list;
        match &hot.tally {
            Some(tally) if is_of_rack && tally.hot_came_back(block.requested) => {
                set(&mut hot.block, block);
                None
            }
            _ => Some(block),
        }
    })
}

/// Does something with it, if it is of the rack of `epoch`.
#[inline(always)]
pub(crate) fn of<T>(epoch: u64, act: impl FnOnce(&mut HotBlock) -> T) -> Option<T> {
    let acted = HOT.try_with(|hot| {
        let mut hot = hot.0.try_borrow_mut().ok()?;
        (hot.epoch == epoch).then(|| act(&mut hot))
    });
    // There always is one, but in a model.
    acted.ok().flatten()
}

/// The number of the pool that it is of, if any.
pub(crate) fn slot() -> Option<u8> {
    HOT.with(|hot| hot.0.try_borrow().ok().filter(|hot| hot.epoch != NOBODY).map(|hot| hot.slot))
}

/// Makes a block that came back to the rack of `epoch` the hot one. Answers what it was given if there is one
/// already.
pub(crate) fn begin(epoch: u64, list: u8, tally: Arc<Tally>, block: Box<Block>) -> Option<Given> {
    HOT.with(|hot| match hot.0.try_borrow_mut() {
        Ok(mut hot) if hot.epoch == NOBODY => {
            let slot = block.pool.slot;
            let begun = HotBlock { epoch, proven: 0, block: Some(block), tally: Some(tally), list, slot };
            // Nobody's has nothing to be dropped.
            mem::forget(mem::replace(&mut *hot, begun));
            None
        }
        _ => Some(Given { tally, block: Some((list, block)) }),
    })
}

impl HotBlock {
    const NONE: Self = Self { epoch: NOBODY, proven: 0, block: None, tally: None, list: NO_LIST, slot: 0 };

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
        tally.list(self.list).hit();
        tally.lend_hot(requested);
        Some(block)
    }

    /// The block, if it needs no wait for `stream`, and its list; uncounted.
    pub(crate) fn take_ready(&mut self, stream: StreamId) -> Option<(u8, Box<Block>)> {
        let block = self.block.take_if(|block| block.is_ready_on(stream))?;
        Some((self.list, block))
    }

    /// Another block comes back, which is the hot one now. Answers the one before, if it is not out, and its
    /// list.
    pub(crate) fn replace(&mut self, list: u8, block: Box<Block>) -> Option<(u8, Box<Block>)> {
        self.proven = 0;
        let list_before = mem::replace(&mut self.list, list);
        self.block.replace(block).map(|before| (list_before, before))
    }

    /// Requests of fewer bytes are no new peak.
    pub(crate) fn prove(&mut self, below: u64) {
        self.proven = below;
    }

    /// There is none any more.
    pub(crate) fn give_up(&mut self) -> Option<Given> {
        let Self { block, tally, list, .. } = mem::replace(self, Self::NONE);
        Some(Given { tally: tally?, block: block.map(|block| (list, block)) })
    }
}

/// Sets what is known to be empty: there is nothing to be dropped.
#[inline(always)]
fn set(place: &mut Option<Box<Block>>, block: Box<Block>) {
    mem::forget(place.replace(block));
}
