//! The backing of a growing arena: pieces of physical memory, each mapped once in the arena's range and any
//! number of times in stitched ranges.
//!
//! * `cover`: extents of the range, and what of them is free;
//! * `gaps`: parts of the range with nothing behind them;
//! * `plan`: what is made for a request;
//! * `stitched_ranges`: stitched ranges, and the bounds on them;
//! * `search`: what is there for one that no hole holds;
//! * `stitch`: which pieces make a range for a request;
//! * `whole`: all of it taken out, and put back.
//!
//! Nothing here calls the device: `make`, `release`, `retire`, `widen` and the arena's sleep do. The arena's
//! lock protects all of it.
//!
//! # Which memory a request gets
//!
//! The range has two parts, each of which grows at its end: small requests are served in one and the others
//! in the other, so that a small block never keeps a large piece from being free.
//!
//! The smallest hole that holds it, as in any arena. A large one that no hole holds gets, of the stitched
//! ranges and the free end, the *oldest* that holds it: so a program that repeats itself finds each time what
//! was made for it the first time, and makes no call of the driver from then on. (By induction: what was made
//! later is younger than what served before.)
//!
//! If nothing does, not even with what a pool gives back that it kept idle, the range grows, at the end of a
//! part or in a gap, as long as mapped bytes stay within 1 + 1/256 of the most that was live since the last
//! decay. Beyond that, or at the limit, a range is stitched of free pieces, and only what they lack is made
//! anew. At the limit pieces that small requests left free are stitched for a large one, too.
//!
//! Once streams share a block, a request that would wait for another stream has the range grow first, as long
//! as mapped bytes stay within 1 3/8 of the most that was live since the last decay, and no other arena
//! shares the allowance: a wait costs a loop that runs ahead of the device more than memory that is there.

mod cover;
mod gaps;
mod plan;
mod search;
mod stitch;
mod stitched_ranges;
mod whole;

use super::quota::Allowance;
use crate::arena::engine::{Arena, BlockId, Zone};
use crate::arena::reserved::ReservedPeaks;
pub(in crate::arena) use cover::{Extent, Holes};
pub(in crate::arena) use plan::{Growth, Stock, headroom_of, runs};
use search::Search;
pub(in crate::arena) use search::Way;
use smallvec::SmallVec;
use std::collections::VecDeque;
pub(in crate::arena) use stitched_ranges::{Part, Retiring, Stitched, Weight};
use vrampool_backend::{Backend, Physical};

/// Requests up to this part of a granule are served in the front part of the range: what pools keep idle.
const SMALL: u64 = 2;

/// The first pieces of a growth, which are mapped and not accessible.
#[derive(Debug)]
pub(in crate::arena) struct Unkept {
    pub(in crate::arena) extents: Vec<Extent>,
    /// As that of the growth.
    pub(in crate::arena) is_at_end: bool,
    pub(in crate::arena) physical: Vec<Physical>,
}

/// What a growing arena's range has behind it.
#[derive(Debug)]
pub(in crate::arena) struct Backing<B: Backend> {
    pub(in crate::arena) granularity: u64,
    /// The most bytes of physical memory.
    pub(in crate::arena) limit: u64,
    /// The device's memory, bytes.
    total: u64,
    /// What other arenas have a part in.
    allowance: Option<Allowance>,
    /// The most bytes of one piece.
    piece_bytes: u64,
    /// Where the second part of the range starts, and where it must end.
    pub(in crate::arena) front: u64,
    pub(in crate::arena) addresses: u64,
    /// Pieces of physical memory, by where they are mapped in the range, and what they are.
    pub(in crate::arena) extents: Vec<Extent>,
    pub(in crate::arena) physical: Vec<Physical>,
    /// Of which stitched ranges each is a part, the oldest first, and which of theirs it is.
    parts_of: Vec<SmallVec<[(u32, u32); 2]>>,
    /// Parts of the range that have nothing behind them any more, held.
    pub(in crate::arena) gaps: Vec<BlockId>,
    /// Pieces that could be neither made accessible nor unmapped again, held.
    pub(in crate::arena) stuck: Vec<(Extent, BlockId)>,
    /// Such pieces for which the host has no records: nothing grows and nothing is released until it has.
    pub(in crate::arena) unkept: Vec<Unkept>,
    /// Bytes of all pieces.
    pub(in crate::arena) mapped: u64,
    reserved_peaks: ReservedPeaks,
    /// Where the range ended, each later than the one before, and when it came to.
    ends: Vec<(u64, u64)>,
    /// By age.
    pub(in crate::arena) stitched: Vec<Stitched<B>>,
    /// Stitched ranges that lost a piece while buffers have them, and what is still mapped in each.
    pub(in crate::arena) torn: Vec<(Stitched<B>, Vec<Part>)>,
    /// What whole stitched ranges take.
    in_ranges: Weight,
    /// Ranges on their way out, those that went first in front, and what they take.
    pub(in crate::arena) retiring: VecDeque<Retiring<B>>,
    pub(in crate::arena) retiring_weight: Weight,
    /// Ends and stitched ranges so far.
    ages: u64,
    /// The last search for a range.
    search: Search,
    /// What was mapped when the device refused more that was to spare a wait.
    growth_refused_at: Option<u64>,
    /// Whether there was a [decay](crate::arena::DeviceArena::decay) yet.
    pub(in crate::arena) decays: bool,
}

