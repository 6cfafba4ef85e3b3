//! Arenas: a reserved range of memory, sub-allocated in blocks.
//!
//! [`DeviceArena`] manages a device's memory, with streams and data; [`Arena`], numbers alone ([`engine`]).
//!
//! * `builder`, `buffer`, `stats`: configuration, an allocated block, statistics;
//!   `device_range`: its memory on the device, and that of before a resize;
//! * `device_arena`: the handle; `serve`: the way of a request to a buffer; `find`: the memory that serves it;
//! * `core`: the data that handles and buffers share; `state`: the part under the lock (`state_lock`);
//!   `live_block`: users and parts of a live block; `free`: its free; `at_once`: requests and frees that need only
//!   bookkeeping;
//! * `hazards`: which streams may access which bytes, and when; `mapping`: physical memory of a growing
//!   arena;
//! * `compaction`: moves blocks with their data; `reset`: forgets all blocks;
//! * `detach`: returns all physical memory and keeps the addresses; `panics`: defers a panic of the device until
//!   the accounts are consistent.
//!
//! The types that these files share are in this file, their methods in the files.
//!
//! One lock protects the state, and no device call is made under it. A second one, `changing`, serializes growth,
//! compaction, release, detaching and resets; device calls are made under that one.

mod at_once;
mod buffer;
mod builder;
mod compaction;
mod core;
mod detach;
mod device_arena;
mod device_range;
mod find;
mod free;
mod hazards;
mod live_block;
mod mapping;
mod panics;
mod reset;
mod serve;
mod state;
mod state_lock;
mod stats;

pub use crate::heap::space as engine;
pub use crate::heap::space::block::{BlockId, Span, SpanState};
pub use crate::heap::space::compaction::Move;
pub use crate::heap::space::error::ArenaError;
pub use crate::heap::space::layout::ArenaLayout;
pub use crate::heap::space::operations::Arena;
pub use crate::heap::space::zone::Zone;
pub use crate::heap::stats::times::MappingCalls;

pub use builder::ArenaBuilder;
pub use compaction::{Compaction, Moved};
pub use detach::{Attaching, Attachment, Detaching, Unmapped};
pub(crate) use {detach::Refusal, mapping::calls_of_this_thread};

use crate::heap::arena::detach::Phase;
use crate::heap::arena::device_range::DeviceRange;
use crate::heap::arena::hazards::UseMap;
use crate::heap::arena::mapping::{Fit, Holes, Retiring, Share, Stitched, StitchedPart};
use crate::heap::space::{Extent, FreeBlock};
use crate::heap::{Depot, LockedDepot};
use crate::streams::{Markers, Overlap, Uses};
use crate::sync::{Condvar, MutexGuard};
use parking_lot::Mutex as LongMutex;
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use vrampool_backend::spi::Ledger;
use vrampool_backend::{Backend, DeviceId, MemoryKind, Physical};

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

/// A request for a block.
#[derive(Debug)]
struct ArenaRequest<'a, S> {
    bytes: u64,
    /// Only in an arena of fixed size. A growing arena chooses by the size.
    zone: Zone,
    stream: &'a S,
    /// Whether the stream is captured, if that may matter.
    is_captured: bool,
    /// Whether a small one gets free memory of the part for large ones: idle memory of a pool was reclaimed before.
    spills: bool,
}

impl<'a, S> ArenaRequest<'a, S> {
    fn new((bytes, zone): (u64, Zone), stream: &'a S) -> Self {
        Self { bytes, zone, stream, is_captured: false, spills: false }
    }
}

#[derive(Debug)]
struct State<B: Backend> {
    range: DeviceRange<B::Memory>,
    engine: Arena,
    slots: LiveBlocks<B::Stream>,
    uses: UseMap<B::Stream>,
    markers: Markers<B>,
    /// Only in a growing arena.
    backing: Option<Backing<B>>,
    /// Whether the device runs streams concurrently. If not, no request waits.
    are_concurrent: bool,
    phase: Phase<B>,
    peaks: ArenaPeaks,
}

/// Peaks of an arena's bytes, and what one of them leaves out.
#[derive(Debug, Default)]
struct ArenaPeaks {
    /// Reserved bytes when the peak was last restarted; they do not grow under a pool. Only in an arena of fixed size.
    reserved: u64,
    /// The peak of bytes used by blocks other than staged ones, over all ranges so far.
    used: u64,
    /// Bytes of a compaction's staging blocks at this moment.
    staged: u64,
    /// The peak of live bytes and bytes in flight since the last [decay](DeviceArena::decay).
    needed: u64,
}

/// Free memory that would serve a request. A search offers it and changes nothing; [`State::take`] allocates it.
#[derive(Debug)]
enum Candidate {
    /// A place in a hole, or at the free end.
    Plain { room: FreeBlock, start: u64 },
    /// A place in the stitched range of that age.
    Stitched { age: u64, fit: Fit },
}

/// The memory that serves a request.
#[derive(Debug)]
struct TakenBlock<B: Backend> {
    block: BlockId,
    stitched: Option<StitchedPlace<B>>,
}

/// The place of a stitched block.
#[derive(Debug)]
struct StitchedPlace<B: Backend> {
    memory: Arc<B::Memory>,
    offset: u64,
    /// The other engine blocks of the stitched block.
    more: Vec<BlockId>,
}

