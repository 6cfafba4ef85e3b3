//! Extents of a growing arena's range, and their free parts. Numbers only.

use crate::arena::engine::{Arena, FreeBlock};
use std::iter;

/// A number of bytes at an offset of the range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::arena) struct Extent {
    pub(in crate::arena) start: u64,
    pub(in crate::arena) bytes: u64,
}

impl Extent {
    fn of(room: &FreeBlock) -> Self {
        Self { start: room.offset, bytes: room.bytes }
    }

    pub(in crate::arena) fn end(self) -> u64 {
        self.start + self.bytes
    }

    pub(super) fn first(self, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    pub(super) fn last(self, bytes: u64) -> Self {
        Self { start: self.end() - bytes, bytes }
    }

    /// Bytes that it shares with the front of `other`, which does not start before it.
    #[inline]
    pub(super) fn reach_in(self, other: Self) -> u64 {
        self.end().min(other.end()).saturating_sub(other.start)
    }
}

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
pub(in crate::arena) struct Holes(Vec<FreeBlock>);

impl Holes {
    /// Creates holes from offsets and sizes, by offset. No two touch within a piece.
    pub(in crate::arena) fn of(parts: impl IntoIterator<Item = (u64, u64)>) -> Self {
        Self(parts.into_iter().map(|(start, bytes)| FreeBlock::unnamed(start, bytes)).collect())
    }

    pub(super) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = Extent> + '_ {
        self.0.iter().map(Extent::of)
    }

    /// Replaces the holes by those of the engine's second part, or of both, of at least `bytes`.
    pub(super) fn find(&mut self, engine: &Arena, bytes: u64, of_both: bool) {
        self.0.clear();
        engine.holes(bytes, &mut self.0);
        if of_both {
            engine.stable_holes(bytes, &mut self.0);
        }
    }

    /// Adds free extents that are in none of the holes.
    pub(super) fn with(mut self, more: &[Extent]) -> Self {
        self.0.extend(more.iter().map(|extent| FreeBlock::unnamed(extent.start, extent.bytes)));
        self.0.sort_unstable_by_key(|room| room.offset);
        self
    }

    /// Removes everything after `end`. Returns the bytes of the last hole before.
    pub(super) fn cut_at(&mut self, end: u64) -> u64 {
        let Some(room) = self.0.last_mut() else { return 0 };
        let uncut = room.bytes;
        room.bytes = uncut.min(end.saturating_sub(room.offset));
        uncut
    }

    /// Restores the bytes of the last hole.
    pub(super) fn uncut(mut self, bytes: u64) -> Self {
        if let Some(room) = self.0.last_mut() {
            room.bytes = bytes;
        }
        self
    }

    /// Returns the indices of pieces with a free back, each with its hole. The pieces are sorted by offset
    /// and do not overlap.
    pub(super) fn backs(&self, pieces: &[Extent]) -> impl Iterator<Item = (usize, Extent)> {
        let mut first = 0;
        self.0.iter().map(Extent::of).flat_map(move |hole| {
            first = first_ending_after(hole.start, pieces, first);
            let ending = pieces[first..].iter().take_while(move |piece| piece.end() <= hole.end());
            (first..).zip(ending).map(move |(place, _)| (place, hole))
        })
    }

    /// Returns the pieces with a free front or back, and the contiguous free bytes at both. The pieces are
    /// sorted by offset and do not overlap.
    pub(super) fn ends_of(&self, pieces: &[Extent]) -> impl Iterator<Item = (Extent, u64, u64)> {
        let mut holes = self.0.iter().map(Extent::of).peekable();
        // The last hole that starts before a piece ends may extend into the next one.
        let mut last = None;
        let mut place = 0;
        iter::from_fn(move || {
            loop {
                let is_reached =
                    |hole: Extent| pieces.get(place).is_some_and(|piece| hole.end() > piece.start);
                if !last.is_some_and(is_reached) {
                    // Most pieces are in no hole.
                    place = first_ending_after(holes.peek()?.start, pieces, place);
                }
                let piece = *pieces.get(place)?;
                place += 1;
                let mut front = last.map_or(0, |hole: Extent| hole.reach_in(piece));
                while let Some(hole) = holes.next_if(|hole| hole.start < piece.end()) {
                    if hole.start <= piece.start {
                        front = hole.reach_in(piece);
                    }
                    last = Some(hole);
                }
                let reaches = last.filter(|hole| hole.end() >= piece.end() && hole.start < piece.end());
                let back = reaches.map_or(0, |hole| piece.end() - hole.start.max(piece.start));
                if front > 0 || back > 0 {
                    return Some((piece, front, back));
                }
            }
        })
    }

    /// The last hole that starts at or before `offset`.
    #[inline]
    pub(super) fn hole_at(&self, offset: u64) -> Option<Extent> {
        self.room_at(offset).map(Extent::of)
    }

    /// As [`hole_at`](Self::hole_at), with the engine's record.
    #[inline]
    pub(super) fn room_at(&self, offset: u64) -> Option<&FreeBlock> {
        let next = self.0.partition_point(|room| room.offset <= offset);
        next.checked_sub(1).and_then(|last| self.0.get(last))
    }

    /// Contiguous free bytes at the front of an extent.
    pub(in crate::arena) fn front_of(&self, extent: Extent) -> u64 {
        self.hole_at(extent.start).map_or(0, |hole| hole.reach_in(extent))
    }

    /// Contiguous free bytes at the back of an extent.
    pub(super) fn back_of(&self, extent: Extent) -> u64 {
        let next = self.0.partition_point(|room| room.offset < extent.end());
        let last = next.checked_sub(1).and_then(|last| self.0.get(last)).map(Extent::of);
        let reaches = last.filter(|hole| hole.end() >= extent.end());
        reaches.map_or(0, |hole| extent.end() - hole.start.max(extent.start))
    }
}
