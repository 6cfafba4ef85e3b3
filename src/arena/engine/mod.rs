//! An arena sub-allocates one range of bytes: offsets and sizes, no memory, no device, no lock.
//!
//! ```
//! use vrampool::arena::{Arena, ArenaLayout, Zone};
//! # fn main() -> Result<(), vrampool::arena::ArenaError> {
//! let mut arena = Arena::new(ArenaLayout::new(1 << 30).stable_bytes(64 << 20))?;
//! let weights = arena.allocate(40 << 20, Zone::Stable)?;
//! let first = arena.allocate(1000, Zone::Dynamic)?;
//! let page = arena.allocate_aligned(4096, 1 << 20, Zone::Dynamic)?;
//! assert_eq!((arena.offset(weights)?, arena.offset(first)?), (0, 64 << 20));
//! assert_eq!((arena.offset(page)?, arena.size(first)?), (65 << 20, 1024));
//!
//! arena.free(first)?;
//! assert!(arena.free(first).is_err());
//! assert_eq!(arena.used(), (40 << 20) + 4096);
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! * Blocks never overlap and are aligned. The bytes of a zone are live, free or [held](Arena::held), each
//!   once.
//! * Two free neighbours merge at once, so none ever exist; the untouched end of the range is a free block
//!   like others.
//! * A request succeeds if some free block of its zone holds it, aligned. It takes the smallest hole that
//!   does, and the free end of the zone only if there is none (with an alignment above the arena's, nearly:
//!   see [`Arena::allocate_aligned`]). What an alignment leaves in front of a block is a free block.
//! * A block in the stable zone never moves. Asking for one where there is no such zone is an error.
//! * A stale, doubly freed or foreign [`BlockId`] is an error, and a call that fails has changed nothing.
//!
//! Alignment is that of the offset: the range's start has to be aligned as much as the most that is asked
//! for.
//!
//! # How it works
//!
//! Each block, live or free, has a record of 40 bytes in one flat array, with the indices of its neighbours:
//!
//! ```text
//! stable zone        dynamic zone
//! ┌────┬──────┬──────┐ ┌────┬──────┬─────────┬──────┬──────────────┐
//! │live│ free │ live │ │live│ free │  live   │ live │ free         │
//! └────┴──────┴──────┘ └────┴──────┴─────────┴──────┴──────────────┘
//!   ↔ neighbours           │                                └ the tail, in no bin
//!                          ▼                           one more may be in hand, in no bin
//!   groups   0 0 0 1 0 …               a bit for each 64 bins
//!   bins     … 0 0 1 0 0 0 1 …         a bit for each 1024th of a power of two
//!   tries    the sizes in one bin, by the bits that the bin does not tell
//! ```
//!
//! cuArena has 32 bins, one for each power of two over [128 B, 256 GiB) and one above, and searches them and
//! the blocks in one. Here each is split into 1024, two bitmaps find the first that is not empty, and a small
//! trie finds the smallest block in it that fits: exact best fit without a search. The free end of a zone is
//! in no bin.
//!
//! Neither is the free block that is left when the newest live one is freed: it stays *in hand*. What the
//! last search passed over is known as well, *from* what was asked for *to* what was found, until a free
//! block of such a size comes into the bins. A request from there on that the block in hand holds, and whose
//! size is no larger than what was found, is cut from it, because nothing in the bins fits better. Freeing it
//! merges it back. So a LIFO pair touches no bin. Any other request sends the block in hand to its bin first.
//!
//! # What it costs
//!
//! * Allocate and free take a number of steps bounded by the bits of a size, whatever the number of blocks.
//!   The exception: an alignment above the arena's, when the arena is too full for it, is searched for.
//! * All figures are read in a bounded number of steps. [`blocks`](Arena::blocks), [`plan`](Arena::plan) and
//!   [`release_vacated`](Arena::release_vacated) go over blocks.
//! * Host memory: at most 47 bytes for each block, live or free, at the time when there were most: a record
//!   and the sixth that the array grows by. 227 KiB for each zone beside, of which what is for sizes that
//!   never come is not touched. No heap allocation but for that growth.
//!
//! # Compaction
//!
//! [`plan`](Arena::plan) names the moves of one pass within a budget of bytes; each is
//! [begun](Arena::begin_move), copied by whoever has the memory, and [committed](Arena::commit_move) or
//! [cancelled](Arena::cancel_move). In between everything else goes on.
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
//! arena.release_vacated();
//! assert_eq!((arena.offset(block)?, arena.largest_free_block(Zone::Dynamic)), (0, 2048));
//! # Ok(())
//! # }
//! ```

mod bins;
mod block;
mod check;
mod compaction;
mod error;
mod figures;
mod free;
mod holes;
mod layout;
mod operations;
mod places;
mod record;
mod resize;
mod space;
mod table;
mod trie;
mod zone;

pub use block::{BlockId, Span, SpanState};
pub use compaction::{Move, MoveEnd, Plan};
pub use error::ArenaError;
pub use layout::ArenaLayout;
pub use operations::Arena;
pub(crate) use places::{FreeBlock, Moment};
pub use zone::Zone;