/// The data shared by an arena's handles and its buffers.
#[derive(Debug)]
struct ArenaCore<B: Backend> {
    device: B,
    id: DeviceId,
    kind: MemoryKind,
    state: StateLock<B>,
    is_growing: bool,
    /// Signalled at the end of a move.
    move_ended: Condvar,
    /// Serializes compaction, growth, release, detaching and attaching.
    changing: LongMutex<()>,
    /// Declared after the state: the quota is returned after the memory is released.
    share: Share,
    /// Device calls for virtual memory, and their duration.
    mapping: MappingCounters,
    /// Waits inserted between streams.
    stream_waits: AtomicU64,
    /// The part of them for memory that another stream used before.
    reuse_waits: AtomicU64,
    /// Free bytes that device work may still use, as far as markers show.
    in_flight: Arc<AtomicU64>,
    /// Whether there are markers: a hint.
    has_markers: Arc<AtomicBool>,
    /// Declared last: runs after the arena's memory is dropped.
    _reclaim: Reclaim<B>,
}

/// See [`MappingCalls`].
#[derive(Debug, Default)]
struct MappingCounters {
    calls: AtomicU64,
    nanoseconds: AtomicU64,
}

/// On drop, reclaims memory that the device keeps for pending work.
#[derive(Debug)]
pub(crate) struct Reclaim<B: Backend>(pub(crate) B);

/// The lock of an arena's state.
struct StateLock<B: Backend> {
    lock: &'static LockedDepot,
    state: PhantomData<fn() -> State<B>>,
}

/// The locked state.
struct StateGuard<'a, B: Backend> {
    depot: MutexGuard<'static, Depot>,
    state: PhantomData<&'a mut State<B>>,
}

/// A block of a [`DeviceArena`]. Dropping it frees the block.
///
/// It may outlive the arena's handles. Its bytes are accessed through a stream, as with
/// [`Buffer`](crate::Buffer). A compaction may move the block while no region of it exists; the next region
/// is at the new place.
///
/// ```
/// use vrampool::{Backend, arena::DeviceArena, host::HostDevice};
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let arena = DeviceArena::builder(&device).limit(1 << 20).build()?;
/// let mut block = arena.allocate(1000, &stream)?;
/// block.write(&[7; 1000], &stream)?;
/// assert_eq!((block.offset()?, block.len()), (0, 1000));
/// drop(block);
/// assert_eq!(arena.used(), 0);
/// # Ok::<(), vrampool::Error>(())
/// ```
pub struct ArenaBuffer<B: Backend> {
    arena: Arc<ArenaCore<B>>,
    /// `None` only while dropping, or when emptied.
    range: Option<Arc<B::Memory>>,
    /// Whether the buffer has no block.
    is_emptied: bool,
    block: BlockId,
    /// The block's offset in its stitched range, if it is in one.
    stitched_at: Option<u64>,
    /// Count of existing regions, shared with the block's slot. Created with the first region.
    holds: OnceLock<Arc<AtomicU32>>,
    /// The stream of the last block of an [emptied](Self::empty) buffer, kept for its next block.
    stream: Option<B::Stream>,
    len: u64,
    size: u64,
}

#[derive(Debug)]
#[repr(C)]
struct LiveBlock<S> {
    /// Count of existing regions, created with the first region.
    holds: Option<Arc<AtomicU32>>,
    /// The other engine blocks of a stitched block.
    more: Option<Box<[BlockId]>>,
    uses: Uses<S>,
    /// Whether the block is being moved. Its address is unavailable meanwhile.
    moving: bool,
    /// Whether no compaction moves it.
    stays: bool,
    /// Whether it was moved since its last use: markers that are known of its users may be earlier than the copy.
    moved: bool,
}

/// The slots of all live blocks, at the indices of the engine's records.
#[derive(Debug)]
struct LiveBlocks<S>(Vec<Option<(BlockId, LiveBlock<S>)>>);

/// The physical memory of a growing arena's range.
#[derive(Debug)]
struct Backing<B: Backend> {
    granularity: u64,
    /// The physical memory limit, bytes.
    limit: u64,
    /// The device's memory, bytes.
    total: u64,
    /// The ledger shared with other arenas, if any. It limits resources, too.
    ledger: Option<Ledger>,
    /// The bound on memory that spares waits.
    overlap: Overlap,
    /// Largest piece, bytes.
    piece_bytes: u64,
    /// The start of the range's second part, and the largest possible end.
    front: u64,
    addresses: u64,
    /// Pieces of physical memory by their offset in the range, and their handles.
    extents: Vec<Extent>,
    physical: Vec<Physical>,
    /// The stitched ranges that contain each piece, oldest first, with the piece's index in each.
    parts_of: Vec<SmallVec<[(u32, u32); 2]>>,
    /// Unmapped parts of the range, held.
    gaps: Vec<BlockId>,
    /// Pieces that could be neither made accessible nor unmapped, held.
    unreleased: Vec<(Extent, BlockId)>,
    /// Bytes of all pieces.
    mapped: u64,
    /// The peak of `mapped` under a pool, since it was restarted.
    mapped_peak: u64,
    /// Ends of the range in ascending order, each with the time at which it was reached.
    ends: Vec<(u64, u64)>,
    /// By age.
    stitched: Vec<Stitched<B>>,
    /// Stitched ranges that lost a piece while buffers use them, and their remaining parts.
    partly_unmapped: Vec<(Stitched<B>, Vec<StitchedPart>)>,
    /// Retiring ranges, oldest batch first.
    retiring: VecDeque<Retiring<B>>,
    /// Number of ends and stitched ranges so far.
    ages: u64,
    /// The list of a search, for its memory.
    holes: Holes,
    /// Whether a [decay](crate::arena::DeviceArena::decay) was called.
    decays: bool,
    /// Whether graphs may use the free memory at its addresses: all pieces stay mapped there, and none is stitched.
    is_private: bool,
}
