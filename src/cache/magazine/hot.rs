//! The hot block: the most recently freed block of this thread, of any pool.
//!
//! A loop may free a block and request it again before any other. The hot block is therefore not kept in its
//! [list](crate::cache::magazine::rack), but in a thread-local [slot](ThreadSlot), which a hit reaches
//! without a search of the thread's racks. The epoch, unique to each pool, identifies the block's rack. Such
//! a pair takes about half the time; other hits and frees take longer (`docs/src/performance.md`, "The block
//! freed last").
//!
//! A hit is recorded in one word, which [other threads read](Tally::hot_lent), and is accounted for only
//! when another block is freed first. The hit itself only verifies that it sets no new peak.

use crate::cache::block::Block;
use crate::cache::core::{NEVER, PoolCore};
use crate::cache::magazine::class_table::NO_LIST;
use crate::cache::magazine::counters::Tally;
use crate::sync::thread_slot::ThreadSlot;
use std::cell::RefCell;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vrampool_backend::StreamId;

/// An epoch of no rack, known or unknown.
const NOBODY: u64 = NEVER - 1;

/// The slot of a thread.
type HotSlot = ThreadSlot<RefCell<HotBlock>>;

#[repr(C)]
pub(crate) struct HotBlock {
    /// The epoch of its rack.
    pub(super) epoch: u64,
    /// Requests of fewer bytes set no new peak if this block serves them. 0 when this must be checked again:
    /// after a rise of other loans, or when another block became hot.
    proven: u64,
    /// `None` while it is out.
    block: Option<Box<Block>>,
    tally: Option<Arc<Tally>>,
    list: u8,
    /// The pool's number, by which the thread finds the rack.
    pub(super) slot: u8,
}

/// Content returned to a rack.
pub(crate) struct Given {
    pub(crate) tally: Arc<Tally>,
    /// The block and its list, if it is not out.
    pub(crate) block: Option<(u8, Box<Block>)>,
}

#[cfg(not(model))]
thread_local! {
    static HOT: HotSlot = const { HotSlot::new(RefCell::new(HotBlock::NONE)) };
}

#[cfg(model)]
loom::thread_local! {
    static HOT: HotSlot = HotSlot::new(RefCell::new(HotBlock::NONE));
}

/// The result of a lookup of the hot block.
pub(crate) enum Peek {
    /// It is of the list: the block, if it needs no wait.
    Lent(Option<Box<Block>>),
    /// It is of the list, and may set a new peak.
    Unproven,
    /// It is out, or of another list.
    Elsewhere,
}

/// Takes the hot block if it is of `list` and idle.
#[inline(always)]
pub(crate) fn peek(pool: &PoolCore, list: u8, requested: u64, stream: StreamId) -> Peek {
    let peeked = HOT.try_with(|hot| {
        let Ok(mut hot) = hot.try_borrow_mut() else { return Peek::Elsewhere };
        if hot.epoch != pool.epoch.load(Relaxed) || hot.list != list || hot.block.is_none() {
            // It is out, or may soon be out together with the block that is taken instead.
            hot.proven = 0;
            return Peek::Elsewhere;
        }
        if requested >= hot.proven { Peek::Unproven } else { Peek::Lent(hot.lend(requested, stream)) }
    });
    peeked.unwrap_or(Peek::Elsewhere)
}

/// Takes a block back if it is the hot one. Returns any other block.
#[inline(always)]
pub(crate) fn put(list: u8, block: Box<Block>) -> Option<Box<Block>> {
    let mut block = Some(block);
    let _ = HOT.try_with(|hot| {
        let Ok(mut hot) = hot.try_borrow_mut() else { return };
        block = block.take().and_then(|block| {
            let is_of_rack = hot.epoch == block.pool.epoch.load(Relaxed) && hot.list == list;
            match &hot.tally {
                Some(tally) if is_of_rack && tally.hot_came_back(block.requested) => {
                    set(&mut hot.block, block);
                    None
                }
                _ => Some(block),
            }
        });
    });
    block
}

/// Calls `act` with the hot block, if it is of the rack of `epoch`.
#[inline(always)]
pub(crate) fn of<T>(epoch: u64, act: impl FnOnce(&mut HotBlock) -> T) -> Option<T> {
    let acted = HOT.try_with(|hot| {
        let mut hot = hot.try_borrow_mut().ok()?;
        (hot.epoch == epoch).then(|| act(&mut hot))
    });
    // Access fails only while the slot is destroyed, or later.
    acted.ok().flatten()
}

/// Returns the number of the hot block's pool, if any.
pub(crate) fn slot() -> Option<u8> {
    let slot =
        HOT.try_with(|hot| hot.try_borrow().ok().filter(|hot| hot.epoch != NOBODY).map(|hot| hot.slot));
    slot.ok().flatten()
}

