//! What is behind the range of a growing arena: pieces of physical memory, each mapped in the range once, and in stitched
//! ranges as often as it takes.
//!
//! * `cover`: extents of the range, and what of them is free;
//! * `gaps`: parts of the range with nothing behind them;
//! * `stitch`: which pieces make a range for a request.
//!
//! Nothing here calls the device; `growth` and `release` do. All of it is under the arena's lock.
//!
//! # Which memory a request gets
//!
//! The smallest hole that holds it, as in any arena. A large one that no hole holds gets, of the stitched ranges and the free
//! end, the *oldest* that holds it: so a program that repeats itself finds each time what was made for it the first time, and
//! makes no call of the driver from then on. (By induction: what was made later is younger than what served before.)
//!
//! If nothing does, the range grows at its end, as long as what is mapped stays within a 64th of the most that was ever live.
//! Beyond that, or at the limit, a range is stitched of free pieces, and only what they lack is made anew.

mod cover;
mod gaps;
mod stitch;

use cover::Cover;
pub(super) use cover::{Extent, Holes};
pub(super) use stitch::Fit;
use stitch::Plan;

use crate::arena::{Arena, Block};
use std::sync::Arc;
use vrampool_backend::{Backend, Physical};

/// Requests below this size are never stitched but at the limit: each piece of a range costs calls of the driver, granules.
const STITCHED_FROM: u64 = 2;

/// The smallest free parts that a stitched range is made of, to a granule.
const SMALLEST_PART: u64 = 2;

/// What is mapped may exceed the most that was live by this share, as a power of two, before ranges are stitched.
const SLACK: u32 = 6;

/// The share of what is mapped, as a power of two, that one piece may be: few pieces, and yet small ones.
const PIECE: u32 = 7;

/// The share of a growth, as a power of two, that one piece is at least: the first request may be for most of the device.
const FEW_PIECES: u32 = 10;

/// As [`FEW_PIECES`], however small pieces are to be.
const MOST_PIECES: u32 = 16;

/// A piece of physical memory, and where it is mapped.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) extent: Extent,
    pub(super) physical: Physical,
}

/// A range of pieces that are elsewhere in the arena's.
#[derive(Debug)]
pub(super) struct Stitched<B: Backend> {
    age: u64,
    pub(super) memory: Arc<B::Memory>,
    pub(super) pieces: Box<[Extent]>,
    /// Which of the arena's they are, in the order of its range.
    places: Box<[u32]>,
    bytes: u64,
}

/// A piece in a stitched range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Where in the range.
    pub(super) offset: u64,
    pub(super) piece: Extent,
}

impl<B: Backend> Stitched<B> {
    /// All its pieces, where they are in it.
    pub(super) fn parts(&self) -> Vec<Part> {
        let offsets = self.pieces.iter().scan(0, |end, piece| {
            *end += piece.bytes;
            Some(*end - piece.bytes)
        });
        self.pieces.iter().zip(offsets).map(|(&piece, offset)| Part { offset, piece }).collect()
    }

    /// Whether no buffer has it. Under the arena's lock nobody gets it meanwhile.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }
}

/// What a growing arena's range has behind it.
#[derive(Debug)]
pub(super) struct Backing<B: Backend> {
    pub(super) granularity: u64,
    /// The most bytes of physical memory.
    pub(super) limit: u64,
    /// The most bytes of one piece.
    piece_bytes: u64,
    /// Bytes of address space.
    pub(super) addresses: u64,
    /// By offset.
    pub(super) pieces: Vec<Piece>,
    /// Parts of the range that have nothing behind them any more, set apart.
    pub(super) gaps: Vec<Block>,
    /// Pieces that could be neither made accessible nor unmapped again, set apart.
    pub(super) stuck: Vec<(Extent, Block)>,
    /// Bytes of all pieces, and the most that there were.
    pub(super) mapped: u64,
    pub(super) peak_mapped: u64,
    /// Where the range ended, each later than the one before, and when it came to.
    ends: Vec<(u64, u64)>,
    /// By age.
    pub(super) stitched: Vec<Stitched<B>>,
    /// Stitched ranges that lost a piece while buffers have them, and what is still mapped in each.
    pub(super) torn: Vec<(Stitched<B>, Vec<Part>)>,
    /// Ends and stitched ranges so far.
    ages: u64,
    /// What is free of each piece, while a range is sought.
    covers: Vec<Cover>,
    /// Whether there was a [decay](super::DeviceArena::decay) yet.
    pub(super) decays: bool,
}

/// What a request gets without a call of the device.
#[derive(Debug)]
pub(super) enum Way<B: Backend> {
    /// The range's free end.
    End,
    Stitched(Arc<B::Memory>, Fit),
    Nothing,
}

/// What is to be made for a request.
#[derive(Debug)]
pub(super) struct Growth {
    /// Of physical memory, mapped in the range one behind the other.
    pub(super) new: Vec<Extent>,
    /// The hold of the gap that they are to fill; none at the end of the range.
    pub(super) gap: Option<usize>,
    /// The stitched range, if one is to be.
    pub(super) stitched: Option<Vec<Extent>>,
    pub(super) fit: Option<Fit>,
}

