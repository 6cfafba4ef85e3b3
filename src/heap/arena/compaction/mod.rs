//! Compaction: slides blocks of the dynamic zone to the front, and closes the holes between them.

pub(crate) mod copier;

use super::compaction::copier::Copier;
use super::{ArenaCore, DeviceArena, State};
use crate::environment::as_cap;
use crate::error::{Error, Forbidden};
use crate::heap::arena::panics::caught;
use crate::heap::space::{BlockId, Move};
use crate::streams::{Access, Need, Streams, Uses, WaitFor, add};
use bytesize::ByteSize;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vrampool_backend::{Backend, Stream, logging};

/// A block that a compaction moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Moved {
    /// Previous offset in the range, bytes.
    pub from: u64,
    /// New offset in the range, bytes.
    pub to: u64,
    /// Block size, bytes.
    pub bytes: u64,
}

/// Results of a compaction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Compaction {
    /// Moved blocks.
    pub moved_blocks: u64,
    /// Moved bytes.
    pub moved_bytes: u64,
    /// Blocks that stayed because a region of them existed, or for a child whose addresses stay.
    pub held_blocks: u64,
}

impl fmt::Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} moved from offset {} to {}", ByteSize(self.bytes), self.from, self.to)
    }
}

impl fmt::Display for Compaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let moved = ByteSize(self.moved_bytes);
        write!(f, "moved {moved} in {} blocks, held in place {} blocks", self.moved_blocks, self.held_blocks)
    }
}

impl<B: Backend> DeviceArena<B> {
    /// Closes holes of the dynamic zone from the front, in a pass that copies at most `budget_bytes`.
    ///
    /// Further passes can follow until nothing moves. The copies run on `stream`, after all work that uses
    /// the blocks, and the host does not wait for them. The streams that used a block, and its next user,
    /// wait for its copy on the device. Other threads may allocate, use and free blocks meanwhile. A block
    /// with a [region](super::ArenaBuffer::on) does not move, nor does one of a pool's child that is
    /// [private](crate::PoolBuilder::private) or whose [addresses stay](crate::PoolBuilder::addresses_stay). In a
    /// growing arena nothing moves.
    ///
    /// Buffers follow their data. For callers that store addresses elsewhere, `on_move` is called with each
    /// moved block after the last move, even if the compaction then fails.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; [`Error::Capture`] if `stream`, or a stream that uses a block to move, is
    /// captured; [`Error::Backend`] if the device refuses an event, a wait or a copy. Every block is then at
    /// one address, with its data: the reported blocks have moved, the others have not.
    pub fn compact(
        &self,
        budget_bytes: impl Into<Option<u64>>,
        stream: &B::Stream,
        on_move: impl FnMut(Moved),
    ) -> Result<Compaction, Error> {
        let core = &self.core;
        core.check_device(stream)?;
        // A graph would move blocks again at each launch.
        let need = Need { requested: 0, class: 0 };
        need.check(&core.device, stream, Forbidden::Release)?;
        let alone = core.alone(0)?;
        let state = core.state.lock();
        if state.backing.is_some() {
            // Holes of a growing arena are stitched instead.
            return Ok(Compaction::default());
        }
        let planned: Vec<BlockId> =
            state.engine.plan(as_cap(budget_bytes)).map(|planned| planned.block).collect();
        let copier = Copier::new(self, Arc::clone(&state.range), stream);
        drop(state);
        let (mut report, mut moved, mut outcome) = (Compaction::default(), Vec::new(), Ok(()));
        for block in planned {
            let Some(pending) = core.begin(block, &mut report) else { continue };
            let done;
            (outcome, done) = core.carry_out(pending, &copier, stream);
            moved.extend(done);
            if outcome.is_err() {
                break;
            }
        }
        drop(alone);
        report.moved_blocks = moved.len() as u64;
        report.moved_bytes = moved.iter().map(|moved| moved.bytes).sum();
        logging::debug!("arena on {}: compacted, {report}", core.id);
        moved.into_iter().for_each(on_move);
        outcome.map(|()| report)
    }
}

/// The outcome of a move that had begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MoveEnd {
    /// All copies are enqueued.
    Copied,
    /// A copy was refused, and the earlier ones are reversed.
    TakenBack,
    /// No copy was enqueued.
    Untouched,
}

/// A move in progress: no other user gets the block's address or the hole that it slides over.
struct Pending<S> {
    slide: Move,
    /// Users of the block, and users of the hole.
    users: Streams<S>,
    hole: Streams<S>,
}

