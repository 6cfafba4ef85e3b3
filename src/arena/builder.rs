//! Configuration of a device arena.

use super::mapping::make::virtual_memory;
use super::mapping::pages::Backing;
use super::mapping::quota::{Allowance, QuotaUse};
use super::resets::Resets;
use super::sleep::GivingBack;
use super::state::{LockedState, State};
use super::{ArenaCore, DeviceArena, Reclaim};
use crate::arena::engine::{Arena, ArenaLayout};
use crate::error::Error;
use crate::sync::Condvar;
use parking_lot::Mutex as LongMutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use vrampool_backend::{Backend, BackendError, Memory, MemoryKind, Placement, VirtualMemory, fork};

/// What a limit of 0 leaves free on a device, bytes (cuArena's).
const DEVICE_MARGIN: u64 = 256 << 20;

/// What a limit of 0 leaves free of host memory, bytes (cuArena's).
const HOST_MARGIN: u64 = 512 << 20;

/// The most bytes that a growing arena reserves addresses for.
pub(super) const MOST_ADDRESSES: u64 = 4 << 40;

/// Addresses of a growing arena's own range, in multiples of its capacity: one for small requests, and for
/// the others as many as leave room where gaps are too small.
const ADDRESSES: u64 = 3;

/// How a [`DeviceArena`] is to be.
///
/// ```
/// # use vrampool::{Placement, host::HostDevice, arena::{DeviceArena, Zone}};
/// # fn main() -> Result<(), vrampool::Error> {
/// let device = HostDevice::builder().capacity(1 << 30).build();
/// let arena = DeviceArena::builder(&device).stable_bytes(64 << 20).memory(Placement::HostVisible).build()?;
/// assert_eq!(arena.capacity(), 512 << 20); // what is free, less the margin
/// assert_eq!(arena.capacity_of(Zone::Stable), 64 << 20);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ArenaBuilder<B: Backend> {
    device: B,
    limit: u64,
    clamp: bool,
    stable_bytes: u64,
    kind: MemoryKind,
    grows: bool,
    piece_bytes: u64,
    addresses: Option<u64>,
    allowance: Option<Allowance>,
}

impl<B: Backend> ArenaBuilder<B> {
    pub(super) fn new(device: &B) -> Self {
        Self {
            device: device.clone(),
            limit: 0,
            clamp: false,
            stable_bytes: 0,
            kind: device.properties().preferred_placement().into(),
            grows: false,
            piece_bytes: u64::MAX,
            addresses: None,
            allowance: None,
        }
    }

    /// Reserves addresses only, and maps physical memory as it is needed, at most [`limit`](Self::limit) of
    /// it (0: no limit but the device's). Nothing is guessed, nothing moves, and
    /// [`release`](DeviceArena::release) gives back what is free. The device must have
    /// [`VIRTUAL_MEMORY`](vrampool_backend::Capabilities::VIRTUAL_MEMORY), and there is no stable zone: all
    /// of it is.
    ///
    /// What it takes of the process is bounded for any traffic, in proportion to its capacity (the limit, or
    /// the device's memory if that is less): addresses of at most eight times the capacity, three of them
    /// reserved at once, and at most four mappings for each page of it, and 1,024. Stitched ranges that no
    /// block uses are retired, the least recently used first, once their work is complete. In a process that
    /// uses other devices that can access the memory, they are unmapped by a release, which waits for those
    /// devices; a request does so, without a lock, only when it would fail otherwise. Where addresses or the
    /// device's table of mappings run out, the arena is out of memory until something is freed. A limit that is raised above
    /// twice its first value takes another range of addresses; the range so far stays until its last block is
    /// freed.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice, arena::DeviceArena};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().build()?;
    /// assert_eq!(arena.reserved_bytes(), 0);
    /// let block = arena.allocate(5 << 20, &stream)?;
    /// assert_eq!(arena.reserved_bytes(), 6 << 20); // whole pages of 2 MiB
    /// drop(block);
    /// assert_eq!(arena.release(0)?, 6 << 20);
    /// # Ok(())
    /// # }
    /// ```
    pub fn growing(mut self) -> Self {
        self.grows = true;
        self
    }

