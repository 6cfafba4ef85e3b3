//! Releases memory of a growing arena to the device.

use super::pages::Holes;
use crate::error::Error;
use crate::heap::arena::mapping::{Stitched, StitchedPart};
use crate::heap::arena::panics::caught;
use crate::heap::arena::{ArenaCore, Backing, DeviceArena, State};
use crate::heap::space::{Arena, ArenaError, BlockId, Extent, Zone, runs};
use crate::streams::{Streams, add};
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Stream, StreamId, fork, logging};

/// Waits of a release before it took a lock: for other devices, streams up to a tick, and unused ranges.
#[derive(Debug, Default)]
pub(crate) struct Waited {
    users: Vec<StreamId>,
    /// `None` if there was no wait.
    tick: Option<u64>,
    /// The age and last use of each range.
    ranges: Vec<(u64, u64)>,
}

impl Waited {
    /// Whether the work of other devices on memory that was free in `tick` was waited for.
    pub(crate) fn is_behind(&self, tick: u64) -> bool {
        self.tick.is_some_and(|waited| tick <= waited)
    }

    pub(super) fn covers(&self, user: StreamId, tick: u64) -> bool {
        self.is_behind(tick) && self.users.contains(&user)
    }

    fn has<B: Backend>(&self, range: &Stitched<B>) -> bool {
        self.ranges.contains(&(range.age, range.used))
    }
}

/// Pieces that are being released, held, without users.
#[derive(Debug)]
struct LeavingPieces<B: Backend> {
    /// By offset.
    pieces: Vec<Piece>,
    /// Stitched ranges with such pieces, and partly unmapped ranges that no buffer has any more.
    ranges: Vec<Range<B>>,
    range: Arc<B::Memory>,
}

#[derive(Debug)]
struct Piece {
    extent: Extent,
    block: BlockId,
    /// Whether it was never accessible.
    is_unreleased: bool,
    is_unmapped: bool,
}

#[derive(Debug)]
struct Range<B: Backend> {
    stitched: Stitched<B>,
    /// The parts that are still mapped.
    parts: Vec<StitchedPart>,
    /// Whether the range is unused and released as a whole.
    goes: bool,
}

impl<B: Backend> DeviceArena<B> {
    /// Releases free memory of a [growing](crate::arena::ArenaBuilder::growing) arena to the device.
    ///
    /// Stops when at most `spare_bytes` above the live bytes are mapped, or no piece is entirely free.
    /// Returns the released bytes; 0 for an arena that does not grow.
    ///
    /// Waits on the host for the work that used the memory, without a lock: other threads can allocate, and
    /// memory that they use meanwhile stays. Memory that a captured stream used stays too.
    ///
    /// # Errors
    /// [`Error::Backend`] if the device refuses; memory that was not unmapped remains the arena's.
    pub fn release(&self, spare_bytes: u64) -> Result<u64, Error> {
        fork::check()?;
        self.core.release(&[Zone::Stable, Zone::Dynamic], spare_bytes)
    }

    /// As [`release`](Self::release), for memory that was not needed since the last call.
    ///
    /// Call it periodically, for example every few steps of a loop, so that memory of a past peak is
    /// released. The first call releases nothing.
    ///
    /// # Errors
    /// As [`release`](Self::release). The next call then releases what this call could not, and no more.
    pub fn decay(&self) -> Result<u64, Error> {
        fork::check()?;
        let mut state = self.core.state.lock();
        let State { engine, backing: Some(backing), peaks, .. } = &mut *state else { return Ok(0) };
        let (used, peak) = (engine.used(), engine.peak_used());
        // Memory that spares streams a wait counts as needed.
        let needed = peak.max(std::mem::take(&mut peaks.needed));
        engine.reset_peak();
        let was_begun = std::mem::replace(&mut backing.decays, true);
        drop(state);
        if !was_begun {
            return Ok(0);
        }
        let released = self.release(needed - used);
        // After a failure, needs before this call count as needs before the next call.
        released.inspect_err(|_| self.core.state.lock().engine.raise_peak(peak))
    }