impl<B: Backend> Backing<B> {
    /// `front` bytes of the `addresses` are the first part's; the device has `total` bytes.
    pub(in crate::arena) fn new(
        granularity: u64,
        (limit, total): (u64, u64),
        piece_bytes: u64,
        (front, addresses): (u64, u64),
    ) -> Self {
        Self {
            granularity,
            limit: limit - limit % granularity,
            total,
            allowance: None,
            piece_bytes: (piece_bytes - piece_bytes % granularity).max(granularity),
            front,
            addresses,
            extents: Vec::new(),
            physical: Vec::new(),
            parts_of: Vec::new(),
            gaps: Vec::new(),
            stuck: Vec::new(),
            unkept: Vec::with_capacity(1),
            mapped: 0,
            reserved_peaks: ReservedPeaks::default(),
            ends: Vec::new(),
            stitched: Vec::new(),
            torn: Vec::new(),
            in_ranges: Weight::default(),
            retiring: VecDeque::new(),
            retiring_weight: Weight::default(),
            ages: 0,
            search: Search::default(),
            growth_refused_at: None,
            decays: false,
        }
    }

    /// The same within an allowance, which bounds what it takes, too.
    pub(in crate::arena) fn within(self, allowance: Option<Allowance>) -> Self {
        Self { allowance, ..self }
    }

    /// The same with its arena's peaks.
    pub(in crate::arena) fn noting(self, reserved_peaks: ReservedPeaks) -> Self {
        Self { reserved_peaks, ..self }
    }

    /// In which part of the range a request is served.
    pub(in crate::arena) fn zone_of(&self, bytes: u64) -> Zone {
        if self.front > 0 && bytes <= self.granularity / SMALL { Zone::Stable } else { Zone::Dynamic }
    }

    /// In which part of the range an offset is.
    pub(in crate::arena) fn zone_at(&self, offset: u64) -> Zone {
        if offset < self.front { Zone::Stable } else { Zone::Dynamic }
    }

    /// Free parts of the range's second part, or of both, of at least so many bytes.
    pub(in crate::arena) fn holes(&self, engine: &Arena, least: u64, of_both: bool) -> Holes {
        let mut holes = Holes::default();
        holes.find(engine, least, of_both);
        holes
    }

    /// Its second part ends there from now on.
    pub(in crate::arena) fn ends_at(&mut self, end: u64) {
        let age = self.next_age();
        self.ends.retain(|&(other, _)| other < end);
        self.ends.push((end, age));
    }

    /// Its second part was cut.
    pub(in crate::arena) fn cut_at(&mut self, end: u64) {
        let kept = self.ends.partition_point(|&(other, _)| other < end);
        if let Some(next) = self.ends.get_mut(kept) {
            next.0 = end;
            self.ends.truncate(kept + 1);
        }
    }

    /// There is one more piece.
    pub(in crate::arena) fn add(&mut self, extent: Extent, physical: Physical) {
        self.mapped += extent.bytes;
        self.reserved_peaks.note(self.mapped);
        let place = self.extents.partition_point(|other| other.start < extent.start);
        self.extents.insert(place, extent);
        self.physical.insert(place, physical);
        self.parts_of.insert(place, SmallVec::new());
        self.search.forget();
    }

    /// Those pieces are gone, of which no stitched range consists any more.
    pub(in crate::arena) fn remove(&mut self, extents: &[Extent]) -> Vec<Physical> {
        let mut starts: Vec<u64> = extents.iter().map(|extent| extent.start).collect();
        starts.sort_unstable();
        let is_gone = |piece: &Extent| starts.binary_search(&piece.start).is_ok();
        let are_gone: Vec<bool> = self.extents.iter().map(is_gone).collect();
        if !are_gone.contains(&true) {
            return Vec::new();
        }
        // Three lists of one order.
        let (mut of_extents, mut of_physical, mut of_parts) =
            (are_gone.iter(), are_gone.iter(), are_gone.iter());
        self.extents.retain(|_| of_extents.next() != Some(&true));
        self.parts_of.retain(|_| of_parts.next() != Some(&true));
        let gone: Vec<_> = self.physical.extract_if(.., |_| of_physical.next() == Some(&true)).collect();
        self.mapped -= gone.iter().map(Physical::len).sum::<u64>();
        self.search.forget();
        gone
    }

    fn place_of(&self, extent: Extent) -> Option<usize> {
        self.extents.binary_search_by_key(&extent.start, |piece| piece.start).ok()
    }

    /// Bytes of addresses, of stitched ranges too.
    pub(in crate::arena) fn address_bytes(&self) -> u64 {
        self.addresses + self.stitched_weight().bytes
    }

    /// Pieces that are mapped, each as often as it is.
    pub(in crate::arena) fn mappings(&self) -> u64 {
        self.extents.len() as u64 + self.stitched_weight().parts
    }

    fn next_age(&mut self) -> u64 {
        self.ages += 1;
        self.ages
    }

    /// The physical memory of a piece.
    pub(in crate::arena) fn physical(&self, extent: Extent) -> Option<&Physical> {
        self.physical.get(self.place_of(extent)?)
    }
}

/// A stitched range consists of those pieces.
fn note_parts(parts_of: &mut [SmallVec<[(u32, u32); 2]>], pieces: &[Extent], all: &[Extent], range: usize) {
    for (number, piece) in (0..).zip(pieces) {
        let place = all.partition_point(|other| other.start < piece.start);
        if let Some(parts) = parts_of.get_mut(place) {
            parts.push((range as u32, number));
        }
    }
}