    /// A cap on what a growing arena maps as one piece, bytes, rounded down to the device's granularity:
    /// small pieces are given back and stitched more readily, and take more calls. Pieces are in any case at
    /// most a 128th of what is mapped, or two granules, or a 1024th of what is mapped at once, whichever is
    /// most. Default: no cap.
    pub fn piece_bytes(mut self, bytes: u64) -> Self {
        self.piece_bytes = bytes;
        self
    }

    /// The addresses that a growing arena reserves, bytes, rounded up to the device's granularity: for one
    /// that holds little and stays as it is, such as one large block. Its blocks then share one zone, and a
    /// limit that is raised takes no other range. Default: three times the capacity (the limit, or the
    /// device's memory if that is less), so that holes may be passed over.
    ///
    /// ```
    /// # use vrampool::{Backend, host::HostDevice, arena::DeviceArena};
    /// # fn main() -> Result<(), vrampool::Error> {
    /// # let device = HostDevice::new();
    /// # if device.virtual_memory().is_none() { return Ok(()) }
    /// let stream = device.create_stream()?;
    /// let arena = DeviceArena::builder(&device).growing().addresses(8 << 20).build()?;
    /// let block = arena.allocate(8 << 20, &stream)?;
    /// assert!(arena.allocate(1, &stream).unwrap_err().is_out_of_memory());
    /// # Ok(())
    /// # }
    /// ```
    pub fn addresses(mut self, bytes: u64) -> Self {
        self.addresses = Some(bytes);
        self
    }

    /// Physical memory of a growing arena is a part of that, as well as within its own
    /// [`limit`](Self::limit).
    pub fn within(mut self, allowance: &Allowance) -> Self {
        self.allowance = Some(allowance.clone());
        self
    }