    /// Sets the physical memory limit of a growing arena. `is_lenient`: also below the mapped bytes, so that nothing is
    /// mapped until enough is released.
    pub(crate) fn set_limit(&self, bytes: u64, is_lenient: bool) -> Result<(), Error> {
        // Not during a growth that relies on the previous limit.
        let _alone = self.core.alone(0)?;
        let mut state = self.core.state.lock();
        let Some(backing) = &mut state.backing else { return Ok(()) };
        let limit = bytes - bytes % backing.granularity;
        if limit < backing.mapped && !is_lenient {
            return Err(
                ArenaError::CapacityInUse { capacity_bytes: bytes, needed_bytes: backing.mapped }.into()
            );
        }
        backing.limit = limit;
        Ok(())
    }

    /// Sets whether free memory of a growing arena stays mapped at its addresses, because graphs may use it.
    pub(crate) fn set_private(&self, is_private: bool) {
        if let Some(backing) = &mut self.core.state.lock().backing {
            backing.is_private = is_private;
        }
    }
}

impl<B: Backend> ArenaCore<B> {
    /// As [`DeviceArena::release`], for parts of the range. The caller must hold no lock.
    pub(crate) fn release(&self, parts: &[Zone], spare_bytes: u64) -> Result<u64, Error> {
        let waited = self.wait_for_free(parts, spare_bytes)?;
        // Nothing is free in an arena that this thread changes.
        let Ok(_alone) = self.alone(0) else { return Ok(0) };
        self.release_completed(parts, spare_bytes, &waited)
    }

    /// Waits on the host for the work on memory to be released, and for other devices that may use it. Memory
    /// that a captured stream used stays, because its work runs whenever the graph is launched.
    fn wait_for_free(&self, parts: &[Zone], spare_bytes: u64) -> Result<Waited, BackendError> {
        let mut state = self.state.lock();
        let tick = state.uses.ticks.begin();
        let Some((mut users, ranges)) = users_of_surplus(&state, parts, spare_bytes) else {
            return Ok(Waited::default());
        };
        drop(state);
        let mut captured = Streams::new();
        for user in &users {
            if self.device.is_capturing(user)? {
                add(&mut captured, user);
            }
        }
        let is_captured = |user: &B::Stream| captured.iter().any(|other| other.id() == user.id());
        users.retain(|user| !is_captured(user));
        users.iter().try_for_each(|user| self.device.synchronize(user))?;
        self.virtual_memory()?.synchronize_others()?;
        let is_waited = |(.., of_range): &(u64, u64, Streams<B::Stream>)| !of_range.iter().any(is_captured);
        let ranges = ranges.iter().filter(|range| is_waited(range)).map(|&(age, used, _)| (age, used));
        let users = users.iter().map(Stream::id).collect();
        Ok(Waited { users, tick: Some(tick), ranges: ranges.collect() })
    }

    /// Waits on the host for the work of other devices that may use memory of a growing arena.
    pub(crate) fn wait_for_others(&self) -> Result<Waited, BackendError> {
        let mut state = self.state.lock();
        if state.backing.is_none() {
            return Ok(Waited::default());
        }
        let tick = state.uses.ticks.begin();
        drop(state);
        self.virtual_memory()?.synchronize_others()?;
        Ok(Waited { tick: Some(tick), ..Waited::default() })
    }

    /// As [`release`](Self::release), for memory without users other than those waited for. Only for the
    /// thread that may change the arena.
    pub(crate) fn release_completed(
        &self,
        parts: &[Zone],
        spare_bytes: u64,
        waited: &Waited,
    ) -> Result<u64, Error> {
        let retired = self.take_retired(waited);
        let Some(mut leaving) = self.begin_release(parts, spare_bytes, waited, retired) else {
            return Ok(0);
        };
        let (outcome, panic) = caught(|| self.unmap(&mut leaving));
        let released = self.end_release(leaving);
        panic.go_on();
        outcome?;
        logging::debug!("arena on {}: {released} bytes released", self.id);
        Ok(released)
    }

