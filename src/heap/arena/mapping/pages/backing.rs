//! The record of a growing arena's physical memory.

use super::cover::Holes;
use crate::heap::arena::Backing;
use crate::heap::space::{Extent, Zone};
use crate::streams::Overlap;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::mem;
use vrampool_backend::{Amount, Backend, Physical};

/// Requests up to a granule divided by this are served in the front part: those that pools keep idle. Of larger ones so
/// few fit in a granule that much of the part would stay free, and a program that repeats itself would map more of it.
const SMALL: u64 = 4;

/// Cap on the capacity for which a growing arena reserves addresses, bytes.
pub(crate) const MOST_ADDRESSES: u64 = 4 << 40;

impl<B: Backend> Backing<B> {
    /// Creates an empty backing. The first part has `front` of the `addresses`; the device has `total` bytes.
    pub(crate) fn new(
        granularity: u64,
        (limit, total): (u64, u64),
        piece_bytes: u64,
        (front, addresses): (u64, u64),
    ) -> Self {
        Self {
            granularity,
            limit: limit - limit % granularity,
            total,
            ledger: None,
            overlap: Overlap { bound: Amount::default(), within: u64::MAX, refused_at: None },
            piece_bytes: (piece_bytes - piece_bytes % granularity).max(granularity),
            front,
            addresses,
            extents: Vec::new(),
            physical: Vec::new(),
            parts_of: Vec::new(),
            gaps: Vec::new(),
            unreleased: Vec::new(),
            mapped: 0,
            mapped_peak: 0,
            ends: Vec::new(),
            stitched: Vec::new(),
            partly_unmapped: Vec::new(),
            retiring: VecDeque::new(),
            ages: 0,
            holes: Holes::default(),
            decays: false,
            is_private: false,
        }
    }

    /// The part of the range that serves a request.
    pub(crate) fn zone_of(&self, bytes: u64) -> Zone {
        if self.front > 0 && bytes <= self.granularity / SMALL { Zone::Stable } else { Zone::Dynamic }
    }

    /// The part of the range that contains an offset.
    pub(crate) fn zone_at(&self, offset: u64) -> Zone {
        if offset < self.front { Zone::Stable } else { Zone::Dynamic }
    }

    /// Records that the second part ends at `end` from now on.
    pub(crate) fn ends_at(&mut self, end: u64) {
        let age = self.next_age();
        self.ends.retain(|&(other, _)| other < end);
        self.ends.push((end, age));
    }

    /// Records that the second part was cut off at `end`.
    pub(crate) fn cut_at(&mut self, end: u64) {
        let kept = self.ends.partition_point(|&(other, _)| other < end);
        if let Some(next) = self.ends.get_mut(kept) {
            next.0 = end;
            self.ends.truncate(kept + 1);
        }
    }

    pub(crate) fn add(&mut self, extent: Extent, physical: Physical) {
        self.mapped += extent.bytes;
        self.mapped_peak = self.mapped_peak.max(self.mapped);
        let place = self.extents.partition_point(|other| other.start < extent.start);
        self.extents.insert(place, extent);
        self.physical.insert(place, physical);
        self.parts_of.insert(place, SmallVec::new());
    }

    /// Removes pieces that are in no stitched range any more. Returns their physical memory.
    pub(crate) fn remove(&mut self, extents: &[Extent]) -> Vec<Physical> {
        let mut starts: Vec<u64> = extents.iter().map(|extent| extent.start).collect();
        starts.sort_unstable();
        let is_removed = |piece: &Extent| starts.binary_search(&piece.start).is_ok();
        let are_removed: Vec<bool> = self.extents.iter().map(is_removed).collect();
        if !are_removed.contains(&true) {
            return Vec::new();
        }
        // Three lists in the same order.
        let (mut of_extents, mut of_physical, mut of_parts) =
            (are_removed.iter(), are_removed.iter(), are_removed.iter());
        self.extents.retain(|_| of_extents.next() != Some(&true));
        self.parts_of.retain(|_| of_parts.next() != Some(&true));
        let removed: Vec<_> = self.physical.extract_if(.., |_| of_physical.next() == Some(&true)).collect();
        self.mapped -= removed.iter().map(Physical::len).sum::<u64>();
        removed
    }

    /// Detaches everything that backs the range, and returns it, to be dropped without the lock.
    pub(crate) fn take_all(&mut self) -> impl Sized + use<B> {
        self.mapped = 0;
        self.extents.clear();
        self.parts_of.clear();
        let Self { physical, stitched, partly_unmapped, retiring, .. } = self;
        (mem::take(physical), mem::take(stitched), mem::take(partly_unmapped), mem::take(retiring))
    }

    /// Bytes of addresses, including stitched ranges.
    pub(crate) fn address_bytes(&self) -> u64 {
        self.addresses + self.stitched_weight().bytes
    }

    /// Mappings: each piece counts as often as it is mapped.
    pub(crate) fn mappings(&self) -> u64 {
        self.extents.len() as u64 + self.stitched_weight().parts
    }

    pub(super) fn next_age(&mut self) -> u64 {
        self.ages += 1;
        self.ages
    }

    pub(crate) fn physical(&self, extent: Extent) -> Option<&Physical> {
        let place = self.extents.binary_search_by_key(&extent.start, |piece| piece.start).ok()?;
        self.physical.get(place)
    }
}
