//! A growing arena gives memory back.

use super::backing::{Extent, Part, Stitched, apart_of};
use super::state::State;
use super::unsettled::{Streams, add};
use super::{DeviceArena, Shared};
use crate::arena::{ArenaError, Block, Region};
use crate::error::Error;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Stream};

/// Pieces on their way back to the device, set apart.
#[derive(Debug)]
struct Leaving<B: Backend> {
    pieces: Vec<Piece<B>>,
    /// Stitched ranges with such pieces, and torn ones that no buffer has any more.
    ranges: Vec<Range<B>>,
    range: Arc<B::Memory>,
}

#[derive(Debug)]
struct Piece<B: Backend> {
    extent: Extent,
    block: Block,
    /// Who used its bytes, and so must be waited for.
    users: Streams<B::Stream>,
    /// It was never accessible.
    is_stuck: bool,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Goes,
    Stays,
    Gone,
}

#[derive(Debug)]
struct Range<B: Backend> {
    stitched: Stitched<B>,
    /// What is still mapped in it.
    parts: Vec<Part>,
    /// No buffer has it: it goes as a whole, once all who used it are waited for.
    goes: bool,
    users: Streams<B::Stream>,
}

impl<B: Backend> DeviceArena<B> {
    /// Gives free memory of a [growing](super::ArenaBuilder::growing) arena back to the device, piece by piece, until at most
    /// `spare_bytes` more than what is live are mapped, or no more piece is free as a whole. Waits on the host for the work
    /// that used it; what a captured stream used stays. Answers how many bytes that were; 0 for an arena that does not grow.
    ///
    /// # Errors
    /// [`Error::Backend`] when the device refuses; what it did not unmap is the arena's as before.
    pub fn release(&self, spare_bytes: u64) -> Result<u64, Error> {
        let shared = &self.shared;
        let _alone = shared.changing.lock();
        shared.release_of(&[Region::Stable, Region::Dynamic], spare_bytes)
    }

    /// As [`release`](Self::release), of what was not needed since the last call of this: for calling once in a while, say
    /// every few steps of a loop, so that a peak that is over is not kept for ever. The first call gives nothing back.
    ///
    /// # Errors
    /// As [`release`](Self::release).
    pub fn decay(&self) -> Result<u64, Error> {
        let mut state = self.shared.state.lock_with_deferred();
        let State { engine, backing: Some(backing), marks, .. } = &mut *state else { return Ok(0) };
        let (used, peak) = (engine.used(), engine.peak_used());
        // What keeps streams from waiting for each other is needed too.
        let apart = if marks.were_any() { apart_of(peak) } else { 0 };
        engine.reset_peak();
        let was_begun = std::mem::replace(&mut backing.decays, true);
        drop(state);
        if was_begun { self.release((peak - used).saturating_add(apart)) } else { Ok(0) }
    }

    /// Sets the most bytes of physical memory that a growing arena may have.
    pub(super) fn set_limit(&self, bytes: u64) -> Result<(), Error> {
        // Not in the middle of a growth that reckons with another one.
        let _alone = self.shared.changing.lock();
        let mut state = self.shared.state.lock_with_deferred();
        let Some(backing) = &mut state.backing else { return Ok(()) };
        let limit = bytes - bytes % backing.granularity;
        if limit < backing.mapped {
            return Err(ArenaError::CapacityInUse { capacity: bytes, needed: backing.mapped }.into());
        }
        backing.limit = limit;
        Ok(())
    }
}

impl<B: Backend> Shared<B> {
    /// As [`DeviceArena::release`] of parts of the range, by who changes the arena alone.
    pub(super) fn release_of(&self, parts: &[Region], spare_bytes: u64) -> Result<u64, Error> {
        let Some(mut leaving) = self.begin_release(parts, spare_bytes) else { return Ok(0) };
        let outcome = self.unmap(&mut leaving);
        let released = self.end_release(leaving);
        outcome?;
        log::debug!("arena on {}: {released} bytes given back", self.id);
        Ok(released)
    }

    /// Sets free pieces apart, the last ones first. None if nothing is to be done.
    fn begin_release(&self, parts: &[Region], spare_bytes: u64) -> Option<Leaving<B>> {
        let mut state = self.state.lock();
        if !state.keep_unkept() {
            return None;
        }
        let range = Arc::clone(&state.range);
        let State { engine, slots, unsettled, backing: Some(backing), .. } = &mut *state else { return None };
        let mut surplus = backing.mapped.saturating_sub(engine.used().saturating_add(spare_bytes));
        let mut leaving = Leaving { pieces: Vec::new(), ranges: Vec::new(), range };
        for (extent, block) in backing.stuck.drain(..) {
            surplus = surplus.saturating_sub(extent.bytes);
            let (users, fate) = (Streams::new(), Fate::Goes);
            leaving.pieces.push(Piece { extent, block, users, is_stuck: true, fate });
        }
        for &extent in backing.extents.iter().rev() {
            if extent.bytes > surplus || !parts.contains(&backing.region_at(extent.start)) {
                continue;
            }
            let Ok(block) = engine.set_apart(extent.start, extent.bytes) else { continue };
            surplus -= extent.bytes;
            let (users, fate) = (unsettled.take(extent.start..extent.end()), Fate::Goes);
            leaving.pieces.push(Piece { extent, block, users, is_stuck: false, fate });
        }
        let leaves = |piece: &Extent| leaving.pieces.iter().any(|leaving| leaving.extent == *piece);
        let stitched = backing.take_stitched(|range| range.pieces.iter().any(leaves));
        let mut ranges: Vec<_> = stitched.into_iter().map(|range| (range.parts(), range)).collect();
        ranges.extend(backing.torn.drain(..).map(|(range, parts)| (parts, range)));
        for (parts, stitched) in ranges {
            let (goes, mut users) = (stitched.is_unused(), Streams::new());
            if goes {
                let range = |part: &Part| part.piece.start..part.piece.end();
                let free = parts.iter().flat_map(|part| unsettled.users_in(&range(part)));
                free.for_each(|user| add(&mut users, &user));
                let is_part = |piece: &&Piece<B>| parts.iter().any(|part| part.piece == piece.extent);
                let left = leaving.pieces.iter().filter(is_part).flat_map(|piece| &piece.users);
                left.for_each(|user| add(&mut users, user));
                // Whoever got bytes of it since is behind all who used them before.
                for (block, slot) in slots.named() {
                    let is_there = |&block: &Block| {
                        let (start, bytes) = engine.extent(block);
                        parts.iter().any(|part| start < part.piece.end() && part.piece.start < start + bytes)
                    };
                    if [block].iter().chain(slot.more()).any(is_there) {
                        slot.users().iter().for_each(|user| add(&mut users, user));
                    }
                }
            }
            leaving.ranges.push(Range { stitched, parts, goes, users });
        }
        (!leaving.pieces.is_empty() || !leaving.ranges.is_empty()).then_some(leaving)
    }

