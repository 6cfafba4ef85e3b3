//! Plans new memory for a request that no mapped memory serves.

use super::{Holes, Plan, stitch};
use crate::heap::arena::Backing;
use crate::heap::arena::mapping::Growth;
use crate::heap::space::{Arena, Extent, Zone};
use vrampool_backend::Backend;

/// Smaller requests are stitched only at the limit, granules: each piece of a range costs driver calls.
const STITCHED_FROM: u64 = 1;

/// Share of the peak of live bytes, as a power of two, that is mapped above it before ranges are stitched.
const SLACK: u32 = 6;

/// Largest piece as a share of the mapped bytes, as a power of two, up to [`LARGE_PIECE`]. Each piece costs driver
/// calls, again in each range that is stitched of it; larger pieces cost more memory than they save calls.
const PIECE: u32 = 4;

/// Largest piece, bytes, also of memory that is mapped before any request.
const LARGE_PIECE: u64 = 16 << 20;

/// As [`PIECE`], where [`LARGE_PIECE`] is less than that.
const MOST_SMALL_PIECES: u32 = 10;

/// Growth for small requests as a share of the mapped bytes, as a power of two: few calls, little waste.
const RESERVE: u32 = 10;

/// Smallest piece as a share of a growth, as a power of two: the first request may be for most of the device.
const FEW_PIECES: u32 = 10;

/// As [`FEW_PIECES`], regardless of the configured piece size.
const MOST_PIECES: u32 = 16;

/// How much physical memory a request may ask the device for, by the device's earlier refusals of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Budget {
    /// No allocation was refused yet.
    Free,
    /// An allocation was refused: request as little as possible.
    Frugal,
    /// The frugal allocation was refused, too.
    Exhausted,
}

impl Growth {
    fn new(new: Vec<Extent>, is_at_end: bool) -> Self {
        Self { new, is_at_end, stitched: None, held: Vec::new() }
    }

    /// Bytes of new physical memory.
    pub(crate) fn added(&self) -> u64 {
        self.new.iter().map(|extent| extent.bytes).sum()
    }
}

impl<B: Backend> Backing<B> {
    /// Whether requests of `bytes` may get a stitched range before the limit is reached.
    pub(crate) fn stitches(&self, bytes: u64) -> bool {
        !self.is_private && bytes >= STITCHED_FROM.saturating_mul(self.granularity)
    }

    /// Plans the memory for a request of `bytes`, a multiple of the arena's alignment, that no mapped memory
    /// of the part serves. Returns `None` if the limit does not allow it.
    pub(crate) fn plan(&self, engine: &Arena, zone: Zone, bytes: u64, budget: Budget) -> Option<Growth> {
        let room = self.room(budget);
        let (mut plain, gap) = self.plain(engine, zone, bytes)?;
        let may_stitch = !self.is_private && zone == Zone::Dynamic;
        let holes = |least, of_both| Holes::in_arena(engine, least, of_both);
        if plain.bytes > room || !self.has_addresses(zone, plain) {
            return may_stitch.then(|| self.plan_around(engine, bytes, budget, holes))?;
        }
        let most_live = engine.peak_used().max(engine.used().saturating_add(bytes));
        let is_frugal =
            || budget != Budget::Free || self.stitches(bytes) && !self.is_tight(most_live, plain.bytes);
        if may_stitch && is_frugal() {
            let holes = holes(self.granularity, false);
            let plan = stitch::plan(&self.extents, &holes, bytes);
            let missing = self.round(plan.missing)?;
            if missing <= room && missing < plain.bytes {
                return self.stitched_growth(engine, (bytes, holes), plan, missing);
            }
        }
        if zone == Zone::Stable && gap.is_none() && budget == Budget::Free {
            // Small requests are numerous, so some memory is added in reserve.
            let left = self.front.saturating_sub(plain.start);
            let reserve = self.round(self.mapped >> RESERVE)?.min(room).min(left);
            plain.bytes = plain.bytes.max(reserve);
        }
        Some(Growth::new(self.split(plain)?, gap.is_none()))
    }

