//! The physical memory of a growing arena: pieces, and where they are mapped.
//!
//! Each piece is mapped once in the arena's range and any number of times in stitched ranges.
//!
//! * `backing`: the record of it all; `cover`: extents of the range, and their free parts;
//! * `gaps`: unmapped parts of the range;
//! * `plan`: the memory to make for a request;
//! * `stitched_ranges`: all stitched ranges, and the bounds on them;
//! * `search`: existing memory for a request that no hole holds;
//! * `stitch`: selects the pieces of a stitched range.
//!
//! Only `make`, `release`, `retire`, `reserve_addresses` and the arena's `detach` call the device. The arena's
//! lock protects it.
//!
//! # Placement of a request
//!
//! The range has two parts, each of which grows at its end: one for small requests, one for all others. So a
//! small block never keeps a large piece from becoming free.
//!
//! 1. A request gets the smallest sufficient hole, as in any arena.
//! 2. If no hole holds a large request, it gets the *oldest* sufficient memory among the stitched ranges and
//!    the free end. A program that repeats itself thus finds the memory that was first made for it, and makes
//!    no more driver calls. (By induction: later memory is younger than memory that served before.)
//! 3. Otherwise, and if reclaimed idle memory of a pool does not serve either, the range grows at the end of
//!    a part or in a gap; at the limit, a small request gets free memory of the part for large ones. Mapped bytes stay
//!    within 1 + 1/64 of the peak of live bytes since the last decay, or since nothing was mapped.
//! 4. Beyond that, or at the limit, a range is stitched of free pieces, and only the missing bytes are made.
//!    At the limit, pieces that small requests left free may be stitched for a large request too.
//!
//! Once several streams use the arena, a request that would wait for another stream grows the range first,
//! within the limit, the ledger, the budget and the [bound on overlap](crate::PoolBuilder::overlap): a wait costs a
//! loop that runs ahead of the device more than memory does.

mod backing;
mod cover;
mod gaps;
mod plan;
mod search;
mod stitch;
mod stitched_ranges;

pub(crate) use {backing::MOST_ADDRESSES, cover::Holes, plan::Budget, stitch::Fit};

use crate::heap::space::Extent;

/// Pieces of a range in which some number of bytes is free in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plan {
    /// In order.
    front: Vec<Extent>,
    /// Missing bytes between front and back, to be made.
    missing: u64,
    back: Option<Extent>,
}