impl<B: Backend> Backing<B> {
    pub(super) fn new(granularity: u64, limit: u64, piece_bytes: u64, addresses: u64) -> Self {
        Self {
            granularity,
            limit: limit - limit % granularity,
            piece_bytes: (piece_bytes - piece_bytes % granularity).max(granularity),
            addresses,
            pieces: Vec::new(),
            gaps: Vec::new(),
            stuck: Vec::new(),
            mapped: 0,
            peak_mapped: 0,
            ends: Vec::new(),
            stitched: Vec::new(),
            torn: Vec::new(),
            ages: 0,
            covers: Vec::new(),
            decays: false,
        }
    }

    /// Whether requests of `bytes` may get a stitched range before the limit makes them.
    pub(super) fn stitches(&self, bytes: u64) -> bool {
        bytes >= STITCHED_FROM.saturating_mul(self.granularity)
    }

    /// The oldest of what is mapped beside the holes and holds `bytes`.
    pub(super) fn oldest(&mut self, engine: &Arena, bytes: u64) -> Way<B> {
        let end = engine.free_end().saturating_add(bytes);
        let end_age =
            self.ends.get(self.ends.partition_point(|&(other, _)| other < end)).map(|&(_, age)| age);
        let is_older = |range: &&Stitched<B>| end_age.is_none_or(|age| range.age < age);
        let older = self.stitched.partition_point(|range| is_older(&range));
        if self.stitched[..older].iter().all(|range| range.bytes < bytes) {
            return end_age.map_or(Way::Nothing, |_| Way::End);
        }
        let holes = self.holes(engine);
        holes.cover(self.pieces.iter().map(|piece| piece.extent), &mut self.covers);
        let (older, covers) = (self.stitched[..older].iter(), &self.covers);
        let mut served =
            older.filter(|range| range.bytes >= bytes && stitch::fits(&range.places, covers, bytes));
        let fit = |range: &Stitched<B>| stitch::fit(&range.pieces, &holes, bytes);
        match (served.next().and_then(|range| Some((range, fit(range)?))), end_age) {
            (Some((range, fit)), _) => Way::Stitched(Arc::clone(&range.memory), fit),
            (None, Some(_)) => Way::End,
            (None, None) => Way::Nothing,
        }
    }

    fn holes(&self, engine: &Arena) -> Holes {
        Holes::new(engine.holes((self.granularity / SMALLEST_PART).max(1)))
    }

    /// What is to be made for a request of `bytes`, a multiple of the arena's alignment, that nothing mapped serves: `None`
    /// when that is too much. `no_more`: no physical memory is to be had.
    pub(super) fn plan(
        &self,
        engine: &Arena,
        (bytes, alignment): (u64, u64),
        no_more: bool,
    ) -> Option<Growth> {
        let room = if no_more { 0 } else { self.limit.saturating_sub(self.mapped) };
        let (plain, gap) = self.plain(engine, bytes, alignment)?;
        let most_live = engine.peak_used().max(engine.used() + bytes);
        let is_tight = self.mapped.saturating_add(plain.bytes) <= most_live + (most_live >> SLACK);
        let is_had = plain.bytes <= room && self.has_addresses(plain);
        let may_stitch = alignment <= engine.alignment();
        if may_stitch && (!is_had || !is_tight && self.stitches(bytes)) {
            let holes = self.holes(engine);
            let plan = stitch::plan(self.pieces.iter().map(|piece| piece.extent), &holes, bytes);
            let missing = self.round(plan.missing)?;
            if missing <= room && (missing < plain.bytes || !is_had) {
                return self.stitched_growth(engine, bytes, plan, missing);
            }
        }
        let new = is_had.then(|| self.split(plain)).flatten()?;
        Some(Growth { new, gap, stitched: None, fit: None })
    }

    /// Whether a request too small to be stitched without need gets more of the arena's range, if nothing of it serves.
    pub(super) fn grows_for(&self, engine: &Arena, bytes: u64, no_more: bool) -> bool {
        let room = if no_more { 0 } else { self.limit.saturating_sub(self.mapped) };
        let plain = self.plain(engine, bytes, 1);
        !self.stitches(bytes)
            && plain.is_some_and(|(plain, _)| plain.bytes <= room && self.has_addresses(plain))
    }

    /// What the arena's range lacks for a request, at its end or in a gap: where the least is lacking, of where there are
    /// addresses. The end of the range where nowhere are.
    fn plain(&self, engine: &Arena, bytes: u64, alignment: u64) -> Option<(Extent, Option<usize>)> {
        let reach = |start: u64| start.checked_next_multiple_of(alignment.max(1))?.checked_add(bytes);
        let capacity = engine.capacity();
        let lacking = reach(engine.free_end())?.saturating_sub(capacity);
        let end = Extent { start: capacity, bytes: self.round(lacking)? };
        let in_gap = self.gaps.iter().enumerate().filter_map(|(gap, &block)| {
            let (start, room) = engine.extent(block);
            let bytes = self.round(reach(start)? - start)?;
            (bytes <= room).then_some((Extent { start, bytes }, Some(gap)))
        });
        let least = in_gap.min_by_key(|(extent, _)| (extent.bytes, extent.start));
        Some(match least {
            Some((extent, gap)) if extent.bytes <= end.bytes || !self.has_addresses(end) => (extent, gap),
            _ => (end, None),
        })
    }

