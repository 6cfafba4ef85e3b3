//! A stitched range, and what stitched ranges take.

use super::cover::Extent;
use smallvec::SmallVec;
use std::sync::Arc;
use vrampool_backend::Backend;

/// A range of pieces that are also mapped in the arena's own range.
#[derive(Debug)]
pub(crate) struct Stitched<B: Backend> {
    pub(crate) age: u64,
    /// When a buffer last got memory of it.
    pub(crate) used: u64,
    pub(crate) memory: Arc<B::Memory>,
    pub(crate) pieces: Box<[Extent]>,
    pub(crate) bytes: u64,
    /// Whether it serves requests that use little of it.
    pub(super) serves_any: bool,
    pub(super) reach: Reach,
}

/// Bounds of a stitched range and all older ones.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Reach {
    /// Bytes of the largest range.
    pub(super) most_bytes: u64,
    /// The last end of a piece in the arena's range.
    pub(super) last_end: u64,
}

impl Reach {
    /// The bounds with the next younger range included.
    pub(super) fn with<B: Backend>(self, range: &Stitched<B>) -> Self {
        let ends = range.pieces.iter().map(|piece| piece.end());
        Self { most_bytes: self.most_bytes.max(range.bytes), last_end: ends.fold(self.last_end, u64::max) }
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct StitchedPart {
    /// Offset in the stitched range.
    pub(crate) offset: u64,
    pub(crate) piece: Extent,
}

/// Ranges that are being retired, mapped until work that may use their addresses is complete.
#[derive(Debug)]
pub(crate) struct Retiring<B: Backend> {
    pub(crate) ranges: Vec<Stitched<B>>,
    /// Streams with such work.
    pub(crate) users: SmallVec<[B::Stream; 2]>,
    /// The tick in which no buffer had them any more.
    pub(crate) tick: u64,
}

/// Resources of stitched ranges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Pieces mapped in them.
    pub(crate) parts: u64,
    /// Bytes of their addresses.
    pub(crate) bytes: u64,
}

impl Weight {
    pub(crate) const MAX: Self = Self { parts: u64::MAX, bytes: u64::MAX };

    pub(crate) fn of(pieces: &[Extent]) -> Self {
        Self { parts: pieces.len() as u64, bytes: pieces.iter().map(|piece| piece.bytes).sum() }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { parts: self.parts.saturating_add(other.parts), bytes: self.bytes.saturating_add(other.bytes) }
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        Self { parts: self.parts.saturating_sub(other.parts), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    pub(crate) fn is_within(self, most: Self) -> bool {
        self.parts <= most.parts && self.bytes <= most.bytes
    }

    /// `count` eighths of it.
    pub(crate) fn eighths(self, count: u64) -> Self {
        let share = |whole: u64| whole / 8 * count + whole % 8 * count / 8;
        Self { parts: share(self.parts), bytes: share(self.bytes) }
    }
}

impl<B: Backend> Stitched<B> {
    pub(super) fn new(age: u64, memory: Arc<B::Memory>, pieces: Vec<Extent>) -> Self {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let (pieces, reach) = (pieces.into(), Reach::default());
        Self { age, used: age, memory, pieces, bytes, serves_any: false, reach }
    }

    /// All pieces with their offsets in the range.
    pub(crate) fn parts(&self) -> Vec<StitchedPart> {
        let offsets = self.pieces.iter().scan(0, |end, piece| {
            *end += piece.bytes;
            Some(*end - piece.bytes)
        });
        self.pieces.iter().zip(offsets).map(|(&piece, offset)| StitchedPart { offset, piece }).collect()
    }

    /// Whether all its pieces are among the mapped parts.
    pub(crate) fn is_whole(&self, mapped: &[StitchedPart]) -> bool {
        !self.pieces.is_empty() && mapped.len() == self.pieces.len()
    }

    /// Whether no buffer uses it. Under the arena's lock that does not change.
    pub(crate) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.memory) == 1
    }

    pub(super) fn weight(&self) -> Weight {
        Weight { parts: self.pieces.len() as u64, bytes: self.bytes }
    }

    /// Whether it serves a request that would get the given pieces: it uses enough of the range.
    #[inline]
    pub(super) fn serves(&self, used: &[Extent]) -> bool {
        let Weight { parts, bytes } = Weight::of(used);
        self.serves_any || (2 * bytes >= self.bytes && 4 * parts >= 3 * self.pieces.len() as u64)
    }
}

impl<B: Backend> Retiring<B> {
    pub(crate) fn weight(&self) -> Weight {
        self.ranges.iter().map(Stitched::weight).fold(Weight::default(), Weight::plus)
    }
}