impl<S> Pending<S> {
    /// The part of the destination outside of the source.
    fn hole_range(&self) -> Range<u64> {
        self.slide.to..(self.slide.to + self.slide.bytes).min(self.slide.from)
    }

    /// The part of the source outside of the destination.
    fn left_range(&self) -> Range<u64> {
        (self.slide.to + self.slide.bytes).max(self.slide.from)..self.slide.from + self.slide.bytes
    }
}

impl<B: Backend> ArenaCore<B> {
    /// Begins a block's move. Returns `None` if the block was freed, if no hole is in front of it, or if it is held in
    /// place. `report` counts held blocks.
    fn begin(&self, block: BlockId, report: &mut Compaction) -> Option<Pending<B::Stream>> {
        let mut state = self.state.lock();
        let State { engine, slots, uses, .. } = &mut *state;
        let slot = slots.get_mut(block)?;
        // Holds are taken under the lock that is held here.
        if slot.stays || slot.is_held() {
            report.held_blocks += 1;
            return None;
        }
        let slide = engine.begin_move(block).ok()??;
        slot.moving = true;
        let mut pending = Pending { slide, users: slot.uses.users(), hole: Streams::new() };
        pending.hole = uses.take(pending.hole_range());
        Some(pending)
    }

    /// Copies a block whose move has begun, and ends the move. Returns the block if it moved.
    fn carry_out(
        &self,
        pending: Pending<B::Stream>,
        copier: &Copier<'_, B>,
        stream: &B::Stream,
    ) -> (Result<(), Error>, Option<Moved>) {
        let Move { from, to, bytes, .. } = pending.slide;
        let mut end = MoveEnd::Untouched;
        let (outcome, panic) = caught(|| {
            // Behind all users of the source and the destination.
            let mut users = pending.users.clone();
            pending.hole.iter().for_each(|user| add(&mut users, user));
            let need = Need { requested: bytes, class: bytes };
            self.order(&users, stream, need, WaitFor::Reuse)?;
            end = MoveEnd::TakenBack;
            copier.move_to(from, to, bytes)?;
            end = MoveEnd::Copied;
            self.put_behind_copy(&pending, stream)
        });
        if panic.is_any() && end == MoveEnd::Untouched {
            end = MoveEnd::TakenBack;
        }
        // Also after a panic: the block is where its bytes are, and no thread waits for its move.
        let moved = self.end(pending, stream, end);
        panic.go_on();
        (outcome, moved)
    }

    /// Orders later work of the block's users after the copies. A stream that keeps addresses, or to which a
    /// pool reuses the block on its own stream, makes no call that would insert this wait.
    fn put_behind_copy(&self, pending: &Pending<B::Stream>, stream: &B::Stream) -> Result<(), Error> {
        let mut users = pending.users.iter().filter(|user| user.id() != stream.id()).peekable();
        if users.peek().is_none() {
            return Ok(());
        }
        let copied = self.device.record(stream)?;
        for user in users {
            // A stream that has failed runs no more work that could be too early.
            let waits = WaitFor::Reuse.judge(self.device.wait(user, &copied))?;
            self.stream_waits.fetch_add(waits, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Updates the accounts. Copies may still be pending; the next users of either end wait for `stream`.
    fn end(&self, pending: Pending<B::Stream>, stream: &B::Stream, end: MoveEnd) -> Option<Moved> {
        let mut state = self.state.lock();
        let State { engine, slots, uses, .. } = &mut *state;
        let Move { block, from, to, bytes, .. } = pending.slide;
        // A moving block is neither freed nor reset, because both wait. So neither of these calls fails.
        let moved = end == MoveEnd::Copied && engine.commit_move(block).is_ok();
        if moved {
            uses.put(pending.left_range(), &Uses::new(stream.clone()));
        } else {
            let _ = engine.cancel_move(block);
            let users = Uses::new(stream.clone());
            pending.hole.iter().for_each(|user| users.recorded_on(user));
            uses.put(pending.hole_range(), &users);
        }
        if let Some(slot) = slots.get_mut(block) {
            if end != MoveEnd::Untouched {
                slot.used(stream, Access::Write, None);
                slot.moved = true;
            }
            slot.moving = false;
        }
        drop(state);
        self.move_ended.notify_all();
        moved.then_some(Moved { from, to, bytes })
    }
}
