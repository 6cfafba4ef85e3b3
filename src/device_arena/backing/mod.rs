//! What is behind the range of a growing arena: pieces of physical memory, each mapped in the range once, and in stitched
//! ranges as often as it takes.
//!
//! * `cover`: extents of the range, and what of them is free;
//! * `gaps`: parts of the range with nothing behind them;
//! * `plan`: what is made for a request;
//! * `search`: what is there for one that no hole holds;
//! * `stitch`: which pieces make a range for a request;
//! * `whole`: all of it taken out, and put back.
//!
//! Nothing here calls the device; `growth`, `release` and `sleep` do. All of it is under the arena's lock.
//!
//! # Which memory a request gets
//!
//! The range has two parts, each of which grows at its end: small requests are served in one and the others in the other, so
//! that a small block never keeps a large piece from being free.
//!
//! The smallest hole that holds it, as in any arena. A large one that no hole holds gets, of the stitched ranges and the free
//! end, the *oldest* that holds it: so a program that repeats itself finds each time what was made for it the first time, and
//! makes no call of the driver from then on. (By induction: what was made later is younger than what served before.)
//!
//! If nothing does, not even with what a pool gives back that it kept idle, the range grows, at the end of a part or in a gap, as
//! long as what is mapped stays within a 256th of the most that was live since the last decay. Beyond that, or at the limit, a
//! range is stitched of free pieces, and only what they lack is made anew. At the limit what small requests left free is released for a large one.
//!
//! Once streams share a block, a request that would wait for another stream has the range grow first, as long as what is mapped stays
//! within three eighths more than the most that was live since the last decay, and others are not to have it within one allowance: a
//! wait costs a loop that runs ahead of the device more than memory that is there.

mod cover;
mod gaps;
mod plan;
mod search;
mod stitch;
mod whole;

pub(super) use cover::{Extent, Holes};
pub(super) use plan::{Growth, Stock, apart_of};
use search::Search;
pub(super) use search::Way;

use crate::arena::{Arena, Block, Region};
use smallvec::SmallVec;
use std::sync::Arc;
use vrampool_backend::{Backend, Physical};

/// Requests up to this part of a granule are served in the front part of the range: what pools keep idle.
const SMALL: u64 = 2;

/// A range of pieces that are elsewhere in the arena's.
#[derive(Debug)]
pub(super) struct Stitched<B: Backend> {
    pub(super) age: u64,
    pub(super) memory: Arc<B::Memory>,
    pub(super) pieces: Box<[Extent]>,
    bytes: u64,
    /// Where in the arena's range the last of them ends.
    end: u64,
}

/// The first pieces of a growth, which are mapped and not accessible.
#[derive(Debug)]
pub(super) struct Unkept {
    pub(super) extents: Vec<Extent>,
    /// As that of the growth.
    pub(super) gap: Option<usize>,
    pub(super) physical: Vec<Physical>,
}

/// A piece in a stitched range.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    /// Where in the range.
    pub(super) offset: u64,
    pub(super) piece: Extent,
}

impl<B: Backend> Stitched<B> {
    fn new(age: u64, memory: Arc<B::Memory>, pieces: Vec<Extent>) -> Self {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let end = pieces.iter().map(|piece| piece.end()).max().unwrap_or(0);
        Self { age, memory, pieces: pieces.into(), bytes, end }
    }

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
    /// Where the second part of the range starts, and where it must end.
    pub(super) front: u64,
    pub(super) addresses: u64,
    /// Pieces of physical memory, by where they are mapped in the range, and what they are.
    pub(super) extents: Vec<Extent>,
    pub(super) physical: Vec<Physical>,
    /// Of which stitched ranges each is a part, the oldest first, and which of theirs it is.
    parts_of: Vec<SmallVec<[(u32, u32); 2]>>,
    /// Parts of the range that have nothing behind them any more, set apart.
    pub(super) gaps: Vec<Block>,
    /// Pieces that could be neither made accessible nor unmapped again, set apart.
    pub(super) stuck: Vec<(Extent, Block)>,
    /// Such pieces for which the host has no records: nothing grows and nothing is released until it has.
    pub(super) unkept: Vec<Unkept>,
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
    /// The last search for a range.
    search: Search,
    /// What was mapped when the device refused more that was to spare a wait.
    refused_apart: Option<u64>,
    /// Whether there was a [decay](super::DeviceArena::decay) yet.
    pub(super) decays: bool,
}