    /// The range's size, bytes. 0, the default, is what is free on the device less a margin of 256 MiB (512
    /// MiB for host memory), or all of it where that is less. Of a [growing](Self::growing) arena the most
    /// bytes of physical memory, rounded down to the device's granularity, and 0 is no limit.
    pub fn limit(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// A limit above what is free becomes what is free, rather than an error; of a growing arena, above the
    /// device's memory that.
    pub fn clamp(mut self) -> Self {
        self.clamp = true;
        self
    }

    /// Bytes at the front that are the stable zone, in which nothing moves. Default: 0, none.
    pub fn stable_bytes(mut self, bytes: u64) -> Self {
        self.stable_bytes = bytes;
        self
    }

    /// The kind of memory. Default: what the device prefers.
    pub fn memory(mut self, kind: impl Into<MemoryKind>) -> Self {
        self.kind = kind.into();
        self
    }

    /// Reserves the range.
    ///
    /// # Errors
    /// [`Error::Configuration`] for what a [growing](Self::growing) arena cannot have: a stable zone, or a
    /// limit below the device's granularity; [`Error::Backend`] with `Unsupported` for one on a device
    /// without virtual memory. [`Error::Arena`] for a layout that cannot be, [`Error::Backend`] when the
    /// device has not enough memory, which a limit above what is free means unless it is
    /// [clamped](Self::clamp).
    pub fn build(self) -> Result<DeviceArena<B>, Error> {
        fork::opening()?;
        let id = self.device.id();
        let properties = self.device.properties();
        let alignment = properties.alignment.max(properties.copy_granularity.next_power_of_two());
        let state = if self.grows {
            self.growing_state(alignment)?
        } else {
            let bytes = self.bytes()?;
            let layout = ArenaLayout::new(bytes).alignment(alignment).stable_bytes(self.stable_bytes);
            log::info!("arena on {id}: {bytes} bytes reserved, {} of them stable", self.stable_bytes);
            State::reserve(&self.device, self.kind, layout, bytes)?
        };
        log::debug!("arena on {id}: {:?}, at {:?}", self.kind, state.range.address());
        let reclaim = Reclaim(self.device.clone());
        let core = ArenaCore {
            id,
            device: self.device,
            kind: self.kind,
            state: LockedState::new(state),
            settled: Condvar::new(),
            changing: LongMutex::new(()),
            giving_back: GivingBack::default(),
            resets: Resets::default(),
            share: QuotaUse::of(self.allowance),
            mapping_calls: AtomicU64::new(0),
            mapping_nanoseconds: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            has_points: AtomicBool::new(false),
            _reclaim: reclaim,
        };
        Ok(DeviceArena { core: Arc::new(core) })
    }

    fn growing_state(&self, alignment: u64) -> Result<State<B>, Error> {
        if self.stable_bytes > 0 {
            return Err(Error::Configuration {
                field: "stable_bytes",
                value: self.stable_bytes.to_string(),
                reason: "nothing moves in a growing arena, so it has no zone for that; leave it 0".into(),
            });
        }
        let device = virtual_memory(&self.device)?;
        let granularity = device.granularity(self.kind)?.max(alignment);
        if (1..granularity).contains(&self.limit) {
            return Err(Error::Configuration {
                field: "limit",
                value: self.limit.to_string(),
                reason: format!(
                    "the device maps memory in pieces of {granularity} bytes; leave room for one"
                ),
            });
        }
        let limit = if self.limit > 0 { self.limit } else { u64::MAX };
        let total = self.device.properties().total_bytes;
        let limit = if self.clamp { limit.min(total) } else { limit };
        let reserved = match self.addresses {
            Some(bytes) => {
                let bytes = bytes.max(1).checked_next_multiple_of(granularity).unwrap_or(u64::MAX);
                device.reserve(bytes).map(|range| (range, 0, bytes))
            }
            None => {
                let quota = self.allowance.as_ref().map_or(u64::MAX, |allowance| allowance.limit());
                reserve_for(device, limit.min(total).min(quota), granularity)
            }
        };
        let (range, front, addresses) = reserved.inspect_err(|error| {
            log::warn!(
                "arena on {}: no addresses, because {error}; a limit on the process's address space (`ulimit -v`) may be too low",
                self.device.id()
            );
        })?;
        log::info!("arena on {}: {addresses} bytes of addresses reserved", self.device.id());
        let engine = Arena::divided(alignment, front)?;
        let backing = Backing::new(granularity, (limit, total), self.piece_bytes, (front, addresses));
        let backing = backing.within(self.allowance.clone());
        Ok(State::new(&self.device, engine, range, Some(backing)))
    }

    fn bytes(&self) -> Result<u64, Error> {
        if self.limit > 0 && !self.clamp {
            return Ok(self.limit);
        }
        let free = self.device.memory_info()?.free_bytes;
        if free == 0 {
            return Err(BackendError::OutOfMemory { requested: self.limit.max(1), free: Some(0) }.into());
        }
        if self.limit > 0 {
            return Ok(self.limit.min(free));
        }
        let margin = if self.kind.placement == Placement::HostVisible { HOST_MARGIN } else { DEVICE_MARGIN };
        Ok(if free > margin { free - margin } else { free })
    }
}

/// The range of a growing arena of that capacity, where its second part starts, and its bytes.
pub(super) fn reserve_for<M>(
    device: &dyn VirtualMemory<Memory = M>,
    capacity: u64,
    granularity: u64,
) -> Result<(M, u64, u64), BackendError> {
    let capacity = capacity.min(MOST_ADDRESSES).max(granularity);
    let round = |bytes: u64| bytes.checked_next_multiple_of(granularity).unwrap_or(u64::MAX);
    let mut addresses = round(capacity).saturating_mul(ADDRESSES);
    let range = loop {
        match device.reserve(addresses) {
            Ok(range) => break range,
            // Where addresses are short, as many as there are.
            Err(_) if addresses / 2 >= capacity => addresses = round(addresses / 2),
            Err(error) => return Err(error),
        }
    };
    Ok((range, round(addresses / ADDRESSES), addresses))
}
