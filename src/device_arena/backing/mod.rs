//! What is behind the range of a growing arena: pieces of physical memory, each mapped in the range once, and in stitched
//! ranges as often as it takes.
//!
//! * `cover`: extents of the range, and what of them is free;
//! * `stitch`: which pieces make a range for a request;
//! * `partial`: ranges of which pieces are gone.
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
mod partial;
mod stitch;

use cover::Cover;
pub(super) use cover::{Extent, Holes};
pub(super) use partial::Partial;
pub(super) use stitch::Fit;

use crate::arena::{Arena, Block};
use std::sync::Arc;
use vrampool_backend::{Backend, Physical};

/// Requests below this size are never stitched but at the limit: each piece of a range costs calls of the driver, bytes.
const STITCHED_FROM: u64 = 4 << 20;

/// The smallest free parts that a stitched range is made of, bytes.
const SMALLEST_PART: u64 = 1 << 20;

/// What is mapped may exceed the most that was live by this share, as a power of two, before ranges are stitched.
const SLACK: u32 = 6;

/// The share of what is mapped, as a power of two, that one piece may be: few pieces, and yet small ones.
const PIECE: u32 = 7;

/// A piece of physical memory, and where it is mapped.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) extent: Extent,
    pub(super) physical: Physical,
}

/// A range of pieces that are elsewhere in the arena's.
#[derive(Debug)]
pub(super) struct Stitched<B: Backend> {
    pub(super) age: u64,
    pub(super) memory: Arc<B::Memory>,
    pub(super) pieces: Box<[Extent]>,
    /// Which of the arena's they are, in the order of its range.
    places: Box<[u32]>,
    bytes: u64,
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
    /// Parts of the range that have nothing behind them any more, held.
    pub(super) gaps: Vec<Block>,
    /// Bytes of all pieces, and the most that there were.
    pub(super) mapped: u64,
    pub(super) peak_mapped: u64,
    /// Where the range ended, each later than the one before, and when it came to.
    ends: Vec<(u64, u64)>,
    pub(super) stitched: Vec<Stitched<B>>,
    pub(super) partial: Vec<Partial<B>>,
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
            mapped: 0,
            peak_mapped: 0,
            ends: Vec::new(),
            stitched: Vec::new(),
            partial: Vec::new(),
            ages: 0,
            covers: Vec::new(),
            decays: false,
        }
    }

    /// Whether requests of `bytes` may get a stitched range before the limit makes them.
    pub(super) fn stitches(bytes: u64) -> bool {
        bytes >= STITCHED_FROM
    }

    /// The oldest of what is mapped beside the holes and holds `bytes`.
    pub(super) fn oldest(&mut self, engine: &Arena, bytes: u64) -> Way<B> {
        let end = engine.free_end().saturating_add(bytes);
        let end_age =
            self.ends.get(self.ends.partition_point(|&(other, _)| other < end)).map(|&(_, age)| age);
        let holes = Self::holes(engine);
        holes.cover(self.pieces.iter().map(|piece| piece.extent), &mut self.covers);
        let older = self.stitched.iter().take_while(|range| end_age.is_none_or(|age| range.age < age));
        let covers = &self.covers;
        let mut served =
            older.filter(|range| range.bytes >= bytes && stitch::fits(&range.places, covers, bytes));
        let fit = |range: &Stitched<B>| stitch::fit(&range.pieces, &holes, bytes);
        match (served.next().and_then(|range| Some((range, fit(range)?))), end_age) {
            (Some((range, fit)), _) => Way::Stitched(Arc::clone(&range.memory), fit),
            (None, Some(_)) => Way::End,
            (None, None) => Way::Nothing,
        }
    }

    fn holes(engine: &Arena) -> Holes {
        Holes::new(engine.holes(SMALLEST_PART))
    }

    /// What is to be made for a request of `bytes` that nothing mapped serves: `None` when that is too much. `no_more`: no
    /// physical memory is to be had.
    pub(super) fn plan(&self, engine: &Arena, bytes: u64, no_more: bool) -> Option<Growth> {
        let room = if no_more { 0 } else { self.limit.saturating_sub(self.mapped) };
        let capacity = engine.capacity();
        let needed = self.round(engine.free_end().checked_add(bytes)?.saturating_sub(capacity))?;
        let in_a_gap = self.gap_of(engine, self.round(bytes)?);
        let (needed, in_a_gap) = match in_a_gap {
            Some((gap, start)) if self.round(bytes)? <= room => (self.round(bytes)?, Some((gap, start))),
            _ => (needed, None),
        };
        let most_live = engine.peak_used().max(engine.used() + bytes);
        let is_tight = self.mapped.saturating_add(needed) <= most_live + (most_live >> SLACK);
        if needed > room || !is_tight && Self::stitches(bytes) {
            let holes = Self::holes(engine);
            let plan = stitch::plan(self.pieces.iter().map(|piece| piece.extent), &holes, bytes);
            let missing = self.round(plan.missing)?;
            if missing <= room && (missing < needed || needed > room) {
                let (gap, start) = match self.gap_of(engine, missing) {
                    Some((gap, start)) if missing > 0 => (Some(gap), start),
                    _ => (None, capacity),
                };
                let new = self.split(start, missing);
                let pieces: Vec<_> =
                    plan.front.into_iter().chain(new.iter().copied()).chain(plan.back).collect();
                let holes = holes.with(&new);
                let fit = stitch::fit(&pieces, &holes, bytes)?;
                return self.has_addresses(&new).then_some(Growth {
                    new,
                    gap,
                    stitched: Some(pieces),
                    fit: Some(fit),
                });
            }
        }
        if needed > room {
            return None;
        }
        let (gap, start) = in_a_gap.map_or((None, capacity), |(gap, start)| (Some(gap), start));
        let new = self.split(start, needed);
        self.has_addresses(&new).then_some(Growth { new, gap, stitched: None, fit: None })
    }

    fn has_addresses(&self, new: &[Extent]) -> bool {
        new.last().is_none_or(|last| last.end() <= self.addresses)
    }

    fn round(&self, bytes: u64) -> Option<u64> {
        bytes.checked_next_multiple_of(self.granularity)
    }

    /// The first gap of at least `bytes`, and where it starts.
    fn gap_of(&self, engine: &Arena, bytes: u64) -> Option<(usize, u64)> {
        let mut gaps = self.gaps.iter().map(|&gap| engine.extent(gap)).enumerate();
        gaps.find(|(_, (_, room))| *room >= bytes).map(|(gap, (start, _))| (gap, start))
    }

    /// `bytes` from `start` on as pieces.
    fn split(&self, start: u64, bytes: u64) -> Vec<Extent> {
        let share = (self.mapped >> PIECE) / self.granularity * self.granularity;
        let most = share.max(2 * self.granularity).min(self.piece_bytes);
        let starts = (start..start + bytes).step_by(usize::try_from(most).unwrap_or(usize::MAX));
        starts.map(|at| Extent { start: at, bytes: most.min(start + bytes - at) }).collect()
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

    /// There is one more stitched range.
    pub(super) fn add_stitched(&mut self, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        let (age, bytes) = (self.next_age(), pieces.iter().map(|piece| piece.bytes).sum());
        let places = places(&self.pieces, &pieces);
        self.stitched.push(Stitched { age, memory, pieces: pieces.into(), places, bytes });
    }

    /// Bytes of addresses, of stitched ranges too.
    pub(super) fn address_bytes(&self) -> u64 {
        self.addresses + self.stitched.iter().map(|range| range.bytes).sum::<u64>()
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
