//! Memory: the map of addresses, and what is behind them.

use crate::code::{Answer, Code};
use crate::detector::Span;
use crate::executor::TOUCHING;
use crate::virtual_memory::{Physical, Reservation};
use crate::work::Range;
use crate::world::World;
use parking_lot::MutexGuard;
use std::collections::{BTreeMap, HashMap};

/// What addresses begin at, and are taken in, multiples of.
const PAGE: u64 = 4096;

/// The call that made an allocation, which says which call frees it and who may touch it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    Device,
    Managed,
    Pinned,
    /// The program's own memory, while it is registered.
    Registered,
    /// A pool's memory.
    Chunk(u64),
    /// Memory of a captured graph.
    Graph,
}

#[derive(Debug)]
pub(crate) struct Allocation {
    /// Its number as a physical memory, for the detector.
    pub(crate) backing: u64,
    pub(crate) bytes: u64,
    pub(crate) source: Source,
    pub(crate) context: u64,
    pub(crate) device: usize,
    /// As `cuMemHostGetFlags` returns them.
    pub(crate) flags: u32,
}

#[derive(Debug)]
pub(crate) enum Area {
    Allocation(Allocation),
    Reservation(Reservation),
}

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// By the first address.
    pub(crate) areas: BTreeMap<u64, Area>,
    pub(crate) physical: HashMap<u64, Physical>,
}

impl Area {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Allocation(allocation) => allocation.bytes,
            Self::Reservation(reservation) => reservation.bytes,
        }
    }
}

impl Memory {
    /// The area that has an address, and where it begins.
    pub(crate) fn area(&self, address: u64) -> Option<(u64, &Area)> {
        let (&start, area) = self.areas.range(..=address).next_back()?;
        (address - start < area.bytes().max(1)).then_some((start, area))
    }

    /// What a range of addresses is of physical memory. Memory of the host that is not the driver's is
    /// nothing.
    pub(crate) fn spans(&self, range: Range) -> Vec<Span> {
        match self.area(range.address) {
            None => Vec::new(),
            Some((start, Area::Allocation(allocation))) => {
                let first = range.address - start;
                let end = (first + range.bytes).min(allocation.bytes);
                vec![Span { backing: allocation.backing, start: first, end, write: range.write }]
            }
            Some((start, Area::Reservation(reservation))) => {
                let first = range.address - start;
                reservation.spans(first, first + range.bytes, range.write)
            }
        }
    }

    pub(crate) fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        for (start, area) in &self.areas {
            match area {
                Area::Allocation(Allocation { source: Source::Chunk(_) | Source::Graph, .. }) => {}
                Area::Allocation(allocation) => {
                    leaks.push(format!(
                        "{} bytes of {:?} memory at {start:#x}",
                        allocation.bytes, allocation.source
                    ));
                }
                Area::Reservation(reservation) => {
                    leaks.push(format!("{} bytes of addresses at {start:#x}", reservation.bytes));
                }
            }
        }
        leaks.extend(
            self.physical.values().map(|physical| format!("{} bytes of physical memory", physical.bytes)),
        );
        leaks.sort_unstable();
        leaks
    }
}

impl World {
    /// Takes memory from a device or from the host.
    pub(crate) fn allocate(&mut self, context: u64, bytes: u64, source: Source) -> Answer<u64> {
        if bytes == 0 {
            return Err(Code::INVALID_VALUE);
        }
        let device = self.device_of(context);
        let rounded = bytes.checked_next_multiple_of(PAGE).ok_or(Code::OUT_OF_MEMORY)?;
        let is_devices = matches!(source, Source::Device | Source::Chunk(_) | Source::Graph);
        if is_devices {
            self.charge(device, rounded)?;
        } else if rounded > 1 << 46 {
            return Err(Code::OUT_OF_MEMORY);
        }
        let Some(address) = map_anonymous(rounded, true) else {
            if is_devices {
                self.discharge(device, rounded);
            }
            return Err(Code::OUT_OF_MEMORY);
        };
        let backing = self.next_number();
        let allocation = Allocation { backing, bytes, source, context, device, flags: 0 };
        self.memory.areas.insert(address, Area::Allocation(allocation));
        Ok(address)
    }

    /// Gives an allocation back. Nobody uses it any more.
    pub(crate) fn release(&mut self, address: u64, verb: &str) {
        let Some(Area::Allocation(allocation)) = self.memory.areas.remove(&address) else { return };
        self.check_unused(allocation.backing, 0, allocation.bytes, verb);
        self.shadow.forget(allocation.backing);
        if allocation.source == Source::Registered {
            return;
        }
        let rounded = allocation.bytes.next_multiple_of(PAGE);
        if matches!(allocation.source, Source::Device | Source::Chunk(_) | Source::Graph) {
            self.discharge(allocation.device, rounded);
        }
        unmap(address, rounded);
    }