    /// Bytes of physical memory that the limit leaves.
    fn room(&self, budget: Budget) -> u64 {
        if budget == Budget::Exhausted { 0 } else { self.limit.saturating_sub(self.mapped) }
    }

    /// Whether mapped bytes stay close to `needed` bytes after adding `added`.
    pub(crate) fn is_tight(&self, needed: u64, added: u64) -> bool {
        self.mapped.saturating_add(added) <= needed + (needed >> SLACK)
    }

    /// Whether a request of `bytes` gets new memory instead of waiting for another stream. `needed` is the peak
    /// of live bytes and bytes in flight.
    pub(crate) fn grows_without_wait(&self, engine: &Arena, bytes: u64, needed: u64) -> bool {
        let most_live = engine.peak_used().max(engine.used().saturating_add(bytes));
        self.round(bytes).is_some_and(|added| {
            let end = Extent { start: engine.end(Zone::Dynamic), bytes: added };
            self.overlap.allows(self.mapped, self.mapped.saturating_add(added), most_live, needed)
                && added <= self.room(Budget::Free)
                && self.has_addresses(Zone::Dynamic, end)
        })
    }

    /// Plans memory for `bytes` at `start`, which is the end of the range, within the limit and the addresses.
    pub(crate) fn plan_end(&self, engine: &Arena, bytes: u64, budget: Budget) -> Option<Growth> {
        let all = Extent { start: engine.end(Zone::Dynamic), bytes: self.round(bytes)? };
        let new = (all.bytes <= self.room(budget)).then(|| self.split(all))??;
        Some(Growth::new(new, true))
    }

    /// Plans memory before any request: at least `bytes` at the end of the range. `None` if the limit or the addresses
    /// do not allow it.
    pub(crate) fn plan_initial(&self, engine: &Arena, bytes: u64) -> Option<Growth> {
        let all = Extent { start: engine.end(Zone::Dynamic), bytes: self.round(bytes)? };
        let new = (all.bytes <= self.room(Budget::Free)).then(|| self.split_up_to(all, LARGE_PIECE))??;
        Some(Growth::new(new, true))
    }

    /// Plans a range of free pieces, and of new ones for the missing bytes. `holes` returns the free parts of
    /// at least some bytes, in the second part of the range or in both.
    pub(crate) fn plan_around(
        &self,
        engine: &Arena,
        bytes: u64,
        budget: Budget,
        holes: impl Fn(u64, bool) -> Holes,
    ) -> Option<Growth> {
        if self.is_private {
            return None;
        }
        let room = self.room(budget);
        // Parts below a granule are not worth a piece of a range. Memory that small requests left free is for small
        // requests. Both serve if nothing else does.
        let sizes = [(self.granularity, false), (self.granularity, true), (1, true)];
        sizes.into_iter().find_map(|(least, of_both)| {
            let holes = holes(least, of_both);
            let plan = stitch::plan(&self.extents, &holes, bytes);
            let missing = self.round(plan.missing).filter(|&missing| missing <= room)?;
            self.stitched_growth(engine, (bytes, holes), plan, missing)
        })
    }

    /// Whether a request gets more memory of a part if none serves.
    pub(crate) fn grows_for(&self, engine: &Arena, zone: Zone, bytes: u64, budget: Budget) -> bool {
        let plain = self.plain(engine, zone, bytes);
        plain.is_some_and(|(plain, _)| plain.bytes <= self.room(budget) && self.has_addresses(zone, plain))
    }

    /// Whether the first part has addresses for new memory that serves a small request of `bytes`.
    pub(crate) fn has_front_for(&self, engine: &Arena, bytes: u64) -> bool {
        self.plain(engine, Zone::Stable, bytes).is_some_and(|(new, _)| new.start < self.front)
    }