impl<B: Backend> Backing<B> {
    /// `front` bytes of the `addresses` are the first part's.
    pub(super) fn new(
        granularity: u64,
        limit: u64,
        piece_bytes: u64,
        (front, addresses): (u64, u64),
    ) -> Self {
        Self {
            granularity,
            limit: limit - limit % granularity,
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
            peak_mapped: 0,
            ends: Vec::new(),
            stitched: Vec::new(),
            torn: Vec::new(),
            ages: 0,
            search: Search::default(),
            refused_apart: None,
            decays: false,
        }
    }

    /// In which part of the range a request is served.
    pub(super) fn region_of(&self, bytes: u64) -> Region {
        if self.front > 0 && bytes <= self.granularity / SMALL { Region::Stable } else { Region::Dynamic }
    }

    /// In which part of the range an offset is.
    pub(super) fn region_at(&self, offset: u64) -> Region {
        if offset < self.front { Region::Stable } else { Region::Dynamic }
    }

    /// Smaller free parts are not worth a piece of a range.
    fn holes(&self, engine: &Arena) -> Holes {
        let mut holes = Holes::default();
        holes.find(engine, self.granularity);
        holes
    }

    /// Its second part ends there from now on.
    pub(super) fn ends_at(&mut self, end: u64) {
        let age = self.next_age();
        self.ends.retain(|&(other, _)| other < end);
        self.ends.push((end, age));
    }

    /// Its second part was cut.
    pub(super) fn cut_at(&mut self, end: u64) {
        let kept = self.ends.partition_point(|&(other, _)| other < end);
        if let Some(next) = self.ends.get_mut(kept) {
            next.0 = end;
            self.ends.truncate(kept + 1);
        }
    }

    /// There is one more piece.
    pub(super) fn add(&mut self, extent: Extent, physical: Physical) {
        self.mapped += extent.bytes;
        self.peak_mapped = self.peak_mapped.max(self.mapped);
        let place = self.extents.partition_point(|other| other.start < extent.start);
        self.extents.insert(place, extent);
        self.physical.insert(place, physical);
        self.parts_of.insert(place, SmallVec::new());
        if place + 1 < self.extents.len() {
            self.place_anew();
        }
    }

    /// A piece is gone.
    pub(super) fn remove(&mut self, extent: Extent) -> Option<Physical> {
        let place = self.place_of(extent)?;
        self.mapped -= extent.bytes;
        self.extents.remove(place);
        let physical = self.physical.remove(place);
        self.parts_of.remove(place);
        self.place_anew();
        Some(physical)
    }

    fn place_of(&self, extent: Extent) -> Option<usize> {
        self.extents.binary_search_by_key(&extent.start, |piece| piece.start).ok()
    }

    /// Stitched ranges with such pieces, which are theirs no more.
    pub(super) fn take_stitched(&mut self, has: impl Fn(&Stitched<B>) -> bool) -> Vec<Stitched<B>> {
        let taken = self.stitched.extract_if(.., |range| has(range)).collect();
        self.place_anew();
        taken
    }

    /// A stitched range is whole, as it was before.
    pub(super) fn mend(&mut self, range: Stitched<B>) {
        let place = self.stitched.partition_point(|other| other.age < range.age);
        self.stitched.insert(place, range);
        self.place_anew();
    }

    /// Pieces, or stitched ranges, have other places among each other.
    fn place_anew(&mut self) {
        let Self { extents, stitched, parts_of, search, .. } = self;
        search.forget();
        parts_of.iter_mut().for_each(SmallVec::clear);
        for (index, range) in stitched.iter().enumerate() {
            note_parts(parts_of, &range.pieces, extents, index);
        }
    }

    /// There is one more stitched range.
    pub(super) fn add_stitched(&mut self, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        let age = self.next_age();
        note_parts(&mut self.parts_of, &pieces, &self.extents, self.stitched.len());
        self.stitched.push(Stitched::new(age, memory, pieces));
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