    /// Makes memory of the program known to the driver.
    pub(crate) fn register(&mut self, context: u64, address: u64, bytes: u64) -> Answer {
        let end = address.checked_add(bytes).filter(|&end| end > address).ok_or(Code::INVALID_VALUE)?;
        let before = self.memory.areas.range(..end).next_back();
        if before.is_some_and(|(start, area)| start + area.bytes() > address) {
            return Err(Code::HOST_MEMORY_ALREADY_REGISTERED);
        }
        let (backing, device) = (self.next_number(), self.device_of(context));
        let source = Source::Registered;
        let allocation = Allocation { backing, bytes, source, context, device, flags: 0 };
        self.memory.areas.insert(address, Area::Allocation(allocation));
        Ok(())
    }

    /// Frees what `cuMemAlloc`, `cuMemAllocManaged` and `cuMemHostAlloc` gave, when the context's work is
    /// done.
    pub(crate) fn free(
        world: &mut MutexGuard<'_, Self>,
        address: u64,
        is: impl Fn(Source) -> bool,
    ) -> Answer {
        let context = match world.memory.areas.get(&address) {
            Some(Area::Allocation(allocation)) if is(allocation.source) => allocation.context,
            _ => return Err(Code::INVALID_VALUE),
        };
        Self::synchronize_context(world, context)?;
        world.release(address, "freed");
        Ok(())
    }

    /// Gives all memory of a context back.
    pub(crate) fn release_memory_of(&mut self, context: u64) {
        let of = |area: &Area| matches!(area, Area::Allocation(allocation) if allocation.context == context);
        let starts: Vec<u64> =
            self.memory.areas.iter().filter(|(_, area)| of(area)).map(|(&start, _)| start).collect();
        for start in starts {
            if matches!(
                self.memory.areas.get(&start),
                Some(Area::Allocation(Allocation { source: Source::Chunk(_), .. }))
            ) {
                continue;
            }
            self.release(start, "freed with its context");
        }
    }

    /// Whether work of a context may touch a range.
    pub(crate) fn is_accessible(&self, range: Range, context: u64, is_kernel: bool) -> bool {
        let Some(of) = self.contexts.get(&context) else { return false };
        let Some((start, area)) = self.memory.area(range.address) else {
            return range.host;
        };
        let first = range.address - start;
        match area {
            Area::Allocation(allocation) => {
                let inside = first + range.bytes <= allocation.bytes;
                let reaches = match allocation.source {
                    Source::Managed | Source::Pinned | Source::Registered => true,
                    Source::Chunk(pool) => {
                        let allowed = |pool: &crate::pool::Pool| pool.peers.contains(&of.device);
                        allocation.device == of.device
                            || !is_kernel
                            || self.pools.get(&pool).is_some_and(allowed)
                    }
                    _ => {
                        allocation.device == of.device || !is_kernel || of.peers.contains(&allocation.device)
                    }
                };
                inside && reaches
            }
            Area::Reservation(reservation) => {
                reservation.is_accessible(first, first + range.bytes, of.device, range.write)
            }
        }
    }
}

/// Maps zeroed memory that costs nothing until it is touched.
pub(crate) fn map_anonymous(bytes: u64, usable: bool) -> Option<u64> {
    let protection = if usable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_NONE };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the system's choice touches nothing that exists.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes as usize, protection, flags, -1, 0) };
    (start != libc::MAP_FAILED).then(|| start.expose_provenance() as u64)
}

/// Maps addresses that are not usable at `address`, if nothing is there.
pub(crate) fn map_at(address: u64, bytes: u64) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
    let wished = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the flags have the system refuse addresses at which something is, so that nothing is replaced.
    let start = unsafe { libc::mmap(wished, bytes as usize, libc::PROT_NONE, flags, -1, 0) };
    let is_there = start == wished;
    if !is_there && start != libc::MAP_FAILED {
        // A system that does not know the flag.
        unmap(start.expose_provenance() as u64, bytes);
    }
    is_there
}

/// Gives addresses back, when no worker touches memory.
pub(crate) fn unmap(address: u64, bytes: u64) {
    let _alone = TOUCHING.write();
    let start = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the range is one that this file or `virtual_memory` mapped, whole, and that left the map of
    // addresses; no worker touches memory now, and later work finds that the range is not there.
    let _ = unsafe { libc::munmap(start, bytes as usize) };
}
