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
mod figures;
mod free;
mod holes;
pub(super) mod layout;
pub(super) mod operations;
mod places;
mod record;
mod resize;
mod split_merge;
mod table;
mod trie;
pub(super) mod zone;
mod zone_state;

pub(crate) use block::{BlockId, Span};
pub(crate) use compaction::Move;
pub(crate) use error::ArenaError;
pub(crate) use layout::ArenaLayout;
pub(crate) use operations::Arena;
pub(crate) use places::FreeBlock;
pub(crate) use zone::Zone;
