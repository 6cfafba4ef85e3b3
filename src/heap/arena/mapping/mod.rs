//! Physical memory of a growing arena's range.
//!
//! * `pages`: mapped memory, and plans for more; `attempt`, `make` and `grow`: map more;
//! * `release` and `retire`: release memory and stitched ranges; `reserve_addresses`: reserves more addresses; `share`:
//!   its bytes of a ledger that several arenas share.

mod attempt;
mod grow;
mod make;
mod pages;
mod release;
mod reserve_addresses;
mod retire;
mod share;

pub(crate) use {
    make::{calls_of_this_thread, virtual_memory},
    pages::{Budget, Fit, Holes, MOST_ADDRESSES},
    share::Share,
};

use crate::heap::arena::panics::Caught;
use crate::heap::space::{BlockId, Extent};
use smallvec::SmallVec;
use std::sync::Arc;
use vrampool_backend::{Backend, BackendError, Physical};

/// A range of pieces that are also mapped in the arena's own range.
#[derive(Debug)]
pub(crate) struct Stitched<B: Backend> {
    pub(crate) age: u64,
    /// When a buffer last got memory of it.
    used: u64,
    pub(crate) memory: Arc<B::Memory>,
    pieces: Box<[Extent]>,
    bytes: u64,
    /// Whether it serves requests that use little of it.
    serves_any: bool,
    reach: Reach,
}

impl<B: Backend> Stitched<B> {
    fn new(age: u64, memory: Arc<B::Memory>, pieces: Vec<Extent>) -> Self {
        let bytes = pieces.iter().map(|piece| piece.bytes).sum();
        let (pieces, reach) = (pieces.into(), Reach::default());
        Self { age, used: age, memory, pieces, bytes, serves_any: false, reach }
    }

    /// All pieces with their offsets in the range.
    fn parts(&self) -> Vec<StitchedPart> {
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

    fn weight(&self) -> Weight {
        Weight { parts: self.pieces.len() as u64, bytes: self.bytes }
    }

    /// Whether it serves a request that would get the given pieces: it uses enough of the range.
    #[inline]
    fn serves(&self, used: &[Extent]) -> bool {
        let Weight { parts, bytes } = Weight::of(used);
        self.serves_any || (2 * bytes >= self.bytes && 4 * parts >= 3 * self.pieces.len() as u64)
    }
}

/// Bounds of a stitched range and all older ones.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    /// Bytes of the largest range.
    most_bytes: u64,
    /// The last end of a piece in the arena's range.
    last_end: u64,
}

impl Reach {
    /// The bounds with the next younger range included.
    fn with<B: Backend>(self, range: &Stitched<B>) -> Self {
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
    ranges: Vec<Stitched<B>>,
    /// Streams with such work.
    users: SmallVec<[B::Stream; 2]>,
    /// The tick in which no buffer had them any more.
    tick: u64,
}

/// Resources of stitched ranges.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Pieces mapped in them.
    parts: u64,
    /// Bytes of their addresses.
    bytes: u64,
}

impl Weight {
    const MAX: Self = Self { parts: u64::MAX, bytes: u64::MAX };

    fn of(pieces: &[Extent]) -> Self {
        Self { parts: pieces.len() as u64, bytes: pieces.iter().map(|piece| piece.bytes).sum() }
    }

    fn plus(self, other: Self) -> Self {
        Self { parts: self.parts.saturating_add(other.parts), bytes: self.bytes.saturating_add(other.bytes) }
    }

    fn minus(self, other: Self) -> Self {
        Self { parts: self.parts.saturating_sub(other.parts), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    fn is_within(self, most: Self) -> bool {
        self.parts <= most.parts && self.bytes <= most.bytes
    }

    /// `count` eighths of it.
    fn eighths(self, count: u64) -> Self {
        let share = |whole: u64| whole / 8 * count + whole % 8 * count / 8;
        Self { parts: share(self.parts), bytes: share(self.bytes) }
    }
}

/// The memory to make for a request.
#[derive(Debug)]
pub(crate) struct Growth {
    /// New physical memory, mapped in the range: consecutive at the end of a part, or in gaps.
    new: Vec<Extent>,
    /// Whether the new memory is at the end of a part.
    is_at_end: bool,
    /// The pieces of a new stitched range, if any, and the part of it that the request gets.
    stitched: Option<(Vec<Extent>, Fit)>,
    /// For each extent of that part, the block that holds it until the new memory is made; `None` for new memory.
    held: Vec<Option<BlockId>>,
}

/// New memory for a request, not yet part of the arena.
pub(crate) struct Made<B: Backend> {
    new: Vec<Physical>,
    stitched: Option<Arc<B::Memory>>,
}

/// A failure to make memory.
pub(crate) struct MakeFailure {
    error: BackendError,
    /// The scarce resource, if out of memory.
    lacks: Lack,
    /// The first pieces of the growth, which remain mapped because they could not be unmapped.
    unreleased: Vec<Physical>,
    /// The device's panic, to be resumed once the accounts are consistent.
    panic: Caught,
}

/// The resource that an out-of-memory device lacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// Physical memory.
    Memory,
    /// Addresses, or room in its table of mappings.
    Mappings,
}
