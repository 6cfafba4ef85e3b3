//! Holes closed: blocks of the dynamic zone slide to the front, data first.

pub(in crate::arena) mod copier;

use super::compaction::copier::Copier;
use super::hazards::ranges::{Streams, add};
use super::{ArenaCore, DeviceArena, State};
use crate::arena::engine::{BlockId, Move};
use crate::error::{Error, Forbidden};
use crate::streams::order::{After, Need};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, Stream};

/// A block that was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Moved {
    /// Where it was in the range, bytes.
    pub from: u64,
    /// Where it is, bytes.
    pub to: u64,
    /// Its size, bytes.
    pub bytes: u64,
}

/// What a compaction did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Blocks that were moved.
    pub moved_blocks: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Blocks that could have moved, but a zone of them existed.
    pub held_blocks: u64,
}

impl<B: Backend> DeviceArena<B> {
    /// Closes holes of the dynamic zone from the front on, in a pass that copies at most `budget_bytes`;
    /// passes can follow each other until nothing moves. The copies run on `stream`, behind all work that
    /// uses the blocks, and the host does not wait for them; the streams that used a block wait for its copy
    /// on the device, and so does whoever uses it next. Other threads may allocate, use and free blocks
    /// meanwhile. A block of which a [zone](super::ArenaBuffer::on) exists stays.
    ///
    /// Buffers follow their data by themselves. `on_move` is told of each block that moved once all have, for
    /// callers that wrote addresses down elsewhere; also when the compaction failed after it. In a growing
    /// arena nothing moves.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; [`Error::Capture`] when `stream` is captured, or a captured one uses a block
    /// that is to move; [`Error::Backend`] when the device refuses an event, a wait or a copy. Every block is
    /// then at one address, with its data: those reported have moved, the others have not.
    pub fn compact(
        &self,
        stream: &B::Stream,
        budget_bytes: u64,
        on_move: impl FnMut(Moved),
    ) -> Result<Compaction, Error> {
        let core = &self.core;
        core.check_device(stream)?;
        // A graph would move blocks again each time it is launched.
        let need = Need { requested: 0, class: 0 };
        need.check(&core.device, stream, Forbidden::Relief)?;
        let alone = core.changing.lock();
        let state = core.state.lock();
        if state.backing.is_some() {
            // Nothing moves: holes are stitched.
            return Ok(Compaction::default());
        }
        let planned: Vec<BlockId> = state.engine.plan(budget_bytes).map(|planned| planned.block).collect();
        let copier = Copier::new(self, Arc::clone(&state.range), stream);
        drop(state);
        let (mut report, mut moved, mut outcome) = (Compaction::default(), Vec::new(), Ok(()));
        for block in planned {
            match core.begin(block) {
                Begun::Gone => {}
                Begun::Held => report.held_blocks += 1,
                Begun::Moving(pending) => {
                    let Move { from, to, bytes, .. } = pending.slide;
                    let mut is_copied = false;
                    let end;
                    let moves = AssertUnwindSafe(|| match core.wait_for_users(&pending, stream) {
                        Err(error) => (Err(error), End::Untouched),
                        Ok(()) => match copier.move_to(from, to, bytes) {
                            Err(error) => (Err(error), End::TakenBack),
                            Ok(()) => {
                                is_copied = true;
                                (core.put_behind_copy(&pending, stream), End::Copied)
                            }
                        },
                    });
                    (outcome, end) = match catch_unwind(moves) {
                        Ok(ended) => ended,
                        Err(panic) => {
                            // The block is where its bytes are, and nobody waits for its move.
                            let end = if is_copied { End::Copied } else { End::TakenBack };
                            let _ = core.end(pending, stream, end);
                            core.state.lock().engine.release_vacated();
                            resume_unwind(panic);
                        }
                    };
                    moved.extend(core.end(pending, stream, end));
                    if outcome.is_err() {
                        break;
                    }
                }
            }
        }
        core.state.lock().engine.release_vacated();
        drop(alone);
        report.moved_blocks = moved.len() as u64;
        report.moved_bytes = moved.iter().map(|moved| moved.bytes).sum();
        log::debug!("arena on {}: compacted, {report:?}", core.id);
        moved.into_iter().for_each(on_move);
        outcome.map(|()| report)
    }
}