/// Makes a block returned to the rack of `epoch` the hot block, or returns it if there is one.
pub(crate) fn begin(epoch: u64, list: u8, tally: Arc<Tally>, block: Box<Block>) -> Option<Given> {
    let mut given = Some(Given { tally, block: Some((list, block)) });
    let _ = HOT.try_with(|hot| {
        let Ok(mut hot) = hot.try_borrow_mut() else { return };
        if hot.epoch == NOBODY
            && let Some(Given { tally, block: Some((list, block)) }) = given.take()
        {
            let slot = block.pool.slot;
            let begun = HotBlock { epoch, proven: 0, block: Some(block), tally: Some(tally), list, slot };
            // The empty slot has nothing to drop.
            mem::forget(mem::replace(&mut *hot, begun));
        }
    });
    given
}

impl HotBlock {
    const NONE: Self = Self { epoch: NOBODY, proven: 0, block: None, tally: None, list: NO_LIST, slot: 0 };

    /// Returns its class, bytes, if it is not out.
    pub(crate) fn class(&self) -> Option<u64> {
        self.block.as_ref().map(|block| block.key.class)
    }

    /// Lends the block if it needs no wait for `stream`, and counts the hit. It is known to set no new peak.
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

    /// Takes the block and its list if it needs no wait for `stream`; uncounted.
    pub(crate) fn take_ready(&mut self, stream: StreamId) -> Option<(u8, Box<Block>)> {
        let block = self.block.take_if(|block| block.is_ready_on(stream))?;
        Some((self.list, block))
    }

    /// Makes another block the hot one. Returns the previous block and its list, if it is not out.
    pub(crate) fn replace(&mut self, list: u8, block: Box<Block>) -> Option<(u8, Box<Block>)> {
        self.proven = 0;
        let list_before = mem::replace(&mut self.list, list);
        self.block.replace(block).map(|before| (list_before, before))
    }

    /// Records that requests of fewer than `below` bytes set no new peak.
    pub(crate) fn prove(&mut self, below: u64) {
        self.proven = below;
    }

    /// Clears the hot block and returns it.
    pub(crate) fn give_up(&mut self) -> Option<Given> {
        let Self { block, tally, list, .. } = mem::replace(self, Self::NONE);
        Some(Given { tally: tally?, block: block.map(|block| (list, block)) })
    }
}

/// Sets a slot that is known to be empty, so there is nothing to drop.
#[inline(always)]
fn set(place: &mut Option<Box<Block>>, block: Box<Block>) {
    mem::forget(place.replace(block));
}

#[cfg(all(test, feature = "host", not(model)))]
mod tests {
    use super::{HOT, HotBlock};
    use crate::host::HostDevice;
    use crate::sync::thread_slot::KeyedSlot;
    use crate::{Backend, Buffer, Pool};
    use std::cell::RefCell;
    use std::thread;

    thread_local! {
        static KEYED: KeyedSlot<RefCell<HotBlock>> = const { KeyedSlot(RefCell::new(HotBlock::NONE)) };
    }

    /// With variables found by keys, the slot may be destroyed before the racks.
    #[test]
    fn a_slot_that_is_destroyed_before_the_racks_loses_nothing() {
        let device = HostDevice::new();
        for lent in [0, 1] {
            let pool = Pool::builder(&device).build().expect("good settings");
            let stream = device.create_stream().expect("a stream");
            let ending = thread::spawn({
                let pool = pool.clone();
                move || -> Vec<Buffer<HostDevice>> {
                    // The second of them comes from a list, and is then hot.
                    for _ in 0..3 {
                        drop(pool.allocate(1000, &stream).expect("memory"));
                    }
                    let lent = (0..lent).map(|_| pool.allocate(1000, &stream).expect("memory")).collect();
                    // The variable that is used last is destroyed first.
                    HOT.with(|hot| KEYED.with(|keyed| hot.swap(&keyed.0)));
                    KEYED.with(|keyed| assert!(keyed.0.borrow().tally.is_some(), "no block is hot"));
                    lent
                }
            });
            let buffers = ending.join().expect("no panic");
            let stats = pool.stats();
            assert_eq!(
                (stats.hits, stats.live_buffers, stats.held_bytes),
                (2 + lent, lent, 1024),
                "{stats:?}"
            );
            drop(buffers);
            let stats = pool.stats();
            assert_eq!((stats.live_buffers, stats.live_bytes, stats.idle_bytes), (0, 0, 1024), "{stats:?}");
            assert_eq!(pool.trim().expect("a trim"), 1024);
        }
    }
}
