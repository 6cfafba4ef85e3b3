//! Configuration of a device arena.

use super::{ArenaCore, Backing, DeviceArena, MappingCounters, Reclaim, State, StateLock};
use crate::environment::as_cap;
use crate::error::Error;
use crate::heap::arena::mapping::{MOST_ADDRESSES, Share, virtual_memory};
use crate::heap::space::{Arena, ArenaLayout};
use crate::streams::Overlap;
use crate::sync::Condvar;
use parking_lot::Mutex as LongMutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use vrampool_backend::spi::Ledger;
use vrampool_backend::{
    Amount, Backend, BackendError, Memory, MemoryKind, Placement, VirtualMemory, fork, logging,
};

/// Free device memory that an arena without a limit leaves unused, bytes (cuArena's).
const DEVICE_MARGIN: u64 = 256 << 20;

/// Free host memory that an arena without a limit leaves unused, bytes (cuArena's).
const HOST_MARGIN: u64 = 512 << 20;

/// Addresses of a growing arena's own range, in multiples of its capacity. One is for small requests. The
/// others are for large requests, with spare addresses beyond gaps that are too small.
const ADDRESSES: u64 = 3;

/// Configuration of a [`DeviceArena`].
///
/// ```
/// # use vrampool::{Placement, host::HostDevice, arena::{DeviceArena, Zone}};
/// let device = HostDevice::builder().memory_limit(1 << 30).build();
/// let arena = DeviceArena::builder(&device).stable_bytes(64 << 20).memory(Placement::HostVisible).build()?;
/// assert_eq!(arena.capacity(), 512 << 20); // what is free, less the margin
/// assert_eq!(arena.capacity_of(Zone::Stable), 64 << 20);
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ArenaBuilder<B: Backend> {
    device: B,
    limit: Option<u64>,
    stable_bytes: u64,
    kind: MemoryKind,
    grows: bool,
    piece_bytes: u64,
    initial_bytes: u64,
    ledger: Option<Ledger>,
    overlap: Amount,
    overlap_within: u64,
    reserves_total: bool,
}

impl<B: Backend> ArenaBuilder<B> {
    pub(super) fn new(device: &B) -> Self {
        Self {
            device: device.clone(),
            limit: None,
            stable_bytes: 0,
            kind: device.properties().preferred_placement().into(),
            grows: false,
            piece_bytes: u64::MAX,
            initial_bytes: 0,
            ledger: None,
            overlap: Amount::default(),
            overlap_within: u64::MAX,
            reserves_total: false,
        }
    }

