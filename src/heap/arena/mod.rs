//! Arenas: a reserved range of memory, sub-allocated in blocks.
//!
//! [`DeviceArena`] manages a device's memory, with streams and data; [`Arena`], numbers alone ([`engine`]).
//!
//! * `builder`, `buffer`, `stats`: configuration, an allocated block (`resize` changes its size), statistics;
//!   `device_range`: its memory on the device, and that of before a resize;
//! * `request`, `serve`: a request, and its way to a buffer; `find`: the memory that serves it;
//! * `core`: the data that handles and buffers share; `state`: the part under the lock (`state_lock`);
//!   `live_block`: users and parts of a live block; `free`: its free; `at_once`: requests and frees that need only
//!   bookkeeping;
//! * `hazards`: which streams may access which bytes, and when; `mapping`: physical memory of a growing
//!   arena;
//! * `compaction`: moves blocks with their data; `reset`: forgets all blocks;
//! * `detach`: returns all physical memory and keeps the addresses; `panics`: defers a panic of the device until
//!   the accounts are consistent.
//!
//! One lock protects the state, and no device call is made under it. A second one, `changing`, serializes growth,
//! compaction, release, detaching and resets; device calls are made under that one.

mod at_once;
mod buffer;
mod builder;
mod compaction;
mod core;
mod detach;
mod device_range;
mod find;
mod free;
mod hazards;
mod live_block;
mod mapping;
mod panics;
mod request;
mod reset;
mod resize;
mod serve;
mod state;
mod state_lock;
mod stats;

pub use crate::heap::stats::times::MappingCalls;
pub(crate) use at_once::Refill;
pub use buffer::ArenaBuffer;
pub use builder::ArenaBuilder;
pub use compaction::{Compaction, Moved};
pub(crate) use detach::Refusal;
pub use detach::{Attaching, Attachment, Detaching, Unmapped};
pub(crate) use mapping::make::calls_of_this_thread;

pub use crate::heap::space as engine;
pub use crate::heap::space::block::{BlockId, Span, SpanState};
pub use crate::heap::space::compaction::Move;
pub use crate::heap::space::error::ArenaError;
pub use crate::heap::space::layout::ArenaLayout;
pub use crate::heap::space::operations::Arena;
pub use crate::heap::space::zone::Zone;

use crate::error::{Error, Owner};
use crate::heap::arena::core::ArenaCore;
use crate::heap::arena::request::ArenaRequest;
use std::mem;
use std::sync::Arc;
use vrampool_backend::{Backend, fork};

/// Device memory that is sub-allocated in blocks. A clone is another handle to the same arena.
///
/// The range has a fixed size and is reserved once. A [growing](ArenaBuilder::growing) arena reserves
/// addresses and maps memory as needed, and can [detach](Self::detach) it.
///
/// The arena has cuArena's zones, bins and compaction, in constant time, on any backend. A block waits on the
/// device for earlier work on its bytes, and mostly not for later work of streams that shared them. It
/// follows its data when it is moved. After [`reset`](Self::reset) its use is an error, never access to
/// another block.
///
/// A range of fixed size prefers memory that needs no wait, within a search of at most 256 free places. If no
/// such memory is free, work on `stream` waits on the device for all work that the last users of the bytes
/// had enqueued when they freed them. With OpenCL that may include an event that the program itself
/// completes: do not block a thread on `stream` if that thread has yet to complete the event.
///
/// Once several streams use the arena, a request asks the others whether they are idle. While they are busy, the
/// free of a large block records an event on the streams that used it, and a request prefers memory whose events are
/// complete. A growing arena maps new memory rather than make a stream wait, while its limit, its
/// [`Ledger`](crate::Ledger), its [bound on overlap](ArenaBuilder::overlap) and the device leave room. Else the stream
/// waits for the event.
///
/// For an arena of pageable host memory, use [`HostDevice`](crate::host::HostDevice).
///
/// ```
/// use vrampool::{Backend, host::HostDevice, arena::{DeviceArena, Zone}};
///
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let arena = DeviceArena::builder(&device).limit(64 << 20).stable_bytes(1 << 20).build()?;
/// let weights = arena.allocate_in(300_000, Zone::Stable, &stream)?; // never moves
/// let mut batch = arena.allocate(4000, &stream)?;
/// batch.write(&[0; 4000], &stream)?;
/// assert_eq!(arena.used(), weights.capacity() + batch.capacity());
/// drop(batch);
/// let report = arena.compact(None, &stream, |moved| println!("{moved:?}"))?;
/// assert_eq!(report.moved_blocks, 0);
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug)]
pub struct DeviceArena<B: Backend> {
    core: Arc<ArenaCore<B>>,
}

impl<B: Backend> Clone for DeviceArena<B> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core) }
    }
}

impl<B: Backend> Drop for DeviceArena<B> {
    fn drop(&mut self) {
        if fork::is_forked() {
            // The core is never dropped in a forked child.
            mem::forget(Arc::clone(&self.core));
        }
    }
}

impl<B: Backend> DeviceArena<B> {
    /// Returns a builder for an arena on `device`.
    pub fn builder(device: &B) -> ArenaBuilder<B> {
        ArenaBuilder::new(device)
    }

    /// Allocates a block of `bytes` bytes (at least 1) in the dynamic zone, for work on `stream`.
    ///
    /// In a [growing](ArenaBuilder::growing) arena, a request for which memory, addresses or mappings are
    /// exhausted may block on the host before it fails: for pending work on memory to release, and for other
    /// devices of the process. It holds no lock meanwhile. Other requests never wait for the device.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if no hole is large enough; [`Error::Arena`] if the request is invalid;
    /// [`Error::WrongDevice`]; [`Error::Backend`] if the device refuses an event or a
    /// wait; [`Error::Capture`] if that would be between a captured and an uncaptured stream.
    pub fn allocate(&self, bytes: u64, stream: &B::Stream) -> Result<ArenaBuffer<B>, Error> {
        self.allocate_in(bytes, Zone::Dynamic, stream)
    }

    /// Allocates a block in the given zone. Blocks in the stable zone never move.
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); also if the arena has no stable zone and it is requested.
    pub fn allocate_in(&self, bytes: u64, zone: Zone, stream: &B::Stream) -> Result<ArenaBuffer<B>, Error> {
        self.core.allocate((bytes, zone), stream).map_err(|error| self.explain(error, Some(bytes)))
    }

    /// As [`allocate`](Self::allocate), for a pool whose search at once found nothing, without the arena's figures in
    /// an error. Before a growing arena maps more, it calls `reclaim`, which may free memory that serves instead.
    pub(crate) fn allocate_reclaiming(
        &self,
        bytes: u64,
        stream: &B::Stream,
        reclaim: Option<impl FnMut() -> bool>,
    ) -> Result<ArenaBuffer<B>, Error> {
        let request = ArenaRequest::new((bytes, Zone::Dynamic), stream);
        self.core.allocate_past_bookkeeping(request, reclaim)
    }

    /// Adds the arena's figures to a lack of memory.
    #[cold]
    fn explain(&self, error: Error, requested: Option<u64>) -> Error {
        error.held_by(|error| {
            error.requested_bytes = requested.unwrap_or(error.requested_bytes);
            error.class_bytes = self.align_up(error.requested_bytes).unwrap_or(error.requested_bytes);
            error.live_bytes = self.used();
            error.live_requested_bytes = error.live_bytes;
            error.held_bytes = self.reserved_bytes().max(error.live_bytes);
            error.idle_bytes = error.held_bytes - error.live_bytes;
            error.owner = Owner::Arena;
            error.can_compact = !self.is_growing();
        })
    }
}
