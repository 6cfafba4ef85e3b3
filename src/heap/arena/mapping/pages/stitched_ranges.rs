//! Stitched ranges: the existing ones, their bounds, and the order of their retirement.
//!
//! A stitched range is a cache entry: its pieces stay in the arena's own range, so it may be retired whenever
//! no buffer uses it. Two bounds hold for any traffic, both in proportion to the capacity (the limit, or the
//! device's memory if there is no limit):
//!
//! * pieces in all stitched ranges: three times the granules of the capacity, and [`FEW_PARTS`];
//! * addresses of all stitched ranges: five times the capacity.
//!
//! From three quarters of either bound on, unused ranges are retired, least recently used first. Ranges in
//! use cannot be retired. The earliest ranges, up to a ninth of either bound, serve any request; of a later one a
//! request must use at least half of the bytes and three quarters of the pieces.
//!
//! A piece is part of at most two live stitched blocks, with its front and with its back. So ranges in use
//! have at most eight thirds as many pieces as there are, and addresses of at most four times the capacity.
//! Together with that ninth, one more range always fits.

use super::backing::MOST_ADDRESSES;
use crate::heap::arena::Backing;
use crate::heap::arena::mapping::{Reach, Stitched, StitchedPart, Weight};
use crate::heap::space::Extent;
use smallvec::SmallVec;
use std::sync::Arc;
use vrampool_backend::Backend;
use vrampool_backend::spi::Ledger;

/// Pieces of stitched ranges that are always allowed, whatever the capacity.
const FEW_PARTS: u64 = 512;

/// Pieces of stitched ranges for each granule of the capacity.
const PARTS: u64 = 3;

/// Addresses of stitched ranges, in multiples of the capacity.
const ADDRESSES: u64 = 5;

/// The earliest ranges, up to this fraction of both bounds, one in so many, serve any request.
const SERVE_ANY: u64 = 9;

impl<B: Backend> Backing<B> {
    /// Largest possible physical memory, bytes.
    pub(crate) fn capacity(&self) -> u64 {
        let quota = self.ledger.as_ref().and_then(Ledger::limit).unwrap_or(u64::MAX);
        self.limit.min(self.total).min(quota).max(self.granularity)
    }

    /// Whether the second part has addresses for the capacity, or its free memory has to stay where it is.
    pub(crate) fn is_wide(&self) -> bool {
        self.is_private || self.capacity().min(MOST_ADDRESSES) <= self.addresses - self.front
    }

    /// The bound on stitched ranges, including retiring ones.
    pub(crate) fn most_stitched(&self) -> Weight {
        let capacity = self.capacity();
        Weight {
            parts: (capacity / self.granularity).saturating_mul(PARTS).saturating_add(FEW_PARTS),
            bytes: capacity.saturating_mul(ADDRESSES),
        }
    }

    /// Whether one more stitched range of `weight` is allowed.
    pub(crate) fn may_stitch(&self, weight: Weight) -> bool {
        weight == Weight::default() || self.stitched_weight().plus(weight).is_within(self.most_stitched())
    }

    /// Whether a new range of the given pieces serves any request: the earliest do. A range stays what it is, so that
    /// the requests of a program find the same memory in each pass.
    pub(super) fn serves_any(&self, pieces: &[Extent]) -> bool {
        let Weight { parts, bytes } = self.most_stitched();
        let earlier = self.stitched.iter().filter(|range| range.serves_any).map(Stitched::weight);
        let all = earlier.fold(Weight::of(pieces), Weight::plus);
        all.is_within(Weight { parts: parts / SERVE_ANY, bytes: bytes / SERVE_ANY })
    }

    /// The weight of all stitched ranges, including retiring ones.
    pub(crate) fn stitched_weight(&self) -> Weight {
        let retiring = self.retiring.iter().flat_map(|batch| &batch.ranges).map(Stitched::weight);
        retiring.fold(self.kept_weight(), Weight::plus)
    }

    /// The weight of the stitched ranges that are not being retired.
    pub(crate) fn kept_weight(&self) -> Weight {
        let parts = |parts: &[StitchedPart]| parts.len() as u64;
        let partly_unmapped = self.partly_unmapped.iter();
        let partly_unmapped =
            partly_unmapped.map(|(range, mapped)| Weight { parts: parts(mapped), bytes: range.bytes });
        self.stitched
            .iter()
            .map(Stitched::weight)
            .chain(partly_unmapped)
            .fold(Weight::default(), Weight::plus)
    }

