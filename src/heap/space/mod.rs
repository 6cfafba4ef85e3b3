//! An arena's numbers: sub-allocates a range of offsets and sizes, without memory, device or lock.
//!
//! ```
//! use vrampool::arena::{Arena, ArenaLayout, Zone};
//! # fn main() -> Result<(), vrampool::arena::ArenaError> {
//! let mut arena = Arena::new(ArenaLayout::new(1 << 30).stable_bytes(64 << 20))?;
//! let weights = arena.allocate(40 << 20, Zone::Stable)?;
//! let first = arena.allocate(1000, Zone::Dynamic)?;
//! let page = arena.allocate(4096, Zone::Dynamic)?;
//! assert_eq!((arena.offset(weights)?, arena.offset(first)?), (0, 64 << 20));
//! assert_eq!(arena.offset(page)?, (64 << 20) + 1024);
//!
//! arena.free(first)?;
//! assert!(arena.free(first).is_err());
//! assert_eq!(arena.used(), (40 << 20) + 4096);
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! * Blocks never overlap and are aligned. The bytes of a zone are live, free or [held](Arena::held), each
//!   once.
//! * Adjacent free blocks merge at once. The untouched end of the range is an ordinary free block.
//! * A request succeeds if some free block of its zone holds it. It takes the smallest sufficient hole, and the free
//!   end of the zone only if there is no such hole.
//! * A block in the stable zone never moves. A request for a stable zone that does not exist is an error.
//! * A stale, doubly freed or foreign [`BlockId`] is an error. A failed call changes nothing.
//!
//! Alignment is that of the offset: the range's start must be aligned, too.
//!
//! # Implementation
//!
//! Each block, live or free, has a record of 40 bytes in one flat array, with the indices of its neighbours:
//!
//! ```text
//! stable zone        dynamic zone
//! ┌────┬──────┬──────┐ ┌────┬──────┬─────────┬──────┬──────────────┐
//! │live│ free │ live │ │live│ free │  live   │ live │ free         │
//! └────┴──────┴──────┘ └────┴──────┴─────────┴──────┴──────────────┘
//!   ↔ neighbours           │                                └ the tail, in no bin
//!                          ▼
//!   groups   0 0 0 1 0 …               a bit for each 64 bins
//!   bins     … 0 0 1 0 0 0 1 …         a bit for each 1024th of a power of two
//!   tries    the sizes in one bin, by the bits that the bin leaves open
//! ```
//!
//! cuArena has 32 bins, one for each power of two over [128 B, 256 GiB) and one above, and searches them and
//! the blocks in one. Here each bin is split into 1024. Two bitmaps find the first non-empty bin, and a small
//! trie finds the smallest sufficient block in it: exact best fit without a search. The free end of a zone is
//! in no bin.
//!
//! # Costs
//!
//! * Allocate and free take a number of steps bounded by the bits of a size, whatever the number of blocks.
//! * All figures are read in a bounded number of steps. [`blocks`](Arena::blocks) and [`plan`](Arena::plan) iterate
//!   over blocks.
//! * Host memory is at most 47 bytes for each block at the peak number of blocks, live and free: a record,
//!   and the sixth by which the array grows. Each zone takes another 227 KiB, of which the part for unused
//!   sizes is never touched. Only that growth allocates on the heap.
//!
//! # Compaction
//!
//! [`plan`](Arena::plan) lists the moves of one pass within a budget of bytes. Each move is
//! [begun](Arena::begin_move), copied by the owner of the memory, and [committed](Arena::commit_move) or
//! [cancelled](Arena::cancel_move). All other operations remain available in between.
//!
//! ```
//! # use vrampool::arena::{Arena, ArenaError, ArenaLayout, Move, Zone};
//! # fn copy(_: &Move) -> Result<(), ()> { Ok(()) }
//! # fn wait_for_the_copies() {}
//! # fn main() -> Result<(), ArenaError> {
//! let mut arena = Arena::new(ArenaLayout::new(4096).alignment(256))?;
//! let hole = arena.allocate(1024, Zone::Dynamic)?;
//! let block = arena.allocate(2048, Zone::Dynamic)?;
//! arena.free(hole)?;
//! assert!(arena.allocate(2048, Zone::Dynamic).is_err());
//!
//! let planned: Vec<Move> = arena.plan(1 << 20).collect();
//! for Move { block, .. } in planned {
//!     let Ok(Some(slide)) = arena.begin_move(block) else { continue };
//!     assert!(slide.overlaps()); // 2048 bytes by 1024: the copy has to be split or staged
//!     match copy(&slide) {
//!         Ok(()) => arena.commit_move(block)?,
//!         Err(()) => arena.cancel_move(block)?,
//!     };
//! }
//! wait_for_the_copies();
//! assert_eq!((arena.offset(block)?, arena.largest_free_block(Zone::Dynamic)), (0, 2048));
//! # Ok(())
//! # }
//! ```

mod bins;
pub(super) mod block;
pub(super) mod compaction;
pub(super) mod error;
mod extent;
mod figures;
mod free;
mod holes;
pub(super) mod layout;
pub(super) mod operations;
mod places;
mod split_merge;
mod table;
mod trie;
pub(super) mod zone;

pub(crate) use {
    block::{BlockId, Span},
    compaction::Move,
    error::ArenaError,
    extent::{Extent, runs},
    layout::ArenaLayout,
    operations::Arena,
    zone::Zone,
};