    fn stitched_growth(&self, engine: &Arena, bytes: u64, plan: Plan, missing: u64) -> Option<Growth> {
        let (gap, start) = match self.gap_of(engine, missing) {
            Some((gap, start)) if missing > 0 => (Some(gap), start),
            _ => (None, engine.capacity()),
        };
        let new = self.split(Extent { start, bytes: missing })?;
        let pieces: Vec<_> = plan.front.into_iter().chain(new.iter().copied()).chain(plan.back).collect();
        let fit = stitch::fit(&pieces, &self.holes(engine).with(&new), bytes)?;
        Some(Growth { new, gap, stitched: Some(pieces), fit: Some(fit) })
    }

    fn has_addresses(&self, extent: Extent) -> bool {
        extent.start.checked_add(extent.bytes).is_some_and(|end| end <= self.addresses)
    }

    fn round(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.granularity)
    }

    /// An extent as pieces, if there are addresses for it.
    fn split(&self, all: Extent) -> Option<Vec<Extent>> {
        if !self.has_addresses(all) {
            return None;
        }
        let share = (self.mapped >> PIECE) / self.granularity * self.granularity;
        let most =
            share.max(2 * self.granularity).max(self.round(all.bytes >> FEW_PIECES)?).min(self.piece_bytes);
        let most = most.max(self.round(all.bytes >> MOST_PIECES)?);
        let starts = (all.start..all.end()).step_by(usize::try_from(most).unwrap_or(usize::MAX));
        Some(starts.map(|start| Extent { start, bytes: most.min(all.end() - start) }).collect())
    }

    /// The range ends there from now on.
    pub(super) fn ends_at(&mut self, end: u64) {
        let age = self.next_age();
        self.ends.retain(|&(other, _)| other < end);
        self.ends.push((end, age));
    }

    /// The range was cut.
    pub(super) fn cut_at(&mut self, end: u64) {
        let kept = self.ends.partition_point(|&(other, _)| other < end);
        if let Some(next) = self.ends.get_mut(kept) {
            next.0 = end;
            self.ends.truncate(kept + 1);
        }
    }

    /// There is one more piece.
    pub(super) fn add(&mut self, piece: Piece) {
        self.mapped += piece.extent.bytes;
        self.peak_mapped = self.peak_mapped.max(self.mapped);
        let place = self.pieces.partition_point(|other| other.extent.start < piece.extent.start);
        self.pieces.insert(place, piece);
        if place + 1 < self.pieces.len() {
            self.place_anew();
        }
    }

    /// A piece is gone.
    pub(super) fn remove(&mut self, extent: Extent) -> Option<Piece> {
        let place = self.pieces.binary_search_by_key(&extent.start, |piece| piece.extent.start).ok()?;
        self.mapped -= extent.bytes;
        let piece = self.pieces.remove(place);
        self.place_anew();
        Some(piece)
    }

    /// Pieces have other places among each other.
    fn place_anew(&mut self) {
        let Self { pieces, stitched, .. } = self;
        for range in stitched {
            range.places = places(pieces, &range.pieces);
        }
    }

    /// A stitched range is whole, as it was before.
    pub(super) fn mend(&mut self, mut range: Stitched<B>) {
        range.places = places(&self.pieces, &range.pieces);
        let place = self.stitched.partition_point(|other| other.age < range.age);
        self.stitched.insert(place, range);
    }

    /// There is one more stitched range.
    pub(super) fn add_stitched(&mut self, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        let (age, bytes) = (self.next_age(), pieces.iter().map(|piece| piece.bytes).sum());
        let places = places(&self.pieces, &pieces);
        self.stitched.push(Stitched { age, memory, pieces: pieces.into(), places, bytes });
    }

    /// Bytes of addresses, of stitched ranges too.
    pub(super) fn address_bytes(&self) -> u64 {
        let torn = self.torn.iter().map(|(range, _)| range);
        self.addresses + self.stitched.iter().chain(torn).map(|range| range.bytes).sum::<u64>()
    }

    fn next_age(&mut self) -> u64 {
        self.ages += 1;
        self.ages
    }

    /// The physical memory of a piece.
    pub(super) fn physical(&self, extent: Extent) -> Option<&Physical> {
        let place = self.pieces.binary_search_by_key(&extent.start, |piece| piece.extent.start).ok()?;
        Some(&self.pieces[place].physical)
    }
}

/// Where pieces are among all.
fn places(all: &[Piece], pieces: &[Extent]) -> Box<[u32]> {
    let place = |piece: &Extent| all.partition_point(|other| other.extent.start < piece.start) as u32;
    pieces.iter().map(place).collect()
}