    /// Number of stitched ranges, including retiring ones.
    pub(crate) fn stitched_ranges(&self) -> u64 {
        let retiring: usize = self.retiring.iter().map(|batch| batch.ranges.len()).sum();
        (self.stitched.len() + self.partly_unmapped.len() + retiring) as u64
    }

    /// Removes unused ranges, least recently used first, until the rest take at most `most`, or none is
    /// unused. With `Weight::default()`, removes all of them.
    pub(crate) fn take_unused(&mut self, most: Weight) -> Vec<Stitched<B>> {
        let mut weight = self.kept_weight();
        let mut going: Vec<(u64, u64)> = self
            .stitched
            .iter()
            .filter(|range| range.is_unused())
            .map(|range| (range.used, range.age))
            .collect();
        going.sort_unstable();
        let mut ages = Vec::new();
        for (_, age) in going {
            if weight.is_within(most) && most != Weight::default() {
                break;
            }
            if let Ok(place) = self.stitched.binary_search_by_key(&age, |range| range.age) {
                weight = weight.minus(self.stitched[place].weight());
                ages.push(age);
            }
        }
        ages.sort_unstable();
        match ages.is_empty() {
            true => Vec::new(),
            false => self.take_stitched(|range| ages.binary_search(&range.age).is_ok()),
        }
    }

    /// Removes and returns the stitched ranges for which `has` holds.
    pub(crate) fn take_stitched(&mut self, has: impl Fn(&Stitched<B>) -> bool) -> Vec<Stitched<B>> {
        let taken: Vec<_> = self.stitched.extract_if(.., |range| has(range)).collect();
        if !taken.is_empty() {
            self.place_anew();
        }
        taken
    }

    /// Puts whole stitched ranges back.
    pub(crate) fn restore(&mut self, ranges: impl IntoIterator<Item = Stitched<B>>) {
        let before = self.stitched.len();
        self.stitched.extend(ranges);
        if self.stitched.len() > before {
            self.stitched.sort_by_key(|range| range.age);
            self.place_anew();
        }
    }

    pub(crate) fn add_stitched(&mut self, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        let age = self.next_age();
        note_parts(&mut self.parts_of, &pieces, &self.extents, self.stitched.len());
        let serves_any = self.serves_any(&pieces);
        let mut range = Stitched { serves_any, ..Stitched::new(age, memory, pieces) };
        let older = self.stitched.last().map(|last| last.reach).unwrap_or_default();
        range.reach = older.with(&range);
        self.stitched.push(range);
    }

    /// Restores a stitched range with its previous age. Its pieces must be restored already.
    pub(crate) fn put_stitched(&mut self, age: u64, memory: Arc<B::Memory>, pieces: Vec<Extent>) {
        let serves_any = self.serves_any(&pieces);
        self.restore([Stitched { serves_any, ..Stitched::new(age, memory, pieces) }]);
    }

    /// Keeps a range of `bytes` bytes that buffers use, and in which the given parts are mapped.
    pub(crate) fn put_partly_unmapped(
        &mut self,
        memory: Arc<B::Memory>,
        bytes: u64,
        parts: Vec<StitchedPart>,
    ) {
        let range = Stitched { bytes, ..Stitched::new(self.next_age(), memory, Vec::new()) };
        self.partly_unmapped.push((range, parts));
    }

    /// Returns all stitched ranges that are not being retired, with their mapped parts.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&Stitched<B>, Vec<StitchedPart>)> {
        let whole = self.stitched.iter().map(|range| (range, range.parts()));
        whole.chain(self.partly_unmapped.iter().map(|(range, parts)| (range, parts.clone())))
    }

    /// Updates the indices after pieces or stitched ranges have changed.
    fn place_anew(&mut self) {
        let Self { extents, stitched, parts_of, .. } = self;
        parts_of.iter_mut().for_each(SmallVec::clear);
        let mut reach = Reach::default();
        for (index, range) in stitched.iter_mut().enumerate() {
            note_parts(parts_of, &range.pieces, extents, index);
            reach = reach.with(range);
            range.reach = reach;
        }
    }
}

/// Records that a stitched range consists of the given pieces.
fn note_parts(parts_of: &mut [SmallVec<[(u32, u32); 2]>], pieces: &[Extent], all: &[Extent], range: usize) {
    for (number, piece) in (0..).zip(pieces) {
        let place = all.partition_point(|other| other.start < piece.start);
        if let Some(parts) = parts_of.get_mut(place) {
            parts.push((range as u32, number));
        }
    }
}