    /// Waits for the users of what leaves, and unmaps it everywhere; notes what is gone.
    fn unmap(&self, leaving: &mut Leaving<B>) -> Result<(), BackendError> {
        let Leaving { pieces, ranges, range } = leaving;
        let settled = self.virtual_memory().and_then(|device| {
            self.wait_for_leaving(pieces, ranges)?;
            Ok(device)
        });
        let device = settled.inspect_err(|_| ranges.iter_mut().for_each(|range| range.goes = false))?;
        let leaves =
            |part: &Part| pieces.iter().any(|piece| piece.extent == part.piece && piece.fate == Fate::Goes);
        for Range { stitched, parts, goes, .. } in ranges.iter_mut() {
            // All of one that goes: a drop would do it too, but wait for work that has nothing to do with it.
            while let Some(place) = parts.iter().position(|part| *goes || leaves(part)) {
                let Part { offset, piece } = parts[place];
                self.timed(|| device.unmap(&stitched.memory, offset, piece.bytes))?;
                parts.swap_remove(place);
            }
        }
        for piece in pieces.iter_mut().filter(|piece| piece.fate == Fate::Goes) {
            self.timed(|| device.unmap(range, piece.extent.start, piece.extent.bytes))?;
            piece.fate = Fate::Gone;
        }
        Ok(())
    }

    /// Waits on the host for all who used what leaves. What a captured stream used stays: its work is done whenever the graph
    /// is launched.
    fn wait_for_leaving(&self, pieces: &mut [Piece<B>], ranges: &mut [Range<B>]) -> Result<(), BackendError> {
        let mut users = Streams::new();
        let of_pieces = pieces.iter().flat_map(|piece| &piece.users);
        of_pieces.chain(ranges.iter().flat_map(|range| &range.users)).for_each(|user| add(&mut users, user));
        let mut captured = Streams::new();
        for user in &users {
            if self.device.is_capturing(user)? {
                add(&mut captured, user);
            }
        }
        let is_captured = |user: &B::Stream| captured.iter().any(|other| other.id() == user.id());
        for piece in pieces.iter_mut().filter(|piece| piece.users.iter().any(is_captured)) {
            piece.fate = Fate::Stays;
        }
        for range in ranges.iter_mut().filter(|range| range.users.iter().any(is_captured)) {
            range.goes = false;
        }
        users.iter().filter(|user| !is_captured(user)).try_for_each(|user| self.device.synchronize(user))
    }

    /// Settles the books: what is not gone is the arena's as before. Answers the bytes that are gone.
    fn end_release(&self, leaving: Leaving<B>) -> u64 {
        let Leaving { pieces, ranges, range } = leaving;
        let mut state = self.state.lock();
        let State { engine, unsettled, backing: Some(backing), .. } = &mut *state else { return 0 };
        let (mut gone, mut going, mut users) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let Piece { extent, block, users: before, is_stuck, fate } = piece;
            if fate == Fate::Gone {
                gone.extend(backing.remove(extent).map(|physical| (extent, physical)));
                backing.gaps.push(block);
                users.push(before);
            } else if is_stuck {
                backing.stuck.push((extent, block));
            } else {
                engine.put_back(block);
                // It was set apart, so nobody was put there since.
                users.push(unsettled.put(extent.start..extent.end(), before));
            }
        }
        for Range { stitched, parts, goes, users: before } in ranges {
            let is_gone = |piece: &Extent| gone.iter().any(|(extent, _)| extent == piece);
            users.push(before);
            let is_whole = !stitched.pieces.is_empty() && parts.len() == stitched.pieces.len();
            if is_whole && !stitched.pieces.iter().any(is_gone) {
                backing.mend(stitched);
            } else if goes {
                going.push(stitched);
            } else {
                backing.torn.push((stitched, parts));
            }
        }
        backing.join_gaps(engine);
        drop(state);
        let released = gone.iter().map(|(extent, _)| extent.bytes).sum();
        // Whatever calls the device goes without the lock.
        if !(gone.is_empty() && going.is_empty()) {
            self.timed(|| drop((gone, going)));
        }
        drop((users, range));
        // Only now is it there for others.
        self.give_allowance(released);
        released
    }
}