use crate::heap::space::bins::{Occupied, Scale};

/// Free bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FreeBlock {
    pub(crate) extent: Extent,
    /// The record, if known.
    index: u32,
}

impl FreeBlock {
    /// Free bytes, now or in the future, whose record is unknown and must be searched for.
    pub(crate) fn unnamed(extent: Extent) -> Self {
        Self { extent, index: NONE }
    }
}

/// The free block that serves a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RoomRule {
    /// The smallest sufficient hole of a zone, else its free end.
    Smallest(Zone),
    /// The smallest sufficient hole of the dynamic zone, the lowest of equal ones.
    LowestHole,
}

/// No block.
const NONE: u32 = 0;

/// The back link of a free block that is in no bin. No block has this slot.
const ASIDE: u32 = 2;

/// One block's record. Kept at 40 bytes: with the table's growth by a sixth that is under 48 for each block.
/// The last four fields therefore have two meanings, distinguished by `back`.
#[derive(Debug, Clone, Copy)]
struct Record {
    offset: u64,
    bytes: u64,
    /// The previous neighbour.
    before: u32,
    /// The next neighbour.
    after: u32,
    /// Free: the block's place among those of its bin (see `trie.rs`). Not free: 0.
    back: u32,
    /// Free: the children. Not free: the halves of the serial.
    children: [u32; 2],
    /// Free: the next block of the same size. Not free: the tag.
    twin: u32,
}

const _: () = assert!(size_of::<Record>() == 40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockState {
    Live,
    /// A move has begun; the reserved hole precedes the block.
    Moving,
    /// The destination of a move; free before.
    Reserved,
    /// Withheld by name: an unmapped part, or a part of a growth.
    Held,
    /// An unused slot, or the end of a zone's ring.
    NoBlock,
}

impl BlockState {
    #[inline]
    fn of(word: u32) -> Self {
        match word {
            0 => Self::Live,
            1 => Self::Moving,
            2 => Self::Reserved,
            3 => Self::Held,
            _ => Self::NoBlock,
        }
    }
}

impl Record {
    const NOTHING: Self = Self {
        offset: 0,
        bytes: 0,
        before: NONE,
        after: NONE,
        back: NONE,
        children: [NONE; 2],
        twin: BlockState::NoBlock as u32,
    };

    #[inline]
    fn extent(&self) -> Extent {
        Extent { start: self.offset, bytes: self.bytes }
    }

    #[inline]
    fn end(&self) -> u64 {
        self.extent().end()
    }

    #[inline]
    fn is_free(&self) -> bool {
        self.back != NONE
    }

    /// Only for a block that is not free.
    #[inline]
    fn serial(&self) -> u64 {
        u64::from(self.children[0]) | u64::from(self.children[1]) << 32
    }

    #[inline]
    fn state(&self) -> Option<BlockState> {
        (!self.is_free()).then(|| BlockState::of(self.twin))
    }

    /// Whether this is a live block of that name that is not moving.
    #[inline]
    fn is_still(&self, serial: u64) -> bool {
        self.back == NONE && self.twin == BlockState::Live as u32 && self.serial() == serial
    }

    #[inline]
    fn set_links(&mut self, back: u32, children: [u32; 2], twin: u32) {
        (self.back, self.children, self.twin) = (back, children, twin);
    }

    #[inline]
    fn go_live(&mut self, serial: u64) {
        self.back = NONE;
        self.children = [serial as u32, (serial >> 32) as u32];
        self.twin = BlockState::Live as u32;
    }

    fn set_state(&mut self, state: BlockState) {
        self.twin = state as u32;
    }

    /// Makes this an unused slot. The serial remains.
    #[inline]
    fn vanish(&mut self) {
        (self.back, self.twin) = (NONE, BlockState::NoBlock as u32);
    }

    /// Makes this a block without a name, in the given state.
    #[inline]
    fn set_nameless(&mut self, state: BlockState) {
        self.back = NONE;
        self.children = [NONE; 2];
        self.twin = state as u32;
    }
}

#[derive(Debug)]
struct ZoneState {
    start: u64,
    end: u64,
    free: FreeBlocks,
    used: u64,
    /// Bytes that are neither live nor free.
    held: u64,
}

impl ZoneState {
    fn new(zone: Zone, start: u64, end: u64, shift: u32) -> Self {
        Self { start, end, free: FreeBlocks::new(zone, end - start, shift), used: 0, held: 0 }
    }
}

/// A zone's space, while the arena's other fields are borrowed too.
#[inline]
fn choose<'a>(stable: &'a mut ZoneState, dynamic: &'a mut ZoneState, zone: Zone) -> &'a mut ZoneState {
    match zone {
        Zone::Stable => stable,
        Zone::Dynamic => dynamic,
    }
}

#[derive(Debug)]
struct Table {
    records: Vec<Record>,
    /// The first vacant slot; `after` leads to the next.
    vacant: u32,
}

#[derive(Debug)]
struct FreeBlocks {
    /// The free block at the zone's end, if any.
    tail: u32,
    /// The slot that closes the zone's ring.
    ring: u32,
    holes: Holes,
}

#[derive(Debug)]
pub(crate) struct Holes {
    scale: Scale,
    /// Boxed, because an arena is moved while it is created, and threads have small stacks.
    occupied: Box<Occupied>,
    /// Whole rows, up to that of the largest block so far. The capacity covers all rows from the start; a
    /// program of small blocks never touches most of it.
    roots: Vec<u32>,
}