/// How a move that had begun ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Its copies are enqueued.
    Copied,
    /// One was refused, and those before it are taken back.
    TakenBack,
    /// None was enqueued.
    Untouched,
}

enum Begun<S> {
    /// It was freed since, or there is no hole in front of it any more.
    Gone,
    Held,
    Moving(Pending<S>),
}

/// A move that has begun: nobody else gets the block's address or the hole that it slides over.
struct Pending<S> {
    slide: Move,
    /// Who uses the block, and who used the hole.
    users: Streams<S>,
    hole: Streams<S>,
}

impl<S> Pending<S> {
    /// The part of the destination that is not the block's own source.
    fn hole_range(&self) -> Range<u64> {
        self.slide.to..(self.slide.to + self.slide.bytes).min(self.slide.from)
    }

    /// The part of the source that is not the destination.
    fn left_range(&self) -> Range<u64> {
        (self.slide.to + self.slide.bytes).max(self.slide.from)..self.slide.from + self.slide.bytes
    }
}

impl<B: Backend> ArenaCore<B> {
    fn begin(&self, block: BlockId) -> Begun<B::Stream> {
        let mut state = self.state.lock();
        let State { engine, slots, unsettled, .. } = &mut *state;
        let Some(slot) = slots.get_mut(block) else { return Begun::Gone };
        // Holds are taken under the lock that is held here.
        if slot.is_held() {
            return Begun::Held;
        }
        let Ok(Some(slide)) = engine.begin_move(block) else { return Begun::Gone };
        slot.moving = true;
        let mut pending = Pending { slide, users: slot.users(), hole: Streams::new() };
        pending.hole = unsettled.take(pending.hole_range());
        Begun::Moving(pending)
    }

    /// Puts what is enqueued from now on behind the work of everybody who uses either end.
    fn wait_for_users(&self, pending: &Pending<B::Stream>, stream: &B::Stream) -> Result<(), Error> {
        let mut users = pending.users.clone();
        pending.hole.iter().for_each(|user| add(&mut users, user));
        let need = Need { requested: pending.slide.bytes, class: pending.slide.bytes };
        self.order(users.iter(), stream, need, After::Work).map(drop)
    }

    /// Puts what the block's users do from now on behind the copies: one that keeps addresses, or is lent the
    /// block again by a pool as its own, asks nobody before.
    fn put_behind_copy(&self, pending: &Pending<B::Stream>, stream: &B::Stream) -> Result<(), Error> {
        let mut users = pending.users.iter().filter(|user| user.id() != stream.id()).peekable();
        if users.peek().is_none() {
            return Ok(());
        }
        let copied = self.device.record(stream)?;
        for user in users {
            // One that has failed does nothing any more that could come too early.
            After::Work.judge(self.device.wait(user, &copied).map_err(Error::from))?;
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Settles the books. Copies are enqueued at most; whoever uses either end next waits for `stream`.
    fn end(&self, mut pending: Pending<B::Stream>, stream: &B::Stream, end: End) -> Option<Moved> {
        let mut state = self.state.lock();
        let State { engine, slots, unsettled, .. } = &mut *state;
        let Move { block, from, to, bytes, .. } = pending.slide;
        // A moving block is neither freed nor reset: both wait. So neither of these calls fails.
        let moved = end == End::Copied && engine.commit_move(block).is_ok();
        let gone = if moved {
            unsettled.put(pending.left_range(), [stream.clone()].into_iter().collect())
        } else {
            let _ = engine.cancel_move(block);
            let range = pending.hole_range();
            add(&mut pending.hole, stream);
            unsettled.put(range, pending.hole)
        };
        if let Some(slot) = slots.get_mut(block) {
            if end != End::Untouched {
                slot.written_by(stream, None);
            }
            slot.moving = false;
        }
        drop(state);
        drop(gone);
        self.settled.notify_all();
        moved.then_some(Moved { from, to, bytes })
    }
}
