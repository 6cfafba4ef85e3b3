//! Extents of a growing arena's range, and their free parts. Numbers only.

use crate::heap::space::{Arena, Extent, FreeBlock};

/// Returns the number of the first of `pieces`, from `first`, that ends after `offset`. Mostly it is near, so the
/// steps double.
fn first_ending_after(offset: u64, pieces: &[Extent], first: usize) -> usize {
    let (mut before, mut step) = (first, 1);
    while pieces.get(before + step - 1).is_some_and(|piece| piece.end() <= offset) {
        before += step;
        step *= 2;
    }
    let until = pieces.len().min(before + step - 1);
    before + pieces[before..until].partition_point(|piece| piece.end() <= offset)
}

/// Free blocks by offset, without those that are too small.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holes(Vec<FreeBlock>);

impl Holes {
    /// Creates holes from extents, by offset. No two touch within a piece.
    pub(crate) fn of(parts: impl IntoIterator<Item = Extent>) -> Self {
        Self(parts.into_iter().map(FreeBlock::unnamed).collect())
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = Extent> + '_ {
        self.0.iter().map(|room| room.extent)
    }

    /// Replaces the holes by those of the engine's second part, or of both, of at least `bytes`.
    pub(super) fn find(&mut self, engine: &Arena, bytes: u64, of_both: bool) {
        self.0.clear();
        engine.holes(bytes, &mut self.0);
        if of_both {
            engine.stable_holes(bytes, &mut self.0);
        }
    }

    /// As [`find`](Self::find), of an arena.
    pub(crate) fn in_arena(engine: &Arena, bytes: u64, of_both: bool) -> Self {
        let mut holes = Self::default();
        holes.find(engine, bytes, of_both);
        holes
    }

    /// Adds free extents that are in none of the holes.
    pub(super) fn with(mut self, more: &[Extent]) -> Self {
        self.0.extend(more.iter().copied().map(FreeBlock::unnamed));
        self.0.sort_unstable_by_key(|room| room.extent.start);
        self
    }

    /// Returns the indices of pieces with a free back, each with its hole. The pieces are sorted by offset
    /// and do not overlap.
    pub(super) fn backs(&self, pieces: &[Extent]) -> impl Iterator<Item = (usize, Extent)> {
        let mut first = 0;
        self.0.iter().map(|room| room.extent).flat_map(move |hole| {
            first = first_ending_after(hole.start, pieces, first);
            let ending = pieces[first..].iter().take_while(move |piece| piece.end() <= hole.end());
            (first..).zip(ending).map(move |(place, _)| (place, hole))
        })
    }

    /// Returns the pieces with a free front or back, and the contiguous free bytes at both. The pieces are
    /// sorted by offset and do not overlap.
    pub(super) fn ends_of(&self, pieces: &[Extent]) -> Vec<(Extent, u64, u64)> {
        let (mut ends, mut first) = (Vec::<(Extent, u64, u64)>::new(), 0);
        for hole in self.0.iter().map(|room| room.extent) {
            // Most pieces are in no hole.
            first = first_ending_after(hole.start, pieces, first);
            for &piece in pieces[first..].iter().take_while(|piece| piece.start < hole.end()) {
                let front = if hole.start <= piece.start { hole.reach_in(piece) } else { 0 };
                let back =
                    if hole.end() >= piece.end() { piece.end() - hole.start.max(piece.start) } else { 0 };
                match ends.last_mut() {
                    // The hole at its front was the one before.
                    Some((last, _, its_back)) if *last == piece => *its_back = back,
                    _ if front > 0 || back > 0 => ends.push((piece, front, back)),
                    _ => {}
                }
            }
        }
        ends
    }

    /// The last hole that starts at or before `offset`.
    #[inline]
    pub(super) fn hole_at(&self, offset: u64) -> Option<Extent> {
        self.room_at(offset).map(|room| room.extent)
    }

    fn room_at(&self, offset: u64) -> Option<&FreeBlock> {
        let next = self.0.partition_point(|room| room.extent.start <= offset);
        next.checked_sub(1).and_then(|last| self.0.get(last))
    }

    /// The free block that contains an extent, with the engine's record.
    pub(super) fn room_of(&self, extent: Extent) -> FreeBlock {
        self.room_at(extent.start).copied().unwrap_or(FreeBlock::unnamed(extent))
    }

    /// Contiguous free bytes at the front of an extent.
    pub(crate) fn front_of(&self, extent: Extent) -> u64 {
        self.hole_at(extent.start).map_or(0, |hole| hole.reach_in(extent))
    }

    /// Contiguous free bytes at the back of an extent.
    pub(super) fn back_of(&self, extent: Extent) -> u64 {
        let reaches = self.hole_at(extent.end() - 1).filter(|hole| hole.end() >= extent.end());
        reaches.map_or(0, |hole| extent.end() - hole.start.max(extent.start))
    }
}