    /// Holds free pieces, the last ones first. Returns `None` if there is nothing to do.
    fn begin_release(
        &self,
        parts: &[Zone],
        spare_bytes: u64,
        waited: &Waited,
        retired: Vec<Stitched<B>>,
    ) -> Option<LeavingPieces<B>> {
        let mut state = self.state.lock();
        let range = Arc::clone(&state.range);
        let Some(backing) = &state.backing else { return None };
        // Work may still use pieces of retiring ranges.
        let retiring = backing.retiring.iter().flat_map(|batch| &batch.ranges);
        let mut retiring: Vec<u64> =
            retiring.flat_map(|range| &range.pieces).map(|piece| piece.start).collect();
        retiring.sort_unstable();
        let ticks = &state.uses.ticks;
        let is_in_use =
            |user, tick| !waited.is_behind(tick) || !waited.covers(user, tick) && !ticks.are_done(user, tick);
        let surplus = backing.surplus(&state.engine, parts, spare_bytes, |extent| {
            retiring.binary_search(&extent.start).is_err()
                && !state.uses.parts(&extent.range()).any(|part| part.has(is_in_use))
        });
        let State { engine, uses, backing: Some(backing), .. } = &mut *state else { return None };
        let mut leaving = LeavingPieces { pieces: Vec::new(), ranges: Vec::new(), range };
        let piece = |extent, block, is_unreleased| Piece { extent, block, is_unreleased, is_unmapped: false };
        leaving.pieces.extend(backing.unreleased.drain(..).map(|(extent, block)| piece(extent, block, true)));
        for extent in surplus {
            let Ok(block) = engine.hold_at(extent.start, extent.bytes) else { continue };
            let _ = uses.take(extent.range());
            leaving.pieces.push(piece(extent, block, false));
        }
        leaving.pieces.sort_unstable_by_key(|piece| piece.extent.start);
        let stitched =
            backing.take_stitched(|range| range.pieces.iter().any(|piece| has(&leaving.pieces, *piece)));
        let mut ranges: Vec<_> = stitched.into_iter().map(|range| (range.parts(), range)).collect();
        ranges.extend(backing.partly_unmapped.drain(..).map(|(range, parts)| (parts, range)));
        let range = |(parts, stitched): (Vec<StitchedPart>, Stitched<B>)| {
            let goes = stitched.is_unused() && waited.has(&stitched);
            Range { stitched, parts, goes }
        };
        leaving.ranges = ranges.into_iter().map(range).collect();
        let whole = |stitched: Stitched<B>| Range { parts: stitched.parts(), stitched, goes: true };
        leaving.ranges.extend(retired.into_iter().map(whole));
        (!leaving.pieces.is_empty() || !leaving.ranges.is_empty()).then_some(leaving)
    }

    /// Unmaps and marks the pieces everywhere, starting with ranges that are released as a whole.
    fn unmap(&self, leaving: &mut LeavingPieces<B>) -> Result<(), BackendError> {
        let device = self.virtual_memory()?;
        let LeavingPieces { pieces, ranges, range } = leaving;
        ranges.sort_by_key(|range| !range.goes);
        for Range { stitched, parts, goes } in ranges {
            // All of a whole range: dropping it would also unmap it, but would wait for unrelated work.
            let goes = |part: &StitchedPart| *goes || has(pieces, part.piece);
            let extent = |part: &StitchedPart| Extent { start: part.offset, bytes: part.piece.bytes };
            for run in runs(&parts.iter().filter(|part| goes(part)).map(extent).collect::<Vec<_>>()) {
                self.timed(|| device.unmap(&stitched.memory, run.start, run.bytes))?;
                parts.retain(|part| !run.range().contains(&part.offset));
            }
        }
        // One call for adjacent pieces: separate calls would split the device's mappings.
        let extents: Vec<_> = pieces.iter().map(|piece| piece.extent).collect();
        for run in runs(&extents) {
            self.timed(|| device.unmap(range, run.start, run.bytes))?;
            let of_run = |piece: &&mut Piece| run.range().contains(&piece.extent.start);
            pieces.iter_mut().filter(of_run).for_each(|piece| piece.is_unmapped = true);
        }
        Ok(())
    }