    /// Returns the missing memory of a part for a request, at its end or in a gap. That is the smallest with
    /// addresses, or the end if none has.
    fn plain(&self, engine: &Arena, zone: Zone, bytes: u64) -> Option<(Extent, Option<usize>)> {
        let start = engine.end(zone);
        let lacking = engine.free_end(zone).checked_add(bytes)?.saturating_sub(start);
        let end = Extent { start, bytes: self.round(lacking)? };
        let in_gap = self.gaps.iter().enumerate().filter_map(|(gap, &block)| {
            let (room, bytes) = (engine.extent(block), self.round(bytes)?);
            let fits = bytes <= room.bytes && self.zone_at(room.start) == zone;
            fits.then_some((room.first(bytes), Some(gap)))
        });
        let least = in_gap.min_by_key(|(extent, _)| (extent.bytes, extent.start));
        Some(match least {
            Some((extent, gap)) if extent.bytes <= end.bytes || !self.has_addresses(zone, end) => {
                (extent, gap)
            }
            _ => (end, None),
        })
    }

    fn stitched_growth(
        &self,
        engine: &Arena,
        (bytes, holes): (u64, Holes),
        plan: Plan,
        missing: u64,
    ) -> Option<Growth> {
        let end = Extent { start: engine.end(Zone::Dynamic), bytes: missing };
        let (new, is_at_end) = match self.gap_of(engine, missing) {
            _ if missing == 0 => (Vec::new(), true),
            Some(start) => (self.split(Extent { start, bytes: missing })?, false),
            None if self.has_addresses(Zone::Dynamic, end) => (self.split(end)?, true),
            None => (self.split_over_gaps(engine, missing)?, false),
        };
        let pieces: Vec<_> = plan.front.into_iter().chain(new.iter().copied()).chain(plan.back).collect();
        let fit = stitch::fit(&pieces, &holes.with(&new), bytes, &new)?;
        Some(Growth { stitched: Some(stitch::trim(pieces, fit, bytes)), ..Growth::new(new, is_at_end) })
    }

    /// As [`split`](Self::split), over as many gaps as necessary, the largest first.
    fn split_over_gaps(&self, engine: &Arena, mut missing: u64) -> Option<Vec<Extent>> {
        let mut gaps: Vec<_> = self.gaps.iter().map(|&gap| engine.extent(gap)).collect();
        gaps.retain(|gap| gap.start >= self.front);
        gaps.sort_unstable_by_key(|gap| (u64::MAX - gap.bytes, gap.start));
        let mut new = Vec::new();
        for gap in gaps {
            let filled = gap.first(gap.bytes.min(missing));
            missing -= filled.bytes;
            if filled.bytes > 0 {
                new.extend(self.split(filled)?);
            }
        }
        (missing == 0).then_some(new)
    }

    /// Whether the part has addresses for an extent of it. A full first part ends where the second one starts, so the
    /// offset alone does not name the part.
    fn has_addresses(&self, zone: Zone, extent: Extent) -> bool {
        let end = if zone == Zone::Stable { self.front } else { self.addresses };
        extent.start.checked_add(extent.bytes).is_some_and(|last| last <= end)
    }

    fn round(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.granularity)
    }

    fn split(&self, all: Extent) -> Option<Vec<Extent>> {
        self.split_up_to(all, (self.mapped >> PIECE).min(LARGE_PIECE.max(self.mapped >> MOST_SMALL_PIECES)))
    }

    /// Splits an extent into pieces, if there are addresses for it.
    fn split_up_to(&self, all: Extent, largest: u64) -> Option<Vec<Extent>> {
        if !self.has_addresses(self.zone_at(all.start), all) {
            return None;
        }
        let few = self.round(all.bytes >> FEW_PIECES)?;
        let largest = (largest - largest % self.granularity).max(2 * self.granularity);
        let most = largest.max(few).min(self.piece_bytes);
        let most = most.max(self.round(all.bytes >> MOST_PIECES)?);
        let starts = (all.start..all.end()).step_by(usize::try_from(most).unwrap_or(usize::MAX));
        Some(starts.map(|start| Extent { start, bytes: most.min(all.end() - start) }).collect())
    }
}