    /// Reserves only addresses, and maps physical memory as needed.
    ///
    /// At most [`limit`](Self::limit) bytes are mapped (`None`: the device's memory is the only limit). Blocks
    /// never move, and [`release`](DeviceArena::release) returns free memory to the device. The device must
    /// have [`VIRTUAL_MEMORY`](vrampool_backend::Capabilities::VIRTUAL_MEMORY). A stable zone cannot be
    /// configured, because the whole arena is stable.
    ///
    /// The use of process resources is bounded for any traffic, in proportion to the capacity (the smaller of
    /// the limit and the device's memory):
    ///
    /// * Addresses are at most eight times the capacity; three times the capacity is reserved at the start.
    /// * Mappings are at most four for each page of the capacity, and 1,024 more.
    /// * Unused stitched ranges are retired, least recently used first, once their work is complete. If other
    ///   devices of the process can access the memory, a release unmaps these ranges and waits for those
    ///   devices. A request does so, without a lock, only if it would fail otherwise.
    ///
    /// If addresses or the device's table of mappings are exhausted, the arena is out of memory until blocks
    /// are freed. A limit that is raised above twice its first value takes another range of addresses. The
    /// previous range remains until its last block is freed.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice, arena::DeviceArena};
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().build()?;
    /// assert_eq!(arena.reserved_bytes(), 0);
    /// let block = arena.allocate(5 << 20, &stream)?;
    /// assert_eq!(arena.reserved_bytes(), 6 << 20); // whole pages of 2 MiB
    /// drop(block);
    /// assert_eq!(arena.release(0)?, 6 << 20);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn growing(mut self) -> Self {
        self.grows = true;
        self
    }

    /// Sets the largest piece that a growing arena maps, bytes, rounded down to the device's granularity.
    ///
    /// Small pieces are released and stitched more readily, and need more calls. Pieces never exceed the
    /// largest of a 16th of the mapped bytes up to 16 MiB, a 1024th of the mapped bytes, two granules, and a 1024th of
    /// the bytes mapped at once; those of [initial memory](Self::initial_bytes) may have 16 MiB.
    /// Default: no cap.
    pub fn piece_bytes(mut self, bytes: u64) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// Sets the bytes that a growing arena maps when it is built, rounded up to the device's granularity. They are
    /// released like other free memory. Default: 0.
    ///
    /// ```
    /// # use vrampool::{Backend, arena::DeviceArena, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// # let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().initial_bytes(64 << 20).build()?;
    /// let calls = arena.mapping().calls;
    /// let _block = arena.allocate(48 << 20, &stream)?;
    /// assert_eq!((arena.reserved_bytes(), arena.mapping().calls), (64 << 20, calls));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    pub fn initial_bytes(mut self, bytes: u64) -> Self {
        self.initial_bytes = bytes;
        self
    }

    /// Counts physical memory against `ledger`, as well as against the [`limit`](Self::limit).
    pub fn within(mut self, ledger: &Ledger) -> Self {
        self.ledger = Some(ledger.clone());
        self
    }

    /// Bounds the memory that a [growing](Self::growing) arena maps so that streams do not wait for each other:
    /// mapped bytes beyond the peak of live bytes. Default: [`Amount::Unlimited`].
    pub fn overlap(mut self, overlap: impl Into<Amount>) -> Self {
        self.overlap = overlap.into();
        self
    }

    /// Reserves addresses for all of the device's memory, whatever the limit is, if the process has so many.
    pub(crate) fn reserves_total(mut self, all: bool) -> Self {
        self.reserves_total = all;
        self
    }

    /// As [`overlap`](Self::overlap): no memory is mapped for that beyond `bytes`, a pool's budget.
    pub(crate) fn overlap_within(mut self, bytes: u64) -> Self {
        self.overlap_within = bytes;
        self
    }

    /// Sets the range's size, bytes.
    ///
    /// `None`, the default, is the free memory of the device less a margin of 256 MiB (512 MiB for host
    /// memory). If less than the margin is free, it is all free memory. For a [growing](Self::growing) arena
    /// this limits physical memory, is rounded down to the device's granularity, and `None` is no limit.
    pub fn limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.limit = bytes.into();
        self
    }

    /// Sets the size of the stable zone at the front, bytes. Blocks in it never move. Default: 0.
    pub fn stable_bytes(mut self, bytes: u64) -> Self {
        self.stable_bytes = bytes;
        self
    }

    /// Sets the kind of memory. Default: the device's preferred placement.
    pub fn memory(mut self, kind: impl Into<MemoryKind>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Reserves the range.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a limit of 0; if a [growing](Self::growing) arena has a stable zone, or a
    /// limit below the device's granularity; [`Error::Backend`] with `Unsupported` if its device has no virtual memory.
    /// [`Error::Arena`] if the layout is invalid. [`Error::OutOfMemory`] if the device has too little memory:
    /// also for a limit above the free memory.
    pub fn build(self) -> Result<DeviceArena<B>, Error> {
        fork::opening()?;
        let id = self.device.id();
        let properties = self.device.properties();
        let alignment = properties.alignment.max(properties.copy_granularity.next_power_of_two());
        let share = Share::of(self.ledger.clone().unwrap_or_else(|| Ledger::new(None)));
        let state = if self.grows {
            self.growing_state(alignment)?
        } else {
            let bytes = self.bytes()?;
            share.reserve(bytes)?;
            let layout = ArenaLayout::new(bytes).alignment(alignment).stable_bytes(self.stable_bytes);
            logging::info!("arena on {id}: {bytes} bytes reserved, {} of them stable", self.stable_bytes);
            State::reserve(&self.device, self.kind, layout, bytes)?
        };
        logging::debug!("arena on {id}: {:?}, at {:?}", self.kind, state.range.address());
        let in_flight = state.uses.ticks.shared_in_flight();
        let reclaim = Reclaim(self.device.clone());
        let core = ArenaCore {
            id,
            device: self.device,
            kind: self.kind,
            state: StateLock::new(state),
            is_growing: self.grows,
            move_ended: Condvar::new(),
            changing: LongMutex::new(()),
            share,
            mapping: MappingCounters::default(),
            stream_waits: AtomicU64::new(0),
            reuse_waits: AtomicU64::new(0),
            in_flight,
            has_markers: Arc::default(),
            _reclaim: reclaim,
        };
        let core = Arc::new(core);
        if self.grows && self.initial_bytes > 0 {
            core.map_initial(self.initial_bytes, as_cap(self.limit))?;
        }
        Ok(DeviceArena { core })
    }

    fn growing_state(&self, alignment: u64) -> Result<State<B>, Error> {
        if self.stable_bytes > 0 {
            return Err(Error::configuration(
                "stable_bytes",
                self.stable_bytes.to_string(),
                "nothing moves in a growing arena, so it has no zone for that; leave it 0",
            ));
        }
        let device = virtual_memory(&self.device)?;
        let granularity = device.granularity(self.kind)?.max(alignment);
        if let Some(limit) = self.limit.filter(|limit| *limit < granularity) {
            return Err(Error::configuration(
                "limit",
                limit.to_string(),
                format!("the device maps memory in pieces of {granularity} bytes; leave room for one"),
            ));
        }
        let limit = as_cap(self.limit);
        let total = self.device.properties().total_bytes;
        let quota = self.ledger.as_ref().and_then(Ledger::limit).unwrap_or(u64::MAX);
        let capacity = limit.min(total).min(quota);
        let wanted = if self.reserves_total { total } else { capacity };
        let reserved = reserve_for(device, (wanted, capacity), granularity);
        let (range, front, addresses) = reserved.inspect_err(|error| {
            logging::warn!(
                "arena on {}: no addresses, because {error}; a limit on the process's address space (`ulimit -v`) may be too low",
                self.device.id()
            );
        })?;
        logging::info!("arena on {}: {addresses} bytes of addresses reserved", self.device.id());
        let engine = Arena::divided(alignment, front)?;
        let mut backing = Backing::new(granularity, (limit, total), self.piece_bytes, (front, addresses));
        backing.ledger = self.ledger.clone();
        backing.overlap = Overlap { bound: self.overlap, within: self.overlap_within, refused_at: None };
        Ok(State::new(&self.device, engine, range, Some(backing)))
    }

    fn bytes(&self) -> Result<u64, Error> {
        match self.limit {
            Some(0) => {
                return Err(Error::configuration(
                    "limit",
                    "0",
                    "an arena of 0 bytes cannot serve requests; set a larger limit, or none for the free memory",
                ));
            }
            Some(limit) => return Ok(limit),
            None => {}
        }
        let free = self.device.memory_info()?.free_bytes;
        if free == 0 {
            return Err(BackendError::out_of_memory(1, Some(0)).into());
        }
        let margin = if self.kind.placement == Placement::HostVisible { HOST_MARGIN } else { DEVICE_MARGIN };
        Ok(if free > margin { free - margin } else { free })
    }
}

/// Reserves a growing arena's range. Returns the range, the start of its second part, and its bytes.
pub(super) fn reserve_for<M>(
    device: &dyn VirtualMemory<Memory = M>,
    (wanted, capacity): (u64, u64),
    granularity: u64,
) -> Result<(M, u64, u64), BackendError> {
    let [wanted, capacity] = [wanted, capacity].map(|bytes| bytes.min(MOST_ADDRESSES).max(granularity));
    let round = |bytes: u64| bytes.checked_next_multiple_of(granularity).unwrap_or(u64::MAX);
    let mut addresses = round(wanted).saturating_mul(ADDRESSES);
    let range = loop {
        match device.reserve(addresses) {
            Ok(range) => break range,
            // If addresses are short, reserve as many as possible.
            Err(_) if addresses / 2 >= capacity => addresses = round(addresses / 2),
            Err(error) => return Err(error),
        }
    };
    Ok((range, round(addresses / ADDRESSES), addresses))
}