    /// Updates the accounts: pieces that are not unmapped remain the arena's. Returns the released bytes.
    fn end_release(&self, leaving: LeavingPieces<B>) -> u64 {
        let LeavingPieces { pieces, ranges, range } = leaving;
        let mut state = self.state.lock();
        let State { engine, backing: Some(backing), peaks, .. } = &mut *state else { return 0 };
        let (mut unmapped, mut going, mut restored) = (Vec::new(), Vec::new(), Vec::new());
        for Piece { extent, block, is_unreleased, is_unmapped } in pieces {
            if is_unmapped {
                unmapped.push(extent);
                backing.gaps.push(block);
            } else if is_unreleased {
                backing.unreleased.push((extent, block));
            } else {
                engine.release(block);
            }
        }
        for Range { stitched, parts, goes } in ranges {
            let is_unmapped = |piece: &Extent| {
                unmapped.binary_search_by_key(&piece.start, |unmapped| unmapped.start).is_ok()
            };
            if stitched.is_whole(&parts) && !stitched.pieces.iter().any(is_unmapped) {
                restored.push(stitched);
            } else if goes {
                going.push(stitched);
            } else {
                backing.partly_unmapped.push((stitched, parts));
            }
        }
        let released = unmapped.iter().map(|extent| extent.bytes).sum();
        let physical = backing.remove(&unmapped);
        backing.restore(restored);
        backing.join_gaps(engine);
        if backing.mapped == 0 {
            // As in a new arena: the bound on growth is that of the requests to come.
            engine.reset_peak();
            peaks.needed = 0;
        }
        let users = state.uses.take_dropped();
        drop(state);
        // Returned after the drops below: only then are the bytes available to other arenas.
        let _returned = self.share.split(released);
        // Drops that call the device run without the lock.
        if !(physical.is_empty() && going.is_empty()) {
            self.timed(|| drop((physical, going)));
        }
        drop((users, range));
        released
    }
}

/// Whether an extent is one of the pieces, which are sorted by offset.
fn has(pieces: &[Piece], extent: Extent) -> bool {
    pieces.binary_search_by_key(&extent.start, |piece| piece.extent.start).is_ok()
}

impl<B: Backend> Backing<B> {
    /// Pieces of parts of the range that are entirely free, and for which `may_go` holds, the last ones first, as
    /// far as more than `spare_bytes` above the live bytes are mapped.
    fn surplus(
        &self,
        engine: &Arena,
        parts: &[Zone],
        spare_bytes: u64,
        may_go: impl Fn(Extent) -> bool,
    ) -> Vec<Extent> {
        if parts.is_empty() || self.is_private {
            return Vec::new();
        }
        let unreleased: u64 = self.unreleased.iter().map(|(extent, _)| extent.bytes).sum();
        let needed = engine.used().saturating_add(spare_bytes).saturating_add(unreleased);
        let mut surplus = self.mapped.saturating_sub(needed);
        let holes = Holes::in_arena(engine, self.granularity, true);
        let is_free = |extent: Extent| {
            parts.contains(&self.zone_at(extent.start)) && holes.front_of(extent) == extent.bytes
        };
        let goes = |extent: &Extent| {
            let goes = is_free(*extent) && extent.bytes <= surplus && may_go(*extent);
            surplus -= if goes { extent.bytes } else { 0 };
            goes
        };
        self.extents.iter().rev().copied().filter(goes).collect()
    }
}

/// Returns the users of memory that a release would free, and the unused stitched ranges that it would
/// release, each with age, last use and users. `None` if nothing that was ever used would be released.
#[allow(clippy::type_complexity, reason = "one caller destructures it")]
fn users_of_surplus<B: Backend>(
    state: &State<B>,
    parts: &[Zone],
    spare_bytes: u64,
) -> Option<(Streams<B::Stream>, Vec<(u64, u64, Streams<B::Stream>)>)> {
    let mut unused = Vec::new();
    let backing = state.backing.as_ref()?;
    let mut leaving = backing.surplus(&state.engine, parts, spare_bytes, |_| true);
    leaving.sort_unstable_by_key(|extent| extent.start);
    let mut users = state.uses.users_in(runs(&leaving).into_iter().map(Extent::range), |_, _| true);
    let leaves = |piece: &Extent| leaving.binary_search_by_key(&piece.start, |other| other.start).is_ok();
    let goes = |(range, parts): &(&Stitched<B>, Vec<StitchedPart>)| {
        range.is_unused() && (!range.is_whole(parts) || range.pieces.iter().any(leaves))
    };
    for (range, parts) in backing.ranges().filter(goes) {
        let mut pieces: Vec<_> = parts.iter().map(|part| part.piece).collect();
        pieces.sort_unstable_by_key(|piece| piece.start);
        let of_range = state.users_of_pieces(&runs(&pieces));
        of_range.iter().for_each(|user| add(&mut users, user));
        unused.push((range.age, range.used, of_range));
    }
    let retiring = backing.retiring.iter().flat_map(|batch| &batch.users);
    retiring.for_each(|user| add(&mut users, user));
    let is_empty = leaving.is_empty() && unused.is_empty() && backing.retiring.is_empty();
    (!is_empty).then_some((users, unused))
}
